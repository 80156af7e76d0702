//! Times first touches of several amounts of memory.
//!
//! The cost of a fault depends on the footprint. The pages of a small footprint are still cached when they are reused;
//! those of a large one must be fetched from memory to be zeroed. Before each measurement the same amount of memory is
//! touched and returned, as in the runs that the costs are applied to.

use std::time::Duration;

use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::area::{Area, Granule, HUGE_BYTES, faults, timed, warm_up};
use hksim_linux_probe::cpu_modes::ModeSamples;

use super::MeasureError;
use super::pages::NO_HUGE_PAGES;
use super::samples::Samples;
use crate::profile::{BETWEEN, FOOTPRINTS, Operation};

const CACHE_LINE_BYTES: u64 = 64;

/// Pages touched with other work between them: as many as the smallest footprint has, but fewer if all that work would be more
/// than 128 MiB.
fn apart_pages(between_bytes: u64) -> u64 {
    (FOOTPRINTS[0].bytes / PAGE_BYTES).min((128 << 20) / between_bytes)
}

/// Times first touches with other work between them, of each amount.
pub(super) fn touches_apart(samples: &mut Samples) -> Result<(), MeasureError> {
    BETWEEN.into_iter().try_for_each(|(bytes, operation)| touches_apart_by(samples, bytes, operation))
}

/// Times first touches with this much other work between them, and subtracts the time of the same work alone.
fn touches_apart_by(samples: &mut Samples, between_bytes: u64, operation: Operation) -> Result<(), MeasureError> {
    let pages = apart_pages(between_bytes);
    let bytes = pages * PAGE_BYTES;
    let work = Area::of(Granule::Page, between_bytes)?;
    work.write(CACHE_LINE_BYTES);
    warm_up(Granule::Page, bytes)?;
    let area = Area::of(Granule::Page, bytes)?;
    let rounds = |touch: &dyn Fn(u64)| {
        timed(|| {
            for offset in (0..pages).map(|page| page * PAGE_BYTES) {
                work.write(CACHE_LINE_BYTES);
                touch(offset);
            }
        })
        .1
    };
    // Before and after: the work takes up to ten times as long as the faults, so a processor that became faster would show.
    let before = rounds(&|_| {});
    let with = rounds(&|offset| area.write_part(offset, 1, PAGE_BYTES));
    let without = (before + rounds(&|_| {})) / 2;
    samples.note(operation, pages, with.saturating_sub(without), ModeSamples::default());
    Ok(())
}

/// Memory that the program accesses between two faults of huge pages. It is large enough that no cache contains
/// anything that the fault needs, including the host's page tables.
const FAR_BYTES: u64 = 64 << 20;
/// Huge pages touched with that much other work between them.
const FAR_PAGES: u64 = 4;

/// Times first touches of huge pages with very much other work between them.
pub(super) fn huge_touches_far_apart(samples: &mut Samples) -> Result<(), MeasureError> {
    let work = Area::of(Granule::Page, FAR_BYTES)?;
    warm_up(Granule::Huge, FAR_PAGES * HUGE_BYTES)?;
    let area = Area::of(Granule::Huge, FAR_PAGES * HUGE_BYTES)?;
    let (mut spent, mut modes) = (Duration::ZERO, ModeSamples::default());
    let mut touch_faults = 0;
    for offset in (0..FAR_PAGES).map(|page| page * HUGE_BYTES) {
        work.write(CACHE_LINE_BYTES);
        let before = faults();
        let (_, time, found) = samples.timed(|| area.write_part(offset, 1, HUGE_BYTES));
        area.write_part(offset, HUGE_BYTES, PAGE_BYTES);
        touch_faults += faults() - before;
        spent += time;
        modes.add(found);
    }
    if touch_faults == FAR_PAGES {
        samples.note(Operation::HugeFaultFar, FAR_PAGES, spent, modes);
    } else {
        samples.skip(Operation::HugeFaultFar, NO_HUGE_PAGES);
    }
    Ok(())
}

/// Times first touches of every footprint, in single pages and in huge pages.
pub(super) fn first_touches(samples: &mut Samples) -> Result<(), MeasureError> {
    for footprint in FOOTPRINTS {
        for (granule, operation) in [(Granule::Page, footprint.write_fault), (Granule::Huge, footprint.huge_fault)] {
            let number = footprint.bytes / granule.bytes();
            warm_up(granule, footprint.bytes)?;
            let area = Area::of(granule, footprint.bytes)?;
            let before = faults();
            let touch = || area.write(granule.bytes());
            // The last page of each granule must be present too, so writing to it must not fault.
            let is_whole = |()| {
                let last = granule.bytes() - PAGE_BYTES;
                area.write_part(last, footprint.bytes - last, granule.bytes());
                faults() - before == number
            };
            if !samples.time_if(operation, number, touch, is_whole) {
                samples.skip(operation, NO_HUGE_PAGES);
            }
        }
    }
    Ok(())
}
