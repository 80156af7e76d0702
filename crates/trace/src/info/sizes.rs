//! Exact quantiles of request sizes.

use serde::Serialize;
use std::collections::BTreeMap;

/// Exact quantiles: the smallest size such that at least this share of the calls request no more. 0 if there are no
/// calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeQuantiles {
    /// Median, in bytes.
    pub p50: u64,
    /// 90 %, in bytes.
    pub p90: u64,
    /// 99 %, in bytes.
    pub p99: u64,
    /// Largest, in bytes.
    pub max: u64,
}

/// Calls with sizes up to a power of two and above the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeBin {
    /// Largest size of the bin, in bytes: a power of two, or 0.
    pub bytes_max: u64,
    /// Calls.
    pub calls: u64,
    /// Bytes that they requested.
    pub bytes: u64,
}

/// Number of calls with one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    /// The size, in bytes.
    pub bytes: u64,
    /// Calls.
    pub calls: u64,
}

/// The largest size of the bin with this size.
pub(super) fn bytes_max(size: u64) -> u64 {
    if size == 0 { 0 } else { size.next_power_of_two() }
}

const TOP_SIZES: usize = 10;
const TABLE_BYTES: usize = 1 << 16;

/// Number of calls per size: a table for small sizes, a map for the few large sizes.
pub(super) struct Sizes {
    small: Vec<u64>,
    large: BTreeMap<u64, u64>,
    total: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { small: vec![0; TABLE_BYTES], large: BTreeMap::new(), total: 0 }
    }
}

impl Sizes {
    pub(super) fn add(&mut self, size: u64) {
        self.total += 1;
        match usize::try_from(size).ok().and_then(|size| self.small.get_mut(size)) {
            Some(count) => *count += 1,
            None => *self.large.entry(size).or_default() += 1,
        }
    }

    pub(super) fn quantiles(&self) -> SizeQuantiles {
        SizeQuantiles {
            p50: self.quantile(50),
            p90: self.quantile(90),
            p99: self.quantile(99),
            max: self.quantile(100),
        }
    }

    /// Calls by powers of two, ascending, without empty bins.
    pub(super) fn histogram(&self) -> Vec<SizeBin> {
        let mut bins: BTreeMap<u64, SizeBin> = BTreeMap::new();
        for (size, calls) in self.counts().filter(|&(_, calls)| calls > 0) {
            let bytes_max = bytes_max(size);
            let bin = bins.entry(bytes_max).or_insert(SizeBin { bytes_max, calls: 0, bytes: 0 });
            bin.calls += calls;
            bin.bytes = bin.bytes.saturating_add(size.saturating_mul(calls));
        }
        bins.into_values().collect()
    }

    /// The most frequent sizes, most frequent first.
    pub(super) fn top(&self) -> Vec<SizeCount> {
        let counts = self.counts().filter(|&(_, calls)| calls > 0);
        let mut counts: Vec<SizeCount> = counts.map(|(bytes, calls)| SizeCount { bytes, calls }).collect();
        counts.sort_by_key(|count| (std::cmp::Reverse(count.calls), count.bytes));
        counts.truncate(TOP_SIZES);
        counts
    }

    /// Every size with its number of calls, ascending.
    fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let small = (0u64..).zip(self.small.iter().copied());
        small.chain(self.large.iter().map(|(&size, &count)| (size, count)))
    }

    fn quantile(&self, percent: u128) -> u64 {
        let rank = (self.total as u128 * percent).div_ceil(100) as u64;
        let mut seen = 0;
        for (size, count) in self.counts() {
            seen += count;
            if seen >= rank && seen > 0 {
                return size;
            }
        }
        0
    }
}
