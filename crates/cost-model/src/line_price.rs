//! The time of accesses to cache lines, from how much memory is accessed between two accesses to the same line.
//!
//! An access costs what a loop over that much memory costs per line: of lines in sequence if the line follows the ones
//! before, which the processor fetches ahead; of scattered pieces of 1 KiB in short runs; and of scattered lines
//! otherwise. The costs of page walks are part of those of scattered lines, in small and in huge pages. What an access to
//! the allocator's own data costs that hits the first cache is a part of its instruction's time. It counts for the
//! program's accesses and for what `memset` and `memcpy` fill, whose instructions nobody counts.
//!
//! The allocator's accesses to its own data that are not in sequence are loads which the next instructions wait for: each
//! costs a step of a chase through as much memory, but at most through [`OVERLAP_BYTES`], and half of it, since calls of
//! different size classes do not wait for each other.

use serde::{Deserialize, Serialize};

use crate::median_range::MedianRange;
use crate::memory_costs::{CostCurve, MemoryCosts};

/// Memory that every second-level cache of today holds. A load that misses it takes longer than the instructions of the next calls,
/// which the processor executes meanwhile. The bound is chosen with measured times: ratios of designs are more exact with it on two
/// processors than with 1 MiB, levels less (docs/lab/time-terms.md). What a chase beyond it costs depends on who else uses the
/// last-level cache.
pub const OVERLAP_BYTES: u64 = 256 << 10;

/// Chains of such loads that the processor follows at a time: calls of different size classes do not wait for each other. It is
/// chosen with measured times: with 1, more pairs of designs are ordered wrong; with 4, levels are worse
/// (docs/lab/time-terms.md).
const CHAINS: f64 = 2.0;

/// Whose accesses they are, and how the processor finds the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinePart {
    /// The program's, in sequence.
    ProgramSequential,
    /// The program's in short ranges, after the first one of each.
    ProgramShort,
    /// The program's other ones.
    ProgramIsolated,
    /// The allocator's in blocks: zeros, copies, prefaulting; in sequence.
    FillingSequential,
    /// Those of these in short ranges, after the first one of each.
    FillingShort,
    /// The other ones of these.
    FillingIsolated,
    /// The allocator's to its own data, in sequence.
    BookkeepingSequential,
    /// The other ones of these.
    BookkeepingIsolated,
}

impl LinePart {
    /// All of them, in their order.
    pub const ALL: [LinePart; 8] = [
        LinePart::ProgramSequential,
        LinePart::ProgramShort,
        LinePart::ProgramIsolated,
        LinePart::FillingSequential,
        LinePart::FillingShort,
        LinePart::FillingIsolated,
        LinePart::BookkeepingSequential,
        LinePart::BookkeepingIsolated,
    ];

    /// Whether counted instructions access these lines.
    fn is_of_instructions(self) -> bool {
        matches!(self, LinePart::BookkeepingSequential | LinePart::BookkeepingIsolated)
    }

    /// How many accesses wait for memory at a time.
    fn chains(self) -> f64 {
        if self == LinePart::BookkeepingIsolated { CHAINS } else { 1.0 }
    }
}

/// Accesses that cost the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineAccesses {
    /// Whose.
    pub part: LinePart,
    /// Whether huge pages map the lines.
    pub is_huge: bool,
    /// Bytes of distinct lines that are accessed from one access to the next of the same line.
    pub reuse_bytes: u64,
    /// How many.
    pub accesses: u64,
}

/// The time of a run's accesses to memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinePrice {
    /// The total.
    pub total_ns: MedianRange,
    /// By part, in the order of [`LinePart::ALL`].
    pub parts_ns: Vec<(LinePart, MedianRange)>,
}

