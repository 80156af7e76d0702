//! Times what a call on few pages takes besides its pages: the kernel invalidates translations one by one, and frees pages
//! together.

use std::time::Duration;

use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::area::{Area, timed};
use hksim_linux_probe::cpu_modes::ModeSamples;

use super::samples::Samples;
use crate::profile::{Cost, Operation};

/// Calls of one size in a round, of which the median counts.
const TIMES: usize = 15;
/// A call on so many pages invalidates all translations at once.
const MANY_PAGES: u64 = 64;
/// As many pages as are compared with [`MANY_PAGES`] for the time of a page. Their records stay in the nearest caches.
const MORE_PAGES: u64 = 512;
/// A call on so many pages invalidates their translations one by one.
const FEW_PAGES: u64 = 32;

/// Times calls on present pages of an area of single pages: at least [`MORE_PAGES`].
pub(super) fn costs(samples: &mut Samples, area: &Area) {
    // Marked before, so that no later call moves a page to another list.
    area.write_part(0, MORE_PAGES * PAGE_BYTES, PAGE_BYTES);
    area.advise_part(0, MORE_PAGES * PAGE_BYTES, libc::MADV_FREE);
    let free = |pages| call_ns(area, pages, libc::MADV_FREE);
    let page_ns = page_ns(free);
    let flush_ns = ((free(FEW_PAGES) - free(1)) / (FEW_PAGES - 1) as f64 - page_ns).max(0.0);
    note(samples, Operation::FlushPage, flush_ns);
    let drop = |pages| call_ns(area, pages, libc::MADV_DONTNEED);
    let dropped_ns = drop(1) - flush_ns - self::page_ns(drop);
    let nothing_ns = median((0..TIMES).map(|_| advise_ns(area, 1, libc::MADV_DONTNEED)));
    note(samples, Operation::DropCall, (dropped_ns - nothing_ns).max(0.0));
    area.write_part(0, MORE_PAGES * PAGE_BYTES, PAGE_BYTES);
}

/// The time of a page in calls that invalidate all translations.
fn page_ns(call_ns: impl Fn(u64) -> f64) -> f64 {
    (call_ns(MORE_PAGES) - call_ns(MANY_PAGES)) / (MORE_PAGES - MANY_PAGES) as f64
}

/// The time of a call on so many pages that were just written.
fn call_ns(area: &Area, pages: u64, advice: i32) -> f64 {
    median((0..TIMES).map(|_| {
        area.write_part(0, pages * PAGE_BYTES, PAGE_BYTES);
        advise_ns(area, pages, advice)
    }))
}

fn advise_ns(area: &Area, pages: u64, advice: i32) -> f64 {
    timed(|| area.advise_part(0, pages * PAGE_BYTES, advice)).1.as_nanos() as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    Cost::of(values.collect(), 1.0).map_or(f64::NAN, |cost| cost.median_ns)
}

fn note(samples: &mut Samples, operation: Operation, ns: f64) {
    samples.note(operation, 1, Duration::from_nanos(ns as u64), ModeSamples::default());
}
