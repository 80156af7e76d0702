//! The timestamps of a log, and the time of a thread buffer's last event.

use crate::clock::TickRate;
use crate::encoding::NUMBER_SHIFT;

/// Latest time of an event; [`u64::MAX`] means that no event is left.
pub const TIME_NS_MAX: u64 = u64::MAX - 1;

/// Kind of a log's timestamps.
#[derive(Clone, Copy, Debug)]
pub enum Stamps {
    /// Readings of the time stamp counter.
    Ticks(TickRate),
    /// Event numbers from 1, common to all threads. The number of a resizing call is that of its end.
    Numbers,
}

/// The time reached in a thread buffer. It never decreases.
#[derive(Clone, Copy, Debug)]
pub struct BufferClock {
    stamps: Stamps,
    start_ticks: u64,
    time_ns: u64,
}

impl BufferClock {
    /// Time 0 of an image that began at `start_ticks`.
    pub fn new(stamps: Stamps, start_ticks: u64) -> Self {
        Self { stamps, start_ticks, time_ns: 0 }
    }

    /// Kind of the timestamps.
    pub fn stamps(&self) -> Stamps {
        self.stamps
    }

    /// Nanoseconds since the start of the image, or the number of the last event.
    #[inline(always)]
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// Advances to the timestamp of an event. Returns the time reached, which is the event's time.
    #[inline(always)]
    pub fn advance(&mut self, ticks: u64) -> u64 {
        self.advance_to(match self.stamps {
            Stamps::Ticks(rate) => rate.ns(ticks.saturating_sub(self.start_ticks)),
            Stamps::Numbers => ticks >> NUMBER_SHIFT,
        })
    }

    /// Advances to a time, and returns the time reached.
    #[inline(always)]
    pub fn advance_to(&mut self, time_ns: u64) -> u64 {
        self.time_ns = self.time_ns.max(time_ns).min(TIME_NS_MAX);
        self.time_ns
    }
}
