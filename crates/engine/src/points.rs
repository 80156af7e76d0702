//! Where in a trace the pages are looked at: the same points in both worlds.

use hksim_trace::event::{Event, Op};

/// Points taken of a trace without marks, its end left out.
const EVEN_POINTS: u64 = 16;
/// Most marks of its own for which a trace gets page sets; with more it gets evenly spaced ones.
const MARKS_MAX: usize = 4096;

/// Evenly spaced points of a trace of so many events, and its end: ascending, above 0.
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

/// Finds a trace's points as it is read the first time.
#[derive(Debug, Default)]
pub struct PointFinder {
    events: u64,
    marks: Vec<u64>,
}

impl PointFinder {
    /// Takes the next event.
    pub fn see(&mut self, event: &Event) {
        self.events += 1;
        if matches!(event.op, Op::Mark { .. }) && self.marks.len() <= MARKS_MAX {
            self.marks.push(self.events);
        }
    }

    /// Numbers of events after which memory is looked at, ascending, above 0; the last is the whole trace.
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
    fn marks_and_the_end_else_even_points() {
        let (mark, other) = (Op::Mark { name: 0 }, Op::FreeNull);
        assert_eq!(points([other, mark, other, mark]), [2, 4]);
        assert_eq!(points(vec![other; 170]), (1..=17).map(|k| k * 10).collect::<Vec<u64>>());
        assert_eq!(points(vec![other; 3]), [1, 2, 3], "no point before the first event");
        assert_eq!(points(vec![mark; MARKS_MAX + 1]).len(), 17, "more marks than are looked at");
        assert!(points([]).is_empty());
    }
}
