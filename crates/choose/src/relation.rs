//! One measured amount relative to another, over several traces, with its interval.

use hksim_timing::{Estimate, median_with_interval};

/// How far a ratio of so few rounds that they have no range may be off.
const ERROR_OF_FEW_ROUNDS: f64 = 0.1;
/// Rounds from which their range stands for an interval that they do not have yet.
const ROUNDS_FOR_RANGE: usize = 3;

/// The median of values with its interval. Few values have no interval: their range is taken instead, unless they are so
/// few that it says nothing.
pub(crate) fn median_or_range(values: &[f64]) -> Option<Estimate> {
    let estimate = median_with_interval(values.iter().copied())?;
    if estimate.low.is_some() || values.len() < ROUNDS_FOR_RANGE {
        return Some(estimate);
    }
    let median = estimate.median;
    let (low, high) = values.iter().fold((median, median), |(low, high), &value| (low.min(value), high.max(value)));
    Some(Estimate { median, low: Some(low), high: Some(high) })
}

/// The median of ratios with its interval, or what stands for that if they are few.
pub(crate) fn estimate(ratios: &[f64]) -> Option<Estimate> {
    let estimate = median_or_range(ratios)?;
    let at = |factor: f64| Some(estimate.median * factor);
    match estimate.low {
        Some(_) => Some(estimate),
        None => Some(Estimate { low: at(1.0 - ERROR_OF_FEW_ROUNDS), high: at(1.0 + ERROR_OF_FEW_ROUNDS), ..estimate }),
    }
}

/// The sum of amounts whose errors are independent. It has an interval if both have.
pub(crate) fn sum(one: &Estimate, other: &Estimate) -> Estimate {
    let median = one.median + other.median;
    let ends = one.interval().zip(other.interval()).map(|((low, high), (other_low, other_high))| {
        let below = (one.median - low).hypot(other.median - other_low);
        let above = (high - one.median).hypot(other_high - other.median);
        (median - below, median + above)
    });
    Estimate { median, low: ends.map(|(low, _)| low), high: ends.map(|(_, high)| high) }
}

/// Seconds that a ratio of a time adds to it.
pub(crate) fn change(time: &Estimate, ratio: &Estimate) -> Estimate {
    let at = |ratio: f64| time.median * (ratio - 1.0);
    Estimate { median: at(ratio.median), low: ratio.low.map(at), high: ratio.high.map(at) }
}

/// A ratio without error.
pub(crate) fn exact(ratio: f64) -> Estimate {
    Estimate { median: ratio, low: Some(ratio), high: Some(ratio) }
}

/// One estimate divided by another, if they were measured apart.
pub(crate) fn quotient(one: &Estimate, other: &Estimate) -> Estimate {
    let ends = one.interval().zip(other.interval());
    Estimate {
        median: one.median / other.median,
        low: ends.map(|((low, _), (_, high))| low / high),
        high: ends.map(|((_, high), (low, _))| high / low),
    }
}

/// The weighted geometric mean of ratios on several traces. Their errors are independent. `None` without ratios, or if
/// one has no interval.
pub(crate) fn mean(ratios: &[(f64, Estimate)]) -> Option<Estimate> {
    let weights: f64 = ratios.iter().map(|(weight, _)| weight).sum();
    let (mut middle, mut below, mut above) = (0.0, 0.0, 0.0);
    for (weight, ratio) in ratios {
        let (low, high) = ratio.interval()?;
        let share = weight / weights;
        middle += share * ratio.median.ln();
        below += (share * (ratio.median / low).ln()).powi(2);
        above += (share * (high / ratio.median).ln()).powi(2);
    }
    let at = |distance: f64| (middle + distance).exp();
    (weights > 0.0).then(|| Estimate { median: at(0.0), low: Some(at(-below.sqrt())), high: Some(at(above.sqrt())) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one / other - 1.0).abs() < 1e-9
    }

    #[test]
    fn few_rounds_have_their_range_and_fewer_a_wide_interval() {
        assert_eq!(estimate(&[0.9, 1.0, 1.3]), Some(Estimate { median: 1.0, low: Some(0.9), high: Some(1.3) }));
        assert_eq!(estimate(&[2.0]), Some(Estimate { median: 2.0, low: Some(1.8), high: Some(2.2) }));
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn a_mean_over_traces_is_geometric_and_more_exact_than_each() {
        let half = Estimate { median: 0.5, low: Some(0.4), high: Some(0.625) };
        let twice = Estimate { median: 2.0, low: Some(1.6), high: Some(2.5) };
        let one = mean(&[(1.0, half), (1.0, twice)]).expect("a mean");
        assert!(near(one.median, 1.0), "{one:?}");
        let (low, high) = one.interval().expect("an interval");
        assert!(low > 0.8 && high < 1.25, "{one:?}");
        let weighted = mean(&[(2.0, half), (1.0, exact(1.0))]).expect("a mean");
        assert!(near(weighted.median, 0.5f64.powf(2.0 / 3.0)), "{weighted:?}");
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn a_sum_is_more_exact_than_the_sum_of_the_errors() {
        let interval = |median, low, high| Estimate { median, low: Some(low), high: Some(high) };
        let found = sum(&interval(2.0, -1.0, 6.0), &interval(-1.0, -5.0, 2.0));
        assert_eq!(found, interval(1.0, -4.0, 6.0));
        let unknown = Estimate { median: 1.0, low: None, high: None };
        assert_eq!(sum(&unknown, &unknown), Estimate { median: 2.0, ..unknown });
        assert_eq!(median_or_range(&[1.0, -2.0]), Some(Estimate { median: -0.5, ..unknown }), "too few for a range");
        assert_eq!(median_or_range(&[1.0, -2.0, 0.0]), Some(interval(0.0, -2.0, 1.0)));
    }

    #[test]
    fn what_was_measured_apart_has_both_errors() {
        let one = Estimate { median: 2.0, low: Some(1.0), high: Some(3.0) };
        let found = quotient(&one, &one);
        assert_eq!(found, Estimate { median: 1.0, low: Some(1.0 / 3.0), high: Some(3.0) });
    }
}
