//! Sorts nearly sorted events by timestamp.

use crate::resolve::RawEvent;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Maximum number of events in the window. A line may be this number of positions away from its sorted position.
const HELD_MAX: usize = 1 << 16;

/// A window of events. It returns the event with the smallest timestamp first, and equal timestamps in input order.
#[derive(Default)]
pub(super) struct Reorder {
    held: BinaryHeap<Reverse<Held>>,
    taken: u64,
}

struct Held {
    key: (u64, u64),
    raw: RawEvent,
}

impl Reorder {
    /// Takes an event. Returns the earliest one if the window is full.
    pub(super) fn push(&mut self, raw: RawEvent) -> Option<RawEvent> {
        self.held.push(Reverse(Held { key: (raw.time_ns, self.taken), raw }));
        self.taken += 1;
        if self.held.len() > HELD_MAX { self.pop() } else { None }
    }

    /// The earliest event in the window.
    pub(super) fn pop(&mut self) -> Option<RawEvent> {
        self.held.pop().map(|Reverse(held)| held.raw)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}
