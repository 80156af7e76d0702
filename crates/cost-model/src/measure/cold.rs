//! Times first touches of huge pages that the host of a virtual machine has to back with memory first.
//!
//! A host takes back memory that is free for some seconds (free page reporting), or never gave it. The first touch then
//! waits for the host: 3 to 5 ms instead of 0.1. Nothing in the virtual machine tells which memory that is, so each huge
//! page is timed on its own, as it is found and then again.

use std::time::Duration;

use hksim_linux_probe::area::{Area, Granule, HUGE_BYTES, faults, timed};
use hksim_linux_probe::cpu_modes::ModeSamples;

use super::MeasureError;
use super::pages::NO_HUGE_PAGES;
use super::samples::Samples;
use crate::profile::{Cost, Operation};

/// Huge pages that are touched: 256 MiB.
const PAGES: u64 = 128;
/// Huge pages without backing that make a cost.
const COLD_MIN: usize = 8;
/// A touch that takes longer than this many touches of backed memory waited for the host.
const COLD_FACTOR: u32 = 8;

/// Times huge pages as they are found, and again after each rest until enough of them had no backing.
pub(super) fn host_backing(samples: &mut Samples, rests: &[Duration]) -> Result<(), MeasureError> {
    let mut as_found = touches()?;
    // What was touched just now has backing.
    let warm = touches()?.iter().map(|time| time.as_nanos() as f64).collect();
    let warm = Cost::of(warm, 1.0).map_or(Duration::ZERO, |cost| Duration::from_nanos(cost.median_ns as u64));
    let mut rests = rests.iter();
    loop {
        if as_found.len() < COLD_MIN || warm.is_zero() {
            samples.skip(Operation::HostBacking, NO_HUGE_PAGES);
            return Ok(());
        }
        let cold: Vec<Duration> = as_found.into_iter().filter(|&time| time > warm * COLD_FACTOR).collect();
        if cold.len() >= COLD_MIN {
            cold.iter().for_each(|&time| samples.note(Operation::HostBacking, 1, time - warm, ModeSamples::default()));
            return Ok(());
        }
        let Some(&rest) = rests.next() else {
            samples.skip(
                Operation::HostBacking,
                format!("{} of {PAGES} huge pages had to be backed by a host, and {COLD_MIN} are needed", cold.len()),
            );
            return Ok(());
        };
        std::thread::sleep(rest);
        as_found = touches()?;
    }
}

/// The time of the first touch of each huge page that the kernel installs.
fn touches() -> Result<Vec<Duration>, MeasureError> {
    let area = Area::of(Granule::Huge, PAGES * HUGE_BYTES)?;
    let mut times = Vec::with_capacity(PAGES as usize);
    for offset in (0..PAGES).map(|page| page * HUGE_BYTES) {
        let time = timed(|| area.write_part(offset, 1, HUGE_BYTES)).1;
        // The last page is present, too, if the page is huge. Memory may be too fragmented for some.
        let before = faults();
        area.write_part(offset + HUGE_BYTES - 1, 1, 1);
        if faults() == before {
            times.push(time);
        }
    }
    Ok(times)
}
