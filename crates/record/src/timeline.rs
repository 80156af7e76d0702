//! The control events of a recording, relative to the start of one image: marks and ends of children to insert, and
//! periods whose records do not count.

use hksim_trace::resolve::RawOp;

use crate::children::ChildEnd;
use crate::clock::TickRate;
use crate::control::{ControlEntry, ControlEvent};
use crate::marks::MarkNames;

/// Name of the mark where recording stopped.
pub const STOPPED_MARK: &str = "recording stopped";
/// Name of the mark where recording began again.
pub const STARTED_MARK: &str = "recording started";

/// An event to insert between the calls of an image.
#[derive(Debug)]
enum Due {
    /// A change of the recording, or a mark.
    ControlEvent(ControlEvent),
    /// The end of a child.
    ChildEnd { child_pid: u32 },
}

/// The control log of a session, relative to the start of one image.
#[derive(Debug)]
pub struct Timeline {
    start_ticks: u64,
    rate: TickRate,
    /// Number of entries of the control log read so far.
    known: usize,
    /// Number of ends of children read so far.
    known_ends: usize,
    /// Events to insert, with their times in nanoseconds since the image began.
    due: Vec<(u64, Due)>,
    next: usize,
    /// Time of the next entry of `due`; [`u64::MAX`] if none is left.
    next_ns: u64,
    /// Time at which recording stopped; `None` if it is not stopped.
    off_since_ns: Option<u64>,
    off_ns: u64,
    /// Whether recording has begun again since [`Timeline::take_gap`].
    gap: bool,
}

impl Timeline {
    /// The timeline of an image that began at `start_ticks`, empty so far.
    pub fn new(start_ticks: u64, rate: TickRate) -> Self {
        let (due, next, next_ns, known, known_ends) = (Vec::new(), 0, u64::MAX, 0, 0);
        Self { start_ticks, rate, known, known_ends, due, next, next_ns, off_since_ns: None, off_ns: 0, gap: false }
    }

    /// Adds new entries of the control log and new ends of children. Both lists only grow, in order of time.
    pub fn extend(&mut self, control_log: &[ControlEntry], ends: &[ChildEnd]) {
        let first_new = self.due.len();
        self.extend_control_log(control_log);
        for end in ends.get(self.known_ends..).unwrap_or_default() {
            let at_ns = self.rate.ns(end.ticks.saturating_sub(self.start_ticks));
            self.due.push((at_ns, Due::ChildEnd { child_pid: end.child_pid }));
        }
        self.known_ends = self.known_ends.max(ends.len());
        if let Some(new) = self.due.get_mut(first_new..) {
            new.sort_by_key(|due| due.0);
        }
        self.next_ns = self.due.get(self.next).map_or(u64::MAX, |event| event.0);
    }

    fn extend_control_log(&mut self, control_log: &[ControlEntry]) {
        for entry in control_log.get(self.known..).unwrap_or_default() {
            match (entry.ticks.checked_sub(self.start_ticks), &entry.event) {
                (Some(ticks), event) => self.due.push((self.rate.ns(ticks), Due::ControlEvent(event.clone()))),
                (None, ControlEvent::Mark(_)) => {}
                (None, ControlEvent::Start) => self.off_since_ns = None,
                (None, ControlEvent::Stop | ControlEvent::End(_)) => self.off_since_ns = Some(0),
            }
        }
        self.known = self.known.max(control_log.len());
    }

    /// The next mark or end of a child due up to `time_ns`, with its time.
    pub fn mark_up_to(&mut self, time_ns: u64, names: &MarkNames) -> Option<(u64, RawOp)> {
        while let Some((at_ns, event)) = self.due.get(self.next).filter(|(at_ns, _)| *at_ns <= time_ns) {
            self.next += 1;
            self.next_ns = self.due.get(self.next).map_or(u64::MAX, |event| event.0);
            let event = match event {
                &Due::ChildEnd { child_pid } => return Some((*at_ns, RawOp::ForkEnd { child_pid, outlives: false })),
                Due::ControlEvent(event) => event,
            };
            let name = match event {
                ControlEvent::Mark(name) => name,
                ControlEvent::Stop if self.off_since_ns.is_none() => {
                    self.off_since_ns = Some(*at_ns);
                    STOPPED_MARK
                }
                ControlEvent::Start => {
                    self.gap = self.off_since_ns.is_some();
                    self.off_ns += at_ns - self.off_since_ns.take().unwrap_or(*at_ns);
                    STARTED_MARK
                }
                ControlEvent::Stop => continue,
                ControlEvent::End(_) => {
                    self.off_since_ns = self.off_since_ns.or(Some(*at_ns));
                    continue;
                }
            };
            return Some((*at_ns, RawOp::Mark { name: names.number(name) }));
        }
        None
    }

    /// Whether recording has been resumed since the last call of this function, so that events are missing.
    pub fn take_gap(&mut self) -> bool {
        std::mem::take(&mut self.gap)
    }

    /// Whether [`Timeline::mark_up_to`] has an event up to `time_ns`.
    #[inline]
    pub fn is_due(&self, time_ns: u64) -> bool {
        time_ns >= self.next_ns
    }

    /// Whether a record at the present time counts. Starts and ends of threads always count. Changes of memory policies
    /// always count too, because their effect lasts.
    pub fn keeps(&self, op: &RawOp) -> bool {
        self.off_since_ns.is_none() || matches!(op, RawOp::ThreadStart | RawOp::ThreadExit | RawOp::MemoryPolicy { .. })
    }

    /// Whether recording is stopped at the present time.
    pub fn is_off(&self) -> bool {
        self.off_since_ns.is_some()
    }

    /// Nanoseconds before `end_ns` in which records do not count.
    pub fn off_ns(&self, end_ns: u64) -> u64 {
        self.off_ns + self.off_since_ns.map_or(0, |since| end_ns.saturating_sub(since))
    }
}
