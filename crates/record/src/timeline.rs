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
    start_ticks: u64,
    rate: TickRate,
    /// Entries of the log taken.
    known: usize,
    /// When, in nanoseconds since the image began, and what.
    deeds: Vec<(u64, Deed)>,
    next: usize,
    /// When that was; [`u64::MAX`] where nothing is left.
    next_ns: u64,
    /// Since when nothing counts.
    off_since_ns: Option<u64>,
    off_ns: u64,
    /// Whether recording has begun again since [`Timeline::take_gap`].
    gap: bool,
}

impl Timeline {
    /// That of an image that began at `start_ticks`, with nothing done so far.
    pub fn new(start_ticks: u64, rate: TickRate) -> Self {
        let (deeds, next, next_ns, known) = (Vec::new(), 0, u64::MAX, 0);
        Self { start_ticks, rate, known, deeds, next, next_ns, off_since_ns: None, off_ns: 0, gap: false }
    }

    /// Takes the log as it is now; it only grows.
    pub fn extend(&mut self, log: &[Entry]) {
        for entry in log.get(self.known..).unwrap_or_default() {
            match (entry.ticks.checked_sub(self.start_ticks), &entry.deed) {
                (Some(ticks), deed) => self.deeds.push((self.rate.ns(ticks), deed.clone())),
                (None, Deed::Mark(_)) => {}
                (None, Deed::Start) => self.off_since_ns = None,
                (None, Deed::Stop | Deed::End(_)) => self.off_since_ns = Some(0),
            }
        }
        self.known = self.known.max(log.len());
        self.next_ns = self.deeds.get(self.next).map_or(u64::MAX, |deed| deed.0);
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
                    self.gap = self.off_since_ns.is_some();
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

    /// Whether recording has begun again since it was asked last: what happened in between is missing.
    pub fn take_gap(&mut self) -> bool {
        std::mem::take(&mut self.gap)
    }

    /// Whether anything was done up to `time_ns` that [`Timeline::mark_up_to`] has not looked at.
    #[inline]
    pub fn is_due(&self, time_ns: u64) -> bool {
        time_ns >= self.next_ns
    }

    /// Whether a record at the time reached so far counts. The beginnings and ends of threads always do, and changes of memory
    /// policies, which last.
    pub fn keeps(&self, op: &RawOp) -> bool {
        self.off_since_ns.is_none() || matches!(op, RawOp::ThreadStart | RawOp::ThreadExit | RawOp::MemoryPolicy { .. })
    }

    /// Whether recording is stopped at the time reached so far.
    pub fn is_off(&self) -> bool {
        self.off_since_ns.is_some()
    }

    /// Nanoseconds up to `end_ns` whose records do not count.
    pub fn off_ns(&self, end_ns: u64) -> u64 {
        self.off_ns + self.off_since_ns.map_or(0, |since| end_ns.saturating_sub(since))
    }
}
