//! What a probed call costs on this machine, measured on a function of this process.

use std::ffi::CString;
use std::hint::black_box;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use hksim_linux_probe::perf;
use hksim_linux_probe::ring::Ring;
use hksim_linux_probe::uprobe::{At, Source};

use super::probes::{entry_request, return_request};

/// Calls of a measurement.
const CALLS: u32 = 1000;
/// Measurements, of which the fastest counts.
const ROUNDS: u32 = 3;
/// Data bytes of the ring, which has no reader: enough for all samples.
const RING_BYTES: usize = 2 << 20;

/// The function that is probed.
#[inline(never)]
extern "C" fn probed(number: u64) -> u64 {
    black_box(number)
}

/// Nanoseconds that the probes of a call and its return add to it.
///
/// # Errors
/// The kernel permits no probe.
pub fn of_call_ns(source: Source) -> io::Result<f64> {
    let place = own_place().ok_or_else(|| io::Error::other("the code of hksim is in no file"))?;
    let (this_thread, place) = (0, (place.0.as_c_str(), place.1));
    let open = |at, request| source.open(place, at, this_thread, None, &request);
    let (entry, back) = (open(At::Instruction, entry_request())?, open(At::Return, return_request())?);
    let _ring = with_ring(&entry, &back);
    perf::enable(&entry);
    perf::enable(&back);
    let with_ns = time_ns();
    drop((entry, back));
    Ok((with_ns - time_ns()).max(0.0))
}

/// A ring for both events; without one, no sample would be written.
fn with_ring(entry: &OwnedFd, back: &OwnedFd) -> io::Result<Ring> {
    let ring = Ring::map(entry, RING_BYTES)?;
    perf::set_output(back, entry)?;
    Ok(ring)
}

/// Nanoseconds of a call.
fn time_ns() -> f64 {
    let round = || {
        let began = Instant::now();
        (0..u64::from(CALLS)).for_each(|number| {
            black_box(probed(number));
        });
        began.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// The file of [`probed`], and where it begins in it.
fn own_place() -> Option<(CString, u64)> {
    let address = probed as *const () as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let offset = maps.lines().find_map(|line| {
        // START-END MODE OFFSET DEVICE INODE NAME
        let mut fields = line.split(' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let offset = number(fields.nth(1)?)?;
        let (start, end) = (number(start)?, number(end)?);
        (start..end).contains(&address).then(|| address - start + offset)
    })?;
    Some((CString::from(c"/proc/self/exe"), offset))
}