impl LinePrice {
    /// Prices accesses. `None` if the profile has no costs of scattered accesses, of sequential ones, or of a chase.
    pub fn of(lines: &[LineAccesses], costs: &MemoryCosts) -> Option<LinePrice> {
        let mut price = LinePrice::default();
        for part in LinePart::ALL {
            let mut part_ns = MedianRange::default();
            for &LineAccesses { is_huge, reuse_bytes, accesses, .. } in lines.iter().filter(|lines| lines.part == part)
            {
                let (curve, bytes_max) = curve_of(costs, part, is_huge);
                let bytes = reuse_bytes.min(bytes_max);
                let hit_ns = curve.at(0, |cost| cost.median_ns)?;
                let counted_ns = if part.is_of_instructions() { hit_ns } else { 0.0 };
                let access_ns = |quartile| (curve.at(bytes, quartile).unwrap_or(0.0) - counted_ns).max(0.0);
                part_ns = part_ns + MedianRange::each(|quartile| accesses as f64 * access_ns(quartile) / part.chains());
            }
            price.total_ns = price.total_ns + part_ns;
            price.parts_ns.push((part, part_ns));
        }
        Some(price)
    }
}

/// The costs of a part's accesses, and the memory beyond which they do not grow. Without costs in huge pages, those in
/// small pages are an upper bound.
fn curve_of(costs: &MemoryCosts, part: LinePart, is_huge: bool) -> (&CostCurve, u64) {
    let pages = |small, huge| if is_huge && !CostCurve::is_empty(huge) { huge } else { small };
    match part {
        LinePart::ProgramSequential | LinePart::FillingSequential | LinePart::BookkeepingSequential => {
            (&costs.fill, u64::MAX)
        }
        LinePart::ProgramShort | LinePart::FillingShort => (&costs.pieces, u64::MAX),
        LinePart::ProgramIsolated | LinePart::FillingIsolated => (pages(&costs.scatter, &costs.scatter_huge), u64::MAX),
        LinePart::BookkeepingIsolated => (pages(&costs.chase, &costs.chase_huge), OVERLAP_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_costs::CostAt;
    use crate::profile::Cost;

    #[test]
    fn a_load_of_the_allocator_costs_half_a_step_of_a_chase_up_to_the_second_level() {
        let cost = |ns: f64| Cost { low_ns: ns, median_ns: ns, high_ns: ns, kernel_share: 1.0, rounds: 1 };
        let curve = |costs: [f64; 3]| {
            let points = [16 << 10, OVERLAP_BYTES, 1 << 30].into_iter().zip(costs);
            CostCurve(points.map(|(bytes, ns)| CostAt { bytes, cost: cost(ns) }).collect())
        };
        let costs = MemoryCosts {
            huge_pages_skipped: None,
            cycle: cost(0.25),
            fill: curve([0.5, 0.75, 4.0]),
            pieces: curve([0.5, 0.75, 8.0]),
            scatter: curve([1.5, 1.5, 9.0]),
            scatter_huge: CostCurve::default(),
            chase: curve([1.0, 14.0, 300.0]),
            chase_huge: curve([1.0, 10.0, 200.0]),
        };
        let price = |part, is_huge, reuse_bytes| {
            let lines = [LineAccesses { part, is_huge, reuse_bytes, accesses: 1 }];
            LinePrice::of(&lines, &costs).expect("costs").total_ns.median
        };
        let loads = [16 << 10, OVERLAP_BYTES, 1 << 30].map(|bytes| price(LinePart::BookkeepingIsolated, false, bytes));
        assert_eq!(loads, [0.0, 6.5, 6.5]);
        assert_eq!(price(LinePart::BookkeepingIsolated, true, OVERLAP_BYTES), 4.5);
        assert_eq!(price(LinePart::BookkeepingSequential, false, 1 << 30), 3.5);
        assert_eq!(price(LinePart::ProgramSequential, false, 1 << 30), 4.0);
        assert_eq!(price(LinePart::ProgramShort, true, 1 << 30), 8.0);
        assert_eq!(price(LinePart::ProgramIsolated, true, 1 << 30), 9.0, "small pages for lack of huge ones");
        assert_eq!(price(LinePart::FillingIsolated, false, 1 << 30), 9.0, "no counted instruction fills");
        assert_eq!(price(LinePart::FillingSequential, false, 0), 0.5, "no counted instruction fills");
    }
}
