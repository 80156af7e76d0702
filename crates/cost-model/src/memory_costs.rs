//! The cost of accesses to memory, by how much memory is accessed before the same cache line again.

use serde::{Deserialize, Serialize};

use crate::profile::Cost;

/// The time of an access if `bytes` of memory are accessed in turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostAt {
    /// The memory.
    pub bytes: u64,
    /// The time of one access, in user mode: no share of it is the kernel's.
    pub cost: Cost,
}

/// Costs by amount of memory, ascending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CostCurve(pub Vec<CostAt>);

impl CostCurve {
    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The cost between two measured amounts, in nanoseconds; beyond them, that of the nearest. Interpolated in the
    /// logarithm of the amount. `None` if nothing was measured.
    pub fn at(&self, bytes: u64, of: impl Fn(&Cost) -> f64) -> Option<f64> {
        let after = self.0.partition_point(|point| point.bytes < bytes);
        let (Some(low), Some(high)) = (self.0.get(after.saturating_sub(1)), self.0.get(after)) else {
            return self.0.last().map(|last| of(&last.cost));
        };
        if after == 0 {
            return Some(of(&low.cost));
        }
        let log = |bytes: u64| (bytes as f64).ln();
        let share = (log(bytes) - log(low.bytes)) / (log(high.bytes) - log(low.bytes));
        Some(of(&low.cost) * (1.0 - share) + of(&high.cost) * share)
    }
}

/// The costs of accesses to cache lines of 64 bytes. What was not measured has no points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryCosts {
    /// Why there are no huge pages among the costs, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages_skipped: Option<String>,
    /// One addition after another: the time of a processor cycle.
    pub cycle: Cost,
    /// Sequential lines, per line: `memset` in pieces of 1 KiB, in the order of their addresses.
    pub fill: CostCurve,
    /// Lines of short ranges, per line: the same in scattered order.
    pub pieces: CostCurve,
    /// Scattered writes that do not depend on each other, per line, in small pages.
    pub scatter: CostCurve,
    /// The same in huge pages.
    pub scatter_huge: CostCurve,
    /// Loads in a random order, each of which depends on the one before, per line, in small pages.
    pub chase: CostCurve,
    /// The same in huge pages.
    pub chase_huge: CostCurve,
}

impl MemoryCosts {
    /// What is wrong with costs that were read.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.cycle.check().map_err(|why| format!("cycle: {why}"))?;
        for (name, curve) in self.curves() {
            let ascends = curve.0.first().is_none_or(|first| first.bytes > 0)
                && curve.0.is_sorted_by(|one, next| one.bytes < next.bytes);
            if !ascends {
                return Err(format!("{name}: the amounts of memory do not ascend from above 0"));
            }
            curve.0.iter().try_for_each(|point| point.cost.check()).map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }

    /// All curves with their names.
    pub fn curves(&self) -> [(&'static str, &CostCurve); 6] {
        let MemoryCosts { fill, pieces, scatter, scatter_huge, chase, chase_huge, .. } = self;
        [
            ("fill", fill),
            ("pieces", pieces),
            ("scatter", scatter),
            ("scatter_huge", scatter_huge),
            ("chase", chase),
            ("chase_huge", chase_huge),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_interpolated_in_the_logarithm_of_the_amount() {
        let point = |bytes, median_ns| CostAt {
            bytes,
            cost: Cost { low_ns: 0.0, median_ns, high_ns: 99.0, kernel_share: 1.0, rounds: 1 },
        };
        let curve = CostCurve(vec![point(1 << 10, 1.0), point(1 << 14, 9.0), point(1 << 15, 10.0)]);
        let at = |bytes| curve.at(bytes, |cost| cost.median_ns).expect("points");
        assert_eq!([1, 1 << 10, 1 << 14, 1 << 15, 1 << 40].map(at), [1.0, 1.0, 9.0, 10.0, 10.0]);
        assert!((at(1 << 12) - 5.0).abs() < 1e-9 && (at(23_170) - 9.5).abs() < 1e-4);
        assert_eq!(CostCurve::default().at(1, |cost| cost.median_ns), None);
    }
}
