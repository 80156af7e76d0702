//! Calls that find nothing to do.

use super::area::{Area, HUGE_BYTES, timed};
use super::{MeasureError, Samples};
use crate::profile::Operation;

/// Calls of a round.
const CALLS: u64 = 200;

/// `mmap` and `munmap` of 2 MiB that nobody touches, `madvise` of nothing.
pub(super) fn empty(samples: &mut Samples) -> Result<(), MeasureError> {
    let mut areas = Vec::with_capacity(CALLS as usize);
    let (mapped, spent) = timed(|| (0..CALLS).try_for_each(|_| Area::new(HUGE_BYTES).map(|area| areas.push(area))));
    mapped?;
    samples.add(Operation::MmapCall, CALLS, spent);
    let Some(area) = areas.pop() else { return Ok(()) };
    let advise = || (0..CALLS).filter(|_| !area.advise(libc::MADV_DONTNEED)).count();
    samples.add(Operation::MadviseCall, CALLS, timed(advise).1);
    samples.add(Operation::MunmapCall, CALLS - 1, timed(|| drop(areas)).1);
    Ok(())
}
