//! What was done to a recording, seen from one image: marks and ends of children to put in, and times whose records do not count.

use hksim_trace::resolve::RawOp;

use crate::children::ChildEnd;
use crate::clock::TickRate;
use crate::control::{Deed, Entry};
use crate::marks::MarkNames;

/// Name of the mark where recording stopped.
pub const STOPPED_MARK: &str = "recording stopped";
/// Name of the mark where recording began again.
pub const STARTED_MARK: &str = "recording started";

/// What is to be put between the events of an image.
#[derive(Debug)]
enum Due {
    /// Something done to the recording.
    Deed(Deed),
    /// A child has ended.
    ChildEnd { child_pid: u32 },
}

/// The log of a session in one image's time.
#[derive(Debug)]
pub struct Timeline {
    start_ticks: u64,
    rate: TickRate,
    /// Entries of the log taken.
    known: usize,
    /// Ends of children taken.
    known_ends: usize,
    /// When, in nanoseconds since the image began, and what.
    deeds: Vec<(u64, Due)>,
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
        let (deeds, next, next_ns, known, known_ends) = (Vec::new(), 0, u64::MAX, 0, 0);
        Self { start_ticks, rate, known, known_ends, deeds, next, next_ns, off_since_ns: None, off_ns: 0, gap: false }
    }

    /// Takes the log and the ends of the image's children as they are now; both only grow, and what comes later is later.
    pub fn extend(&mut self, log: &[Entry], ends: &[ChildEnd]) {
        let first_new = self.deeds.len();
        self.extend_log(log);
        for end in ends.get(self.known_ends..).unwrap_or_default() {
            let at_ns = self.rate.ns(end.ticks.saturating_sub(self.start_ticks));
            self.deeds.push((at_ns, Due::ChildEnd { child_pid: end.child_pid }));
        }
        self.known_ends = self.known_ends.max(ends.len());
        if let Some(new) = self.deeds.get_mut(first_new..) {
            new.sort_by_key(|due| due.0);
        }
        self.next_ns = self.deeds.get(self.next).map_or(u64::MAX, |deed| deed.0);
    }

    fn extend_log(&mut self, log: &[Entry]) {
        for entry in log.get(self.known..).unwrap_or_default() {
            match (entry.ticks.checked_sub(self.start_ticks), &entry.deed) {
                (Some(ticks), deed) => self.deeds.push((self.rate.ns(ticks), Due::Deed(deed.clone()))),
                (None, Deed::Mark(_)) => {}
                (None, Deed::Start) => self.off_since_ns = None,
                (None, Deed::Stop | Deed::End(_)) => self.off_since_ns = Some(0),
            }
        }
        self.known = self.known.max(log.len());
    }

    /// The next mark or end of a child due up to `time_ns`, with its time.
    pub fn mark_up_to(&mut self, time_ns: u64, names: &MarkNames) -> Option<(u64, RawOp)> {
        while let Some((at_ns, deed)) = self.deeds.get(self.next).filter(|(at_ns, _)| *at_ns <= time_ns) {
            self.next += 1;
            self.next_ns = self.deeds.get(self.next).map_or(u64::MAX, |deed| deed.0);
            let deed = match deed {
                &Due::ChildEnd { child_pid } => return Some((*at_ns, RawOp::ForkEnd { child_pid, outlives: false })),
                Due::Deed(deed) => deed,
            };
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
