//! Exact quantiles of request sizes.

use serde::Serialize;
use std::collections::BTreeMap;

/// Exact quantiles: the smallest size that at least that share of the calls does not exceed. 0 without calls.
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

const TABLE_BYTES: usize = 1 << 16;

/// How often each size was asked for: a table for small sizes, a map for the few large ones.
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

    fn quantile(&self, percent: u128) -> u64 {
        let rank = (self.total as u128 * percent).div_ceil(100) as u64;
        let mut seen = 0;
        let small = (0u64..).zip(self.small.iter().copied());
        let large = self.large.iter().map(|(&size, &count)| (size, count));
        for (size, count) in small.chain(large) {
            seen += count;
            if seen >= rank && seen > 0 {
                return size;
            }
        }
        0
    }
}
