//! First touches of memory of several sizes.
//!
//! What a fault costs depends on how much memory goes through it: few pages are given out again while they are still in
//! the cache, many are fetched from memory to be zeroed. Before each the same amount is touched and given back, as in the
//! runs that are judged by it.

use hksim_linux::PAGE_BYTES;
use hksim_linux::area::{Area, Granule, faults, timed, warm_up};
use hksim_linux::cpu_modes::Looks;

use super::MeasureError;
use super::pages::NO_HUGE_PAGES;
use super::samples::Samples;
use crate::profile::{FOOTPRINTS, Operation};

const CACHE_LINE_BYTES: u64 = 64;

/// What a program does between two faults that lie far apart: it goes through so much memory of its own.
const BETWEEN_BYTES: u64 = 1 << 20;
/// Pages that are touched so.
const APART_PAGES: u64 = 128;

/// First touches with much else between them: what they cost beyond the same work without them.
pub(super) fn touches_apart(samples: &mut Samples) -> Result<(), MeasureError> {
    let bytes = APART_PAGES * PAGE_BYTES;
    let work = Area::of(Granule::Page, BETWEEN_BYTES)?;
    work.write(CACHE_LINE_BYTES);
    warm_up(Granule::Page, bytes)?;
    let area = Area::of(Granule::Page, bytes)?;
    let rounds = |touch: &dyn Fn(u64)| {
        timed(|| {
            for offset in (0..APART_PAGES).map(|page| page * PAGE_BYTES) {
                work.write(CACHE_LINE_BYTES);
                touch(offset);
            }
        })
        .1
    };
    let with = rounds(&|offset| area.write_part(offset, 1, PAGE_BYTES));
    let without = rounds(&|_| {});
    samples.note(Operation::WriteFaultApart, APART_PAGES, with.saturating_sub(without), Looks::default());
    Ok(())
}

/// Every footprint, in single and in huge pages.
pub(super) fn first_touches(samples: &mut Samples) -> Result<(), MeasureError> {
    for footprint in FOOTPRINTS {
        for (granule, operation) in [(Granule::Page, footprint.write_fault), (Granule::Huge, footprint.huge_fault)] {
            let number = footprint.bytes / granule.bytes();
            warm_up(granule, footprint.bytes)?;
            let area = Area::of(granule, footprint.bytes)?;
            let before = faults();
            let touch = || area.write(granule.bytes());
            // Other pages of what should be huge pages are there, too.
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
