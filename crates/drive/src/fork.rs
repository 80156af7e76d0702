//! Children that a replayed program forks, for a while: the same moments in both worlds.

use serde::{Deserialize, Serialize};

/// A child that does nothing: it shares the parent's memory until it exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkWindow {
    /// Events before the fork.
    pub from_event: u64,
    /// Events before the child's exit. At the end of the trace it lives on.
    pub until_event: u64,
}

/// What is due at a point of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The program forks.
    Fork,
    /// The child exits.
    Exit,
}

/// Windows in order, none beginning before the one before it has ended.
#[derive(Clone, Debug, Default)]
pub struct ForkSchedule {
    steps: Vec<(u64, Step)>,
    next: usize,
}

impl ForkSchedule {
    /// A schedule of windows in order.
    pub fn new(windows: &[ForkWindow]) -> ForkSchedule {
        let steps =
            windows.iter().flat_map(|window| [(window.from_event, Step::Fork), (window.until_event, Step::Exit)]);
        ForkSchedule { steps: steps.collect(), next: 0 }
    }

    /// Events before the next step.
    pub fn next_event(&self) -> Option<u64> {
        self.steps.get(self.next).map(|&(event, _)| event)
    }

    /// The next step that is due after so many events.
    pub fn due(&mut self, events: u64) -> Option<Step> {
        let &(_, step) = self.steps.get(self.next).filter(|&&(event, _)| event <= events)?;
        self.next += 1;
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_in_order_and_once() {
        let window = |from_event, until_event| ForkWindow { from_event, until_event };
        let mut schedule = ForkSchedule::new(&[window(3, 5), window(5, 9)]);
        assert_eq!((schedule.next_event(), schedule.due(2)), (Some(3), None));
        assert_eq!((schedule.due(3), schedule.due(3)), (Some(Step::Fork), None));
        assert_eq!([schedule.due(5), schedule.due(5), schedule.due(5)], [Some(Step::Exit), Some(Step::Fork), None]);
        assert_eq!(
            (schedule.next_event(), schedule.due(100), schedule.next_event()),
            (Some(9), Some(Step::Exit), None)
        );
    }
}
