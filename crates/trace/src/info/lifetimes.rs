//! How long objects live, in time and in allocation.

use super::log_histogram::{LogHistogram, LogQuantiles};
use super::tally::Live;
use serde::Serialize;

/// Lifetimes of the objects that were freed. Those still live at the end are not among them: see
/// [`super::Info::live_objects_end`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lifetimes {
    /// Objects freed.
    pub freed: u64,
    /// Nanoseconds from birth to death.
    pub time_ns: LogQuantiles,
    /// Requested bytes allocated between birth and death, by the whole program: what an allocator sees of time.
    pub allocated_bytes: LogQuantiles,
    /// Objects that were the last one allocated when they were freed.
    pub freed_at_once: u64,
    /// Objects freed before 100 more were allocated.
    pub freed_within_100: u64,
}

#[derive(Default)]
pub(super) struct LifetimeTally {
    freed: u64,
    time_ns: LogHistogram,
    allocated_bytes: LogHistogram,
    freed_at_once: u64,
    freed_within_100: u64,
    /// Objects and bytes allocated so far.
    pub(super) births: u64,
    pub(super) bytes: u64,
}

impl LifetimeTally {
    pub(super) fn bear(&mut self, bytes: u64) {
        self.births += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn bury(&mut self, live: &Live, now_ns: u64) {
        let births = self.births - live.births;
        self.freed += 1;
        self.freed_at_once += u64::from(births == 0);
        self.freed_within_100 += u64::from(births < 100);
        self.time_ns.add(now_ns - live.born_ns);
        self.allocated_bytes.add(self.bytes - live.bytes_before);
    }

    pub(super) fn finish(&self) -> Lifetimes {
        Lifetimes {
            freed: self.freed,
            time_ns: self.time_ns.quantiles(),
            allocated_bytes: self.allocated_bytes.quantiles(),
            freed_at_once: self.freed_at_once,
            freed_within_100: self.freed_within_100,
        }
    }
}
