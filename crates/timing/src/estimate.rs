//! Medians with confidence intervals that assume no distribution.

use serde::{Deserialize, Serialize};

/// The level of the intervals before the stop rule. Rounds end when the intervals are narrow, and intervals that are
/// narrow by chance lie beside the true value more often: a level of 95 % would hold in 93 % of such runs. With 97 %
/// the interval at the end contains the true value in at least 95 % (`tests/coverage.rs`).
pub const CONFIDENCE: f64 = 0.97;

/// Values that an interval needs: the interval from the lowest to the highest of six values has a level of 96.9 %.
pub const ROUNDS_FOR_INTERVAL: u32 = 7;

/// A median and the interval that contains the true median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median of the values.
    pub median: f64,
    /// The lower end of the interval; null below [`ROUNDS_FOR_INTERVAL`] values.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

impl Estimate {
    /// Both ends of the interval.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high)
    }

    /// Half the length of the interval.
    pub fn half_width(&self) -> Option<f64> {
        self.interval().map(|(low, high)| (high - low) / 2.0)
    }

    /// Half the length of the interval, as a share of the median.
    pub fn precision(&self) -> Option<f64> {
        self.half_width().filter(|_| self.median > 0.0).map(|half| half / self.median)
    }

    /// Whether the interval contains a value; `None` without an interval.
    pub fn contains(&self, value: f64) -> Option<bool> {
        self.interval().map(|(low, high)| (low..=high).contains(&value))
    }
}

/// The median of values and its interval; `None` without values. The ends of the interval are values: how many values
/// are below the true median is a binomial variable, whatever their distribution is.
pub fn median_with_interval(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let median = f64::midpoint(values[last / 2], values[values.len() / 2]);
    let interval = outside(values.len()).map(|outside| (values[outside], values[last - outside]));
    Some(Estimate { median, low: interval.map(|(low, _)| low), high: interval.map(|(_, high)| high) })
}

/// How many of `values` sorted values lie outside the interval at each end. `None` if even the whole range does not
/// reach [`CONFIDENCE`].
fn outside(values: usize) -> Option<usize> {
    let (mut log_chance, mut below) = (-(values as f64) * 2f64.ln(), 0.0);
    let mut found = None;
    for fewest in 0..values.div_ceil(2) {
        // `below`: the chance that at most `fewest` values are below the true median.
        below += log_chance.exp();
        if 2.0 * below > 1.0 - CONFIDENCE {
            break;
        }
        found = Some(fewest);
        log_chance += ((values - fewest) as f64 / (fewest + 1) as f64).ln();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks from a table of the sign test (two-sided 3 %), computed with exact fractions.
    #[test]
    fn ends_are_the_ranks_of_the_exact_binomial() {
        let ranks = [(6, None), (7, Some(0)), (11, Some(1)), (20, Some(4)), (50, Some(16)), (100, Some(38))];
        for (values, rank) in ranks {
            assert_eq!(outside(values), rank, "{values} values: {:?}", level(values, outside(values)));
        }
        assert_eq!(outside(ROUNDS_FOR_INTERVAL as usize - 1), None);
        // Above 1074 values the chance of one side alone is below the smallest double.
        assert!(outside(4000).is_some_and(|rank| (1900..2000).contains(&rank)));
    }

    /// The level of the interval with this many values outside at each end, by counting subsets as integers.
    fn level(values: usize, outside: Option<usize>) -> f64 {
        let Some(outside) = outside else { return 1.0 };
        let mut row = vec![1f64];
        for _ in 0..values {
            let mut next = vec![1.0; row.len() + 1];
            (1..row.len()).for_each(|at| next[at] = row[at - 1] + row[at]);
            row = next;
        }
        1.0 - 2.0 * row[..=outside].iter().sum::<f64>() / row.iter().sum::<f64>()
    }

    #[test]
    fn no_wider_interval_is_needed_and_no_narrower_one_suffices() {
        for values in 7..200 {
            let rank = outside(values);
            assert!(level(values, rank) >= CONFIDENCE, "{values}");
            assert!(level(values, rank.map(|rank| rank + 1)) < CONFIDENCE, "{values}");
        }
    }

    #[test]
    fn medians_of_few_values_have_no_interval() {
        assert_eq!(median_with_interval([]), None);
        assert_eq!(median_with_interval([3.0]), Some(Estimate { median: 3.0, low: None, high: None }));
        assert_eq!(median_with_interval([4.0, 1.0]).map(|estimate| estimate.median), Some(2.5));
        let seven = median_with_interval([7.0, 1.0, 2.0, 6.0, 4.0, 5.0, 3.0]);
        assert_eq!(seven, Some(Estimate { median: 4.0, low: Some(1.0), high: Some(7.0) }));
    }
}
