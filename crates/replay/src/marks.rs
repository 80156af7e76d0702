//! Where in a trace the page sets are taken.

use hksim_trace::event::{Event, Op};

/// Points taken of a trace without marks, its end left out.
const EVEN_POINTS: u64 = 16;
/// Most marks of its own for which a trace gets page sets; with more it gets evenly spaced ones.
const MARKS_MAX: usize = 4096;

/// Counts a trace's marks as it is read the first time.
#[derive(Debug, Default)]
pub(crate) struct MarkFinder {
    events: u64,
    marks: Vec<u64>,
}

impl MarkFinder {
    pub(crate) fn see(&mut self, event: &Event) {
        self.events += 1;
        if matches!(event.op, Op::Mark { .. }) && self.marks.len() <= MARKS_MAX {
            self.marks.push(self.events);
        }
    }

    /// Numbers of events after which memory is looked at, ascending; the last is the whole trace.
    pub(crate) fn finish(self) -> Vec<u64> {
        let events = self.events;
        let mut points = if self.marks.is_empty() || self.marks.len() > MARKS_MAX {
            let even = |k: u64| (u128::from(k) * u128::from(events) / u128::from(EVEN_POINTS + 1)) as u64;
            (1..=EVEN_POINTS).map(even).collect()
        } else {
            self.marks
        };
        points.push(events);
        points.dedup();
        points.retain(|&point| point > 0);
        points
    }
}
