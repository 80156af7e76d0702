//! The spread of a figure over several runs.

use serde::{Deserialize, Serialize};

/// Five quantiles of a figure. Each is the value of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread<T> {
    /// The median; for an even number of runs, the lower of the two middle values.
    pub median: T,
    /// A quarter of the runs are at or below it.
    pub quartile_low: T,
    /// A quarter of the runs are at or above it.
    pub quartile_high: T,
    /// The lowest.
    pub min: T,
    /// The highest.
    pub max: T,
}

impl<T: Copy + PartialOrd> Spread<T> {
    /// The spread over all runs; `None` if a run lacks the figure, or without runs.
    pub fn of(figures: impl IntoIterator<Item = Option<T>>) -> Option<Spread<T>> {
        let mut figures: Vec<T> = figures.into_iter().collect::<Option<_>>()?;
        figures.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        let last = figures.len().checked_sub(1)?;
        Some(Spread {
            median: figures[last / 2],
            quartile_low: figures[last / 4],
            quartile_high: figures[last - last / 4],
            min: figures[0],
            max: figures[last],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_that_of_a_run() {
        let spread =
            Spread::of([5, 1, 4, 2, 3].map(Some)).map(|s| (s.min, s.quartile_low, s.median, s.quartile_high, s.max));
        assert_eq!(spread, Some((1, 2, 3, 4, 5)));
        let even = Spread::of([4.0, 1.0, 3.0, 2.0].map(Some)).map(|s| (s.quartile_low, s.median, s.quartile_high));
        assert_eq!(even, Some((1.0, 2.0, 4.0)));
        assert_eq!(Spread::of([Some(1), None]), None);
        assert_eq!(Spread::of([None::<u64>; 0]), None);
        assert_eq!(Spread::of([Some(7)]).map(|s| (s.min, s.median, s.max)), Some((7, 7, 7)));
    }
}
