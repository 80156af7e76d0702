//! Times calls that touch no pages, and moves by mremap.

use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::area::{Area, Granule, HUGE_BYTES, faults};

use super::MeasureError;
use super::pages::NO_HUGE_PAGES;
use super::samples::Samples;
use crate::profile::Operation;

/// Calls per round.
const CALLS: u64 = 200;
/// Mappings of 2 MiB that are moved per round.
const MOVES: u64 = 8;

/// Times `mmap` and `munmap` of 2 MiB of untouched memory, and `madvise` calls that have no effect.
pub(super) fn empty(samples: &mut Samples) -> Result<(), MeasureError> {
    let mut areas = Vec::with_capacity(CALLS as usize);
    samples.time(Operation::MmapCall, CALLS, || {
        (0..CALLS).try_for_each(|_| Area::new(HUGE_BYTES).map(|area| areas.push(area)))
    })?;
    let Some(area) = areas.pop() else { return Ok(()) };
    samples.time(Operation::MadviseCall, CALLS, || (0..CALLS).filter(|_| !area.advise(libc::MADV_DONTNEED)).count());
    samples.time(Operation::MunmapCall, CALLS - 1, || drop(areas));
    Ok(())
}

/// Times `mremap` of 2 MiB with all pages present.
pub(super) fn moves(samples: &mut Samples) -> Result<(), MeasureError> {
    for (granule, operation) in [(Granule::Page, Operation::MoveTable), (Granule::Huge, Operation::MoveHuge)] {
        let areas = (0..MOVES).map(|_| Ok((Area::of(granule, HUGE_BYTES)?, Area::of(granule, HUGE_BYTES)?)));
        let areas = areas.collect::<Result<Vec<(Area, Area)>, MeasureError>>()?;
        let before = faults();
        areas.iter().for_each(|(from, _)| from.write(PAGE_BYTES));
        if faults() - before != MOVES * HUGE_BYTES / granule.bytes() {
            samples.skip(operation, NO_HUGE_PAGES);
            continue;
        }
        let moved = || areas.iter().all(|(from, to)| from.move_to(to));
        if !samples.time_if(operation, MOVES, moved, |moved| moved) {
            samples.skip(operation, "the kernel does not leave the source mapped (MREMAP_DONTUNMAP)");
        }
    }
    Ok(())
}
