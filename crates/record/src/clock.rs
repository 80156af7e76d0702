//! Converts the time stamp counter to nanoseconds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One moment, read on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPair {
    /// Time stamp counter.
    pub ticks: u64,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub ns: u64,
}

impl ClockPair {
    /// The present moment. The pair is read several times; the reading that took the least time is used.
    #[must_use]
    pub fn now() -> Self {
        let mut best = (u64::MAX, Self { ticks: 0, ns: 0 });
        for _ in 0..16 {
            let before = ticks();
            let ns = monotonic_ns();
            let width = ticks().wrapping_sub(before);
            if width < best.0 {
                best = (width, Self { ticks: before.wrapping_add(width / 2), ns });
            }
        }
        best.1
    }
}

/// The rate of the time stamp counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TickRate {
    /// Nanoseconds per tick, in units of 2^-32.
    scaled: u64,
}

impl TickRate {
    /// The rate between two moments; `None` if they are not in order.
    #[must_use]
    pub fn between(start: ClockPair, end: ClockPair) -> Option<Self> {
        let ticks = end.ticks.checked_sub(start.ticks).filter(|&ticks| ticks > 0)?;
        let ns = end.ns.checked_sub(start.ns).filter(|&ns| ns > 0)?;
        let scaled = u64::try_from((u128::from(ns) << 32) / u128::from(ticks)).ok()?;
        Some(Self { scaled })
    }

    /// Converts nanoseconds to ticks.
    #[must_use]
    pub fn ticks(self, ns: u64) -> u64 {
        u64::try_from((u128::from(ns) << 32) / u128::from(self.scaled.max(1))).unwrap_or(u64::MAX)
    }

    /// Converts ticks to nanoseconds.
    #[must_use]
    pub fn ns(self, ticks: u64) -> u64 {
        u64::try_from((u128::from(ticks) * u128::from(self.scaled)) >> 32).unwrap_or(u64::MAX)
    }
}

/// Two moments far enough apart to determine the rate to about 10 parts per million.
#[must_use]
pub fn calibrate() -> (ClockPair, ClockPair) {
    let start = ClockPair::now();
    std::thread::sleep(Duration::from_millis(5));
    (start, ClockPair::now())
}

pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out-argument is valid; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn ticks() -> u64 {
    // SAFETY: rdtsc has no precondition on x86_64 Linux.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::{ClockPair, TickRate};

    #[test]
    fn rates_are_exact_to_a_part_per_billion() {
        let start = ClockPair { ticks: 1_000, ns: 5_000 };
        let end = ClockPair { ticks: 1_000 + 2_600_000_000, ns: 5_000 + 1_000_000_000 };
        let rate = TickRate::between(start, end).expect("in order");
        let hour = rate.ns(2_600_000_000 * 3600);
        assert!(hour.abs_diff(3_600_000_000_000) < 3600, "{hour}");
    }

    #[test]
    fn unordered_moments_have_no_rate() {
        let (early, late) = (ClockPair { ticks: 1, ns: 1 }, ClockPair { ticks: 2, ns: 2 });
        assert_eq!(TickRate::between(late, early), None);
        assert_eq!(TickRate::between(early, early), None);
    }
}
