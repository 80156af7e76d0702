//! The points of a trace at which page states are sampled. Simulation and replay use the same points.

use hksim_trace::event::{Event, Op};

/// Number of sample points of a trace without marks, excluding its end.
const EVEN_POINTS: u64 = 16;
/// Maximum number of marks to sample. A trace with more marks gets evenly spaced points.
const MARKS_MAX: usize = 4096;

/// Evenly spaced points of a trace of `events` events, followed by its end. The points are ascending and above 0.
pub fn even_points(events: u64) -> Vec<u64> {
    let even = |k: u64| (u128::from(k) * u128::from(events) / u128::from(EVEN_POINTS + 1)) as u64;
    sorted((1..=EVEN_POINTS).map(even).collect(), events)
}

fn sorted(mut points: Vec<u64>, events: u64) -> Vec<u64> {
    points.push(events);
    points.dedup();
    points.retain(|&point| point > 0);
    points
}

/// Finds a trace's sample points during a first pass over it.
#[derive(Debug, Default)]
pub struct PointFinder {
    events: u64,
    marks: Vec<u64>,
}

impl PointFinder {
    /// Processes the next event.
    pub fn see(&mut self, event: &Event) {
        self.events += 1;
        if matches!(event.op, Op::Mark { .. }) && self.marks.len() <= MARKS_MAX {
            self.marks.push(self.events);
        }
    }

    /// Event counts after which memory is sampled: ascending, above 0. The last is the length of the trace.
    pub fn finish(self) -> Vec<u64> {
        if self.marks.is_empty() || self.marks.len() > MARKS_MAX {
            even_points(self.events)
        } else {
            sorted(self.marks, self.events)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_trace::event::ThreadId;

    fn points(ops: impl IntoIterator<Item = Op>) -> Vec<u64> {
        let mut finder = PointFinder::default();
        ops.into_iter().for_each(|op| finder.see(&Event::new(0, ThreadId(0), op)));
        finder.finish()
    }

    #[test]
    fn points_are_the_marks_and_the_end_or_evenly_spaced() {
        let (mark, other) = (Op::Mark { name: 0 }, Op::FreeNull);
        assert_eq!(points([other, mark, other, mark]), [2, 4]);
        assert_eq!(points(vec![other; 170]), (1..=17).map(|k| k * 10).collect::<Vec<u64>>());
        assert_eq!(points(vec![other; 3]), [1, 2, 3], "no point before the first event");
        assert_eq!(points(vec![mark; MARKS_MAX + 1]).len(), 17, "too many marks to sample");
        assert!(points([]).is_empty());
    }
}
