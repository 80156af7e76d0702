//! Whether a variant is faster than the first one.

use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;

/// The judgement of a ratio of processor times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It takes less time than the first.
    Faster,
    /// It takes more.
    Slower,
    /// The interval contains 1, or the difference is below the method's own error.
    Tie,
}

impl Verdict {
    /// The verdict on a ratio. `same_again` is the ratio of the first variant to itself. `None` if one of them has no
    /// interval.
    pub fn of(ratio: &Estimate, same_again: &Estimate) -> Option<Verdict> {
        let own_error = same_again.half_width()?;
        let is_tie = ratio.contains(1.0)? || (ratio.median - 1.0).abs() < own_error;
        Some(match () {
            () if is_tie => Verdict::Tie,
            () if ratio.median < 1.0 => Verdict::Faster,
            () => Verdict::Slower,
        })
    }

    /// The word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Tie => "tie",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_method_cannot_tell_apart_is_a_tie() {
        let interval = |median, low, high| Estimate { median, low: Some(low), high: Some(high) };
        let same_again = interval(1.0, 0.98, 1.02);
        let verdict = |ratio| Verdict::of(&ratio, &same_again);
        assert_eq!(verdict(interval(1.10, 1.05, 1.15)), Some(Verdict::Slower));
        assert_eq!(verdict(interval(0.90, 0.85, 0.95)), Some(Verdict::Faster));
        assert_eq!(verdict(interval(1.10, 0.99, 1.15)), Some(Verdict::Tie), "the interval contains 1");
        assert_eq!(verdict(interval(1.015, 1.01, 1.016)), Some(Verdict::Tie), "below the method's own error");
        assert_eq!(verdict(Estimate { median: 2.0, low: None, high: None }), None);
    }
}
