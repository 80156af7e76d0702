//! Times calls that touch no pages, and moves by mremap.

use std::time::Duration;

use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::area::{Area, Granule, HUGE_BYTES, faults, timed};
use hksim_linux_probe::cpu_modes::ModeSamples;

use super::MeasureError;
use super::pages::NO_HUGE_PAGES;
use super::samples::Samples;
use crate::profile::Operation;

/// Calls per round.
const CALLS: u64 = 200;
/// Calls per measurement: memory is moved there and back.
const MOVES: u32 = 16;

/// Times `mmap` and `munmap` of 2 MiB of untouched memory, and `madvise` calls that have no effect.
pub(super) fn empty(samples: &mut Samples) -> Result<(), MeasureError> {
    let mut areas = Vec::with_capacity(CALLS as usize);
    samples.time(Operation::MmapCall, CALLS, || {
        (0..CALLS).try_for_each(|_| Area::new(HUGE_BYTES).map(|area| areas.push(area)))
    })?;
    let Some(area) = areas.pop() else { return Ok(()) };
    samples.time(Operation::MadviseCall, CALLS, || (0..CALLS).filter(|_| !area.advise(libc::MADV_DONTNEED)).count());
    samples.time(Operation::MunmapCall, CALLS - 1, || drop(areas));
    near(samples)
}

/// Times `mmap` and `munmap` in turns, so that the kernel takes the records again that it just returned. One of the two alone
/// is too short to be timed; each gets the share that it has above.
fn near(samples: &mut Samples) -> Result<(), MeasureError> {
    let (done, spent) = timed(|| (0..CALLS).try_for_each(|_| Area::new(HUGE_BYTES).map(drop)));
    done?;
    let apart = [Operation::MmapCall, Operation::MunmapCall].map(|call| Some((call, samples.last_ns(call)?)));
    if let [Some((map, map_ns)), Some((unmap, unmap_ns))] = apart {
        let part = spent.as_nanos() as f64 / CALLS as f64 / (map_ns + unmap_ns);
        samples.note_near(map, map_ns * part);
        samples.note_near(unmap, unmap_ns * part);
    }
    Ok(())
}

/// Times `mremap`: the call, and each page, page table and huge page that it moves. A call that moves one of them is
/// compared with a call that moves many.
pub(super) fn moves(samples: &mut Samples) -> Result<(), MeasureError> {
    let mut call = None;
    for (operation, number, moves) in [
        (Operation::MoveTable, 8, Moves { granule: Granule::Page, unit_bytes: HUGE_BYTES, offset: 0 }),
        // No page table can move whole, since the pages move to another offset in 2 MiB.
        (Operation::MovePage, 256, Moves { granule: Granule::Page, unit_bytes: PAGE_BYTES, offset: HUGE_BYTES / 2 }),
        (Operation::MoveHuge, 8, Moves { granule: Granule::Huge, unit_bytes: HUGE_BYTES, offset: 0 }),
    ] {
        let (Some(one), Some(many)) = (moves.of(1)?, moves.of(number)?) else {
            samples.skip(operation, format!("{NO_HUGE_PAGES}, or the kernel has no MREMAP_DONTUNMAP"));
            continue;
        };
        let unit = many.saturating_sub(one) / (number as u32 - 1);
        samples.note(operation, 1, unit, ModeSamples::default());
        call = call.or(Some(one.saturating_sub(unit)));
    }
    match call {
        Some(call) => samples.note(Operation::MremapCall, 1, call, ModeSamples::default()),
        None => samples.skip(Operation::MremapCall, "the kernel has no MREMAP_DONTUNMAP"),
    }
    Ok(())
}

/// Moves of present memory to an offset in another area.
#[derive(Clone, Copy)]
struct Moves {
    granule: Granule,
    /// Size of what moves as one.
    unit_bytes: u64,
    offset: u64,
}

impl Moves {
    /// The mean time of calls that move this many units each, or `None` if the kernel installs no huge pages or refuses.
    fn of(self, units: u64) -> Result<Option<Duration>, MeasureError> {
        let bytes = units * self.unit_bytes;
        let place = || Area::of(self.granule, (bytes + self.offset).next_multiple_of(HUGE_BYTES));
        let (one, other) = (place()?, place()?);
        let before = faults();
        one.write_part(0, bytes, PAGE_BYTES);
        if faults() - before != bytes.div_ceil(self.granule.bytes()) {
            return Ok(None);
        }
        let to = self.offset;
        let there_and_back = || one.move_to(0..bytes, &other, to) && other.move_to(to..to + bytes, &one, 0);
        let (moved, spent) = timed(|| (0..MOVES / 2).all(|_| there_and_back()));
        Ok(moved.then(|| spent / MOVES))
    }
}
