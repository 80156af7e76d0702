//! When the rounds end.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::estimate::ROUNDS_FOR_INTERVAL;

/// The maximum number of rounds.
pub const ROUNDS_MAX: u32 = 1000;

/// The first number of rounds after which the intervals may end the rounds.
const FIRST_LOOK: u32 = 11;

/// How exact the ratios shall be, and what may be spent on that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// The sufficient precision: half the length of a ratio's interval, as a share of the ratio.
    pub precision: f64,
    /// No round starts after this time, unless there are fewer than `rounds_min`.
    pub time_max: Duration,
    /// Rounds that run however long they take, unless `rounds_max` is less; at least one runs.
    pub rounds_min: u32,
    /// Maximum number of counted rounds.
    pub rounds_max: u32,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { precision: 0.01, time_max: Duration::from_secs(60), rounds_min: 1, rounds_max: ROUNDS_MAX }
    }
}

/// Why the rounds ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The ratios are precise enough.
    Precise,
    /// The time is spent.
    Time,
    /// The rounds are done.
    Rounds,
    /// No subject is left, or the first failed.
    Failed,
}

impl Effort {
    /// The same effort, but with as many rounds as an interval needs, even if they take longer than the time.
    #[must_use]
    pub fn with_interval(self) -> Effort {
        Effort { rounds_min: ROUNDS_FOR_INTERVAL, ..self }
    }

    /// Whether to stop after this many rounds and this time. `precision` is computed only if the intervals are looked
    /// at: after 11, 14, 18, 23, ... rounds. More looks would each be a chance to stop at an interval that is narrow by
    /// chance.
    pub fn ended(&self, rounds: u32, spent: Duration, precision: impl FnOnce() -> Option<f64>) -> Option<Ended> {
        if is_look(rounds) && precision().is_some_and(|precision| precision <= self.precision) {
            return Some(Ended::Precise);
        }
        if rounds >= self.rounds_max.min(ROUNDS_MAX) {
            return Some(Ended::Rounds);
        }
        (spent >= self.time_max && rounds >= self.rounds_min).then_some(Ended::Time)
    }
}

/// Each look follows the previous one after a quarter more rounds.
fn is_look(rounds: u32) -> bool {
    let mut look = FIRST_LOOK;
    while look < rounds {
        look += look.div_ceil(4);
    }
    look == rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_looked_at_after_a_quarter_more_rounds() {
        let looks: Vec<u32> = (0..60).filter(|&rounds| is_look(rounds)).collect();
        assert_eq!(looks, [11, 14, 18, 23, 29, 37, 47, 59]);
    }

    #[test]
    fn what_ends_the_rounds_is_said() {
        let effort = Effort { precision: 0.01, time_max: Duration::from_secs(60), rounds_max: 20, ..Effort::default() };
        let ended = |rounds, seconds, precision| effort.ended(rounds, Duration::from_secs(seconds), || precision);
        assert_eq!(ended(11, 5, Some(0.01)), Some(Ended::Precise));
        assert_eq!(ended(11, 5, Some(0.02)), None);
        assert_eq!(ended(12, 5, Some(0.001)), None, "not a look");
        assert_eq!(ended(12, 60, None), Some(Ended::Time));
        assert_eq!(ended(20, 5, None), Some(Ended::Rounds));
    }

    #[test]
    fn a_short_time_does_not_prevent_an_interval_but_few_rounds_do() {
        let ended = |effort: Effort, rounds| effort.with_interval().ended(rounds, Duration::from_secs(60), || None);
        let short = Effort { time_max: Duration::from_secs(1), ..Effort::default() };
        assert_eq!([1, 6, 7].map(|rounds| ended(short, rounds)), [None, None, Some(Ended::Time)]);
        let few = Effort { rounds_max: 3, ..short };
        assert_eq!([2, 3].map(|rounds| ended(few, rounds)), [None, Some(Ended::Rounds)]);
    }
}
