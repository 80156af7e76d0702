//! Computes quantiles of any number of values in constant memory.

use serde::Serialize;

/// Quantiles from a histogram of the values' five highest bits. Each is the largest value of its bin: at most 1/16
/// above the true quantile, and exact below 32. All are 0 if there are no values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogQuantiles {
    /// 10 %.
    pub p10: u64,
    /// Median.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// Largest, exact.
    pub max: u64,
}

const BINS_PER_OCTAVE_LOG2: u32 = 4;
const BINS: usize = (64 - BINS_PER_OCTAVE_LOG2 as usize + 1) << BINS_PER_OCTAVE_LOG2;

/// Counts by value, with 16 bins per power of two.
pub(super) struct LogHistogram {
    bins: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for LogHistogram {
    fn default() -> Self {
        LogHistogram { bins: vec![0; BINS], total: 0, max: 0 }
    }
}

impl LogHistogram {
    pub(super) fn add(&mut self, value: u64) {
        self.bins[bin(value)] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    pub(super) fn quantiles(&self) -> LogQuantiles {
        let [p10, p50, p90, p99] = [10, 50, 90, 99].map(|percent| self.quantile(percent));
        LogQuantiles { p10, p50, p90, p99, max: self.max }
    }

    fn quantile(&self, percent: u128) -> u64 {
        let rank = (u128::from(self.total) * percent).div_ceil(100) as u64;
        let mut seen = 0;
        let reached = self.bins.iter().position(|&count| {
            seen += count;
            seen >= rank && seen > 0
        });
        reached.map_or(0, |bin| last_of(bin).min(self.max))
    }
}

/// The bin of a value, given by its octave (power of two) and the four bits below its highest bit.
fn bin(value: u64) -> usize {
    let octave = (64 - value.leading_zeros()).saturating_sub(BINS_PER_OCTAVE_LOG2 + 1);
    ((octave as usize) << BINS_PER_OCTAVE_LOG2) + (value >> octave) as usize
}

/// The largest value of a bin.
fn last_of(bin: usize) -> u64 {
    let octave = (bin >> BINS_PER_OCTAVE_LOG2).saturating_sub(1);
    let leading = (bin - (octave << BINS_PER_OCTAVE_LOG2)) as u128;
    u64::try_from(((leading + 1) << octave) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_exactly_one_bin() {
        for value in (0..100_000).chain((0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, u64::MAX >> bit])) {
            let bin = bin(value);
            assert!(bin < BINS && value <= last_of(bin), "{value}");
            assert!(bin == 0 || value > last_of(bin - 1), "{value}");
            assert!(last_of(bin) - value <= value / 16, "{value}");
        }
    }
}
