//! The points at which the program forks children and at which they exit. Simulation and replay use the same points.

use serde::{Deserialize, Serialize};

/// The lifetime of an idle child, which shares the parent's memory until it exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkWindow {
    /// Number of events before the fork.
    pub from_event: u64,
    /// Number of events before the child's exit. If it is beyond the end of the trace, the child outlives the trace.
    pub until_event: u64,
}

/// A fork or exit at a point of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkStep {
    /// The program forks this child. Children are numbered from 0 in the order of their forks.
    Fork(u32),
    /// This child exits.
    Exit(u32),
}

/// The forks and exits of a trace, in order. Fork windows may overlap; several children are then alive.
#[derive(Clone, Debug, Default)]
pub struct ForkSchedule {
    steps: Vec<(u64, ForkStep)>,
    next: usize,
}

impl ForkSchedule {
    /// Creates a schedule from windows, which must be in the order of their forks. If one child exits and another is
    /// forked after the same event, the exit comes first.
    pub fn new(windows: &[ForkWindow]) -> ForkSchedule {
        let numbered = windows.iter().zip(0..);
        let steps = numbered.flat_map(|(&ForkWindow { from_event, until_event }, child)| {
            let exit_order = if until_event == from_event { 2 } else { 0 };
            [(from_event, 1, ForkStep::Fork(child)), (until_event, exit_order, ForkStep::Exit(child))]
        });
        let mut steps: Vec<_> = steps.collect();
        steps.sort_by_key(|&(event, order, _)| (event, order));
        ForkSchedule { steps: steps.into_iter().map(|(event, _, step)| (event, step)).collect(), next: 0 }
    }

    /// Number of events before the next step.
    pub fn next_event(&self) -> Option<u64> {
        self.steps.get(self.next).map(|&(event, _)| event)
    }

    /// Removes and returns the next step if it is due after `events` events.
    pub fn due(&mut self, events: u64) -> Option<ForkStep> {
        let &(_, step) = self.steps.get(self.next).filter(|&&(event, _)| event <= events)?;
        self.next += 1;
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(windows: &[(u64, u64)]) -> Vec<(u64, ForkStep)> {
        let windows: Vec<_> =
            windows.iter().map(|&(from_event, until_event)| ForkWindow { from_event, until_event }).collect();
        let mut schedule = ForkSchedule::new(&windows);
        let steps = (0..20)
            .flat_map(|event| std::iter::from_fn(|| schedule.due(event)).map(|step| (event, step)).collect::<Vec<_>>());
        steps.collect()
    }

    #[test]
    fn each_step_is_due_once_and_in_order() {
        let window = |from_event, until_event| ForkWindow { from_event, until_event };
        let mut schedule = ForkSchedule::new(&[window(3, 5), window(5, u64::MAX)]);
        assert_eq!((schedule.next_event(), schedule.due(2)), (Some(3), None));
        assert_eq!((schedule.due(3), schedule.due(3)), (Some(ForkStep::Fork(0)), None));
        let rest = [schedule.due(5), schedule.due(5), schedule.due(5)];
        assert_eq!(rest, [Some(ForkStep::Exit(0)), Some(ForkStep::Fork(1)), None]);
        assert_eq!((schedule.next_event(), schedule.due(100)), (Some(u64::MAX), None));
    }

    #[test]
    fn children_may_overlap_or_exit_immediately() {
        use ForkStep::{Exit, Fork};
        let expected = [(1, Fork(0)), (2, Fork(1)), (3, Exit(1)), (3, Fork(2)), (3, Exit(2)), (4, Exit(0))];
        assert_eq!(steps(&[(1, 4), (2, 3), (3, 3)]), expected);
    }
}
