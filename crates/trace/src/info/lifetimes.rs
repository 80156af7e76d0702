//! Lifetimes of objects, in time and in allocated bytes.

use super::builder::Live;
use super::log_histogram::{LogHistogram, LogQuantiles};
use serde::Serialize;

/// Lifetimes of freed objects. Objects live at the end are not included: see [`super::Info::live_objects_end`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lifetimes {
    /// Objects freed.
    pub freed: u64,
    /// Nanoseconds from allocation to free.
    pub time_ns: LogQuantiles,
    /// Bytes that the whole program requested between the allocation and the free: a measure of time for allocators.
    pub allocated_bytes: LogQuantiles,
    /// Objects freed before another object was allocated.
    pub freed_before_next_allocation: u64,
    /// Objects freed before 100 more objects were allocated.
    pub freed_within_100_allocations: u64,
}

#[derive(Default)]
pub(super) struct LifetimeTally {
    freed: u64,
    time_ns: LogHistogram,
    allocated_bytes: LogHistogram,
    freed_before_next_allocation: u64,
    freed_within_100_allocations: u64,
    /// Objects and bytes allocated so far.
    pub(super) allocations: u64,
    pub(super) bytes: u64,
}

impl LifetimeTally {
    pub(super) fn allocate(&mut self, bytes: u64) {
        self.allocations += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn free(&mut self, live: &Live, now_ns: u64) {
        let allocations = self.allocations - live.allocations;
        self.freed += 1;
        self.freed_before_next_allocation += u64::from(allocations == 0);
        self.freed_within_100_allocations += u64::from(allocations < 100);
        self.time_ns.add(now_ns - live.allocated_ns);
        self.allocated_bytes.add(self.bytes - live.bytes_before);
    }

    pub(super) fn finish(&self) -> Lifetimes {
        Lifetimes {
            freed: self.freed,
            time_ns: self.time_ns.quantiles(),
            allocated_bytes: self.allocated_bytes.quantiles(),
            freed_before_next_allocation: self.freed_before_next_allocation,
            freed_within_100_allocations: self.freed_within_100_allocations,
        }
    }
}
