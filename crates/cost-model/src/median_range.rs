//! A range of times around a median.

use std::ops::Add;

use serde::{Deserialize, Serialize};

use crate::profile::Cost;

/// A range with its median. The field that has it names the unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MedianRange {
    /// With the lower quartiles of the costs.
    pub low: f64,
    /// With their medians.
    pub median: f64,
    /// With their upper quartiles.
    pub high: f64,
}

impl MedianRange {
    /// The range of what `of` makes of the quartiles and the median of costs.
    pub fn each(of: impl Fn(fn(&Cost) -> f64) -> f64) -> MedianRange {
        MedianRange { low: of(|cost| cost.low_ns), median: of(|cost| cost.median_ns), high: of(|cost| cost.high_ns) }
    }

    /// All three times a number.
    #[must_use]
    pub fn times(self, factor: f64) -> MedianRange {
        MedianRange { low: self.low * factor, median: self.median * factor, high: self.high * factor }
    }

    /// The range, wider by a share of each end.
    #[must_use]
    pub fn widened(self, share: f64) -> MedianRange {
        MedianRange { low: self.low * (1.0 - share), median: self.median, high: self.high * (1.0 + share) }
    }
}

impl Add for MedianRange {
    type Output = MedianRange;

    fn add(self, other: MedianRange) -> MedianRange {
        MedianRange { low: self.low + other.low, median: self.median + other.median, high: self.high + other.high }
    }
}
