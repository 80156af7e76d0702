//! What was done to a recording, seen from one image: marks to put in, and times whose records do not count.

use hksim_trace::resolve::RawOp;

use crate::clock::TickRate;
use crate::control::{Deed, Entry};
use crate::marks::MarkNames;

/// Name of the mark where recording stopped.
pub const STOPPED_MARK: &str = "recording stopped";
/// Name of the mark where recording began again.
pub const STARTED_MARK: &str = "recording started";

/// The log of a session in one image's time.
#[derive(Debug)]
pub struct Timeline {
    /// When, in nanoseconds since the image began, and what.
    deeds: Vec<(u64, Deed)>,
    next: usize,
    /// When that was; [`u64::MAX`] where nothing is left.
    next_ns: u64,
    /// Since when nothing counts.
    off_since_ns: Option<u64>,
    off_ns: u64,
}

impl Timeline {
    /// The log as seen from an image that began at `start_ticks`.
    pub fn new(entries: &[Entry], start_ticks: u64, rate: TickRate) -> Self {
        let (before, after): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(|entry| entry.ticks < start_ticks);
        let last = before.iter().rev().find(|entry| !matches!(entry.deed, Deed::Mark(_)));
        let is_on = last.is_none_or(|entry| entry.deed == Deed::Start);
        let deeds: Vec<(u64, Deed)> =
            after.iter().map(|entry| (rate.ns(entry.ticks - start_ticks), entry.deed.clone())).collect();
        let next_ns = deeds.first().map_or(u64::MAX, |deed| deed.0);
        Self { deeds, next: 0, next_ns, off_since_ns: (!is_on).then_some(0), off_ns: 0 }
    }

    /// The next mark due up to `time_ns`, with its time.
    pub fn mark_up_to(&mut self, time_ns: u64, names: &MarkNames) -> Option<(u64, RawOp)> {
        while let Some((at_ns, deed)) = self.deeds.get(self.next).filter(|(at_ns, _)| *at_ns <= time_ns) {
            self.next += 1;
            self.next_ns = self.deeds.get(self.next).map_or(u64::MAX, |deed| deed.0);
            let name = match deed {
                Deed::Mark(name) => name,
                Deed::Stop if self.off_since_ns.is_none() => {
                    self.off_since_ns = Some(*at_ns);
                    STOPPED_MARK
                }
                Deed::Start => {
                    self.off_ns += at_ns - self.off_since_ns.take().unwrap_or(*at_ns);
                    STARTED_MARK
                }
                Deed::Stop => continue,
                Deed::End(_) => {
                    self.off_since_ns = self.off_since_ns.or(Some(*at_ns));
                    continue;
                }
            };
            return Some((*at_ns, RawOp::Mark { name: names.number(name) }));
        }
        None
    }

    /// Whether anything was done up to `time_ns` that [`Timeline::mark_up_to`] has not looked at.
    #[inline]
    pub fn is_due(&self, time_ns: u64) -> bool {
        time_ns >= self.next_ns
    }

    /// Whether a record at the time reached so far counts. The beginnings and ends of threads always do.
    pub fn keeps(&self, op: &RawOp) -> bool {
        self.off_since_ns.is_none() || matches!(op, RawOp::ThreadStart | RawOp::ThreadExit)
    }

    /// Nanoseconds up to `end_ns` whose records do not count.
    pub fn off_ns(&self, end_ns: u64) -> u64 {
        self.off_ns + self.off_since_ns.map_or(0, |since| end_ns.saturating_sub(since))
    }
}
