//! Counts into system time.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::profile::{Cost, CostError, FOOTPRINTS, Footprint, Operation, Profile};

/// How far costs of one operation lie apart for reasons that are not counted: what the program did to caches in between,
/// where in its memory pages lie. The ends of a range are put apart by it.
const UNCOUNTED: f64 = 0.08;

/// Pages in a huge page.
const PAGES_PER_HUGE: u64 = 512;

/// How often each thing was done. Counts may be fractions, where one lies between two that are measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    counts: BTreeMap<Operation, f64>,
    /// Folios between a page and a huge page, and the bytes of one.
    mid_folios: Option<(u64, u64)>,
}

/// How pages are first touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstTouch {
    /// Single pages, by a fault each.
    Pages,
    /// Single pages, by a populating call.
    Populated,
    /// Huge pages.
    Huge,
}

impl FirstTouch {
    fn operation(self, footprint: &Footprint) -> Operation {
        match self {
            // Only a small amount was measured; of larger ones it is the memory that counts, not the way.
            FirstTouch::Populated if footprint.bytes == FOOTPRINTS[0].bytes => Operation::PopulateWrite,
            FirstTouch::Pages | FirstTouch::Populated => footprint.write_fault,
            FirstTouch::Huge => footprint.huge_fault,
        }
    }
}

/// A range of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Price {
    /// With every cost at its low end, less 8 % for what is not counted.
    pub low_s: f64,
    /// With every cost at its median.
    pub median_s: f64,
    /// With every cost at its high end, and 8 % more.
    pub high_s: f64,
}

impl Price {
    /// Whether seconds lie inside.
    pub fn contains(&self, seconds: f64) -> bool {
        (self.low_s..=self.high_s).contains(&seconds)
    }

    /// The high end over the low one; 1 of nothing.
    pub fn factor(&self) -> f64 {
        if self.low_s > 0.0 { self.high_s / self.low_s } else { 1.0 }
    }

    fn add(&mut self, number: f64, cost: &Cost) {
        let number = number / 1e9;
        self.low_s += number * cost.low_ns * (1.0 - UNCOUNTED);
        self.median_s += number * cost.median_ns;
        self.high_s += number * cost.high_ns * (1.0 + UNCOUNTED);
    }
}

impl Work {
    /// Counts an operation.
    pub fn add(&mut self, operation: Operation, number: u64) {
        self.add_part(operation, number as f64);
    }

    fn add_part(&mut self, operation: Operation, number: f64) {
        if number > 0.0 {
            *self.counts.entry(operation).or_default() += number;
        }
    }

    /// Counts pages of memory that is new to the process, of so many bytes in all, of which a share (0 to 1) comes after much
    /// else: the cost of the rest lies between those of the two footprints around it, by the logarithm.
    pub fn add_first_touches(&mut self, touch: FirstTouch, number: u64, footprint_bytes: u64, apart: f64) {
        let apart_cost = match touch {
            FirstTouch::Pages => Some(Operation::WriteFaultApart),
            FirstTouch::Huge => Some(Operation::HugeFaultApart),
            // The kernel makes many at once.
            FirstTouch::Populated => None,
        };
        let number = match apart_cost {
            Some(operation) => {
                self.add_part(operation, number as f64 * apart);
                number as f64 * (1.0 - apart)
            }
            None => number as f64,
        };
        let [first, .., last] = &FOOTPRINTS;
        let bytes = footprint_bytes.clamp(first.bytes, last.bytes);
        let pairs = FOOTPRINTS.windows(2).filter(|pair| pair[1].bytes >= bytes);
        let Some([below, above]) = pairs.take(1).next() else { return };
        let log = |bytes: u64| (bytes as f64).log2();
        let share = (log(bytes) - log(below.bytes)) / (log(above.bytes) - log(below.bytes));
        self.add_part(touch.operation(below), number * (1.0 - share));
        self.add_part(touch.operation(above), number * share);
    }

    /// Counts blocks of 2 MiB that `MADV_COLLAPSE` made huge, in which so many pages were present.
    pub fn add_collapses(&mut self, blocks: u64, present_pages: u64) {
        let full = (present_pages as f64 / PAGES_PER_HUGE as f64).min(blocks as f64);
        self.add_part(Operation::CollapseFull, full);
        self.add_part(Operation::CollapseSparse, blocks as f64 - full);
    }

    /// Says how many folios there were of a size between a page and a huge page.
    pub fn set_mid_folios(&mut self, number: u64, bytes: u64) {
        self.mid_folios = (number > 0).then_some((number, bytes));
    }

    /// The system time of the work on the profile's machine.
    ///
    /// # Errors
    /// Work of a kind that the profile has no cost of.
    pub fn price(&self, profile: &Profile) -> Result<Price, CostError> {
        let mut price = Price::default();
        for (&operation, &number) in &self.counts {
            price.add(number, cost_of(profile, operation)?);
        }
        if let Some((folios, bytes)) = self.mid_folios {
            price.add(folios as f64, &mid_cost(profile, bytes)?);
        }
        Ok(price)
    }
}

fn cost_of(profile: &Profile, operation: Operation) -> Result<&Cost, CostError> {
    profile.costs.get(&operation).ok_or_else(|| CostError::Lacks { operation: operation.word() })
}

/// The cost of a folio: measured, or on the line between a page and a huge page, by bytes.
fn mid_cost(profile: &Profile, bytes: u64) -> Result<Cost, CostError> {
    let measured = match bytes {
        0x4000 => profile.costs.get(&Operation::MthpFault16k),
        0x1_0000 => profile.costs.get(&Operation::MthpFault64k),
        0x4_0000 => profile.costs.get(&Operation::MthpFault256k),
        0x10_0000 => profile.costs.get(&Operation::MthpFault1m),
        _ => None,
    };
    if let Some(cost) = measured {
        return Ok(*cost);
    }
    let (page, huge) = (cost_of(profile, Operation::WriteFault)?, cost_of(profile, Operation::HugeFault)?);
    let share = bytes.clamp(4096, 2 << 20).saturating_sub(4096) as f64 / ((2 << 20) - 4096) as f64;
    let between = |page: f64, huge: f64| page + share * (huge - page);
    Ok(Cost {
        low_ns: between(page.low_ns, huge.low_ns),
        median_ns: between(page.median_ns, huge.median_ns),
        high_ns: between(page.high_ns, huge.high_ns),
        rounds: page.rounds.min(huge.rounds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(costs: &[(Operation, f64)]) -> Profile {
        let cost = |ns: f64| Cost { low_ns: ns / 2.0, median_ns: ns, high_ns: ns * 2.0, rounds: 5 };
        let costs = costs.iter().map(|&(operation, ns)| (operation, cost(ns))).collect();
        Profile {
            version: crate::profile::VERSION,
            machine: String::new(),
            processors: 1,
            kernel: String::new(),
            elapsed_s: 0.0,
            kernel_share: None,
            skipped: Vec::new(),
            costs,
        }
    }

    fn work(counts: &[(Operation, u64)]) -> Work {
        let mut work = Work::default();
        counts.iter().for_each(|&(operation, number)| work.add(operation, number));
        work
    }

    #[test]
    fn a_price_is_the_sum_of_counts_by_costs() {
        let profile = profile(&[
            (Operation::WriteFault, 1000.0),
            (Operation::MadviseCall, 300.0),
            (Operation::HugeFault, 102_100.0),
        ]);
        let price = work(&[(Operation::WriteFault, 2_000_000), (Operation::MadviseCall, 1_000_000)])
            .price(&profile)
            .expect("a price");
        assert!(
            (price.median_s - 2.3).abs() < 1e-9
                && (price.low_s - 1.15 * 0.92).abs() < 1e-9
                && (price.high_s - 4.6 * 1.08).abs() < 1e-9
        );
        assert!(price.contains(2.0) && !price.contains(1.0) && (price.factor() - 4.0 * 1.08 / 0.92).abs() < 1e-9);
        // 16 of 512 pages lie 15/511 up the line: 1000 + 15 * 101100 / 511.
        let mut mid = Work::default();
        mid.set_mid_folios(1, 64 << 10);
        let price = mid.price(&profile).expect("a price");
        assert!((price.median_s * 1e9 - (1000.0 + 15.0 * 101_100.0 / 511.0)).abs() < 1e-6);
        assert!(matches!(work(&[(Operation::SplitHuge, 1)]).price(&profile), Err(CostError::Lacks { .. })));
    }

    #[test]
    fn first_touches_lie_between_the_footprints_measured() {
        let profile = profile(&[
            (Operation::HugeFault, 10_000.0),
            (Operation::HugeFault32m, 40_000.0),
            (Operation::HugeFault128m, 80_000.0),
        ]);
        let cost = |bytes: u64| {
            let mut work = Work::default();
            work.add_first_touches(FirstTouch::Huge, 1, bytes, 0.0);
            (work.price(&profile).expect("a price").median_s * 1e9).round()
        };
        assert_eq!([cost(1 << 20), cost(4 << 20), cost(32 << 20), cost(1 << 40)], [10e3, 10e3, 40e3, 80e3]);
        // A third of the way from 4 to 32 MiB, and the middle of that from 32 to 128, by logarithm.
        assert_eq!([cost(8 << 20), cost(64 << 20)], [20e3, 60e3]);
        let mut apart = Work::default();
        apart.add_first_touches(FirstTouch::Huge, 1, 4 << 20, 0.5);
        assert!(
            matches!(apart.price(&profile), Err(CostError::Lacks { .. })),
            "half of it at a cost that is not known"
        );
    }

    #[test]
    fn collapses_lie_between_one_page_and_all() {
        let profile = profile(&[(Operation::CollapseSparse, 100.0), (Operation::CollapseFull, 500.0)]);
        let mut work = Work::default();
        work.add_collapses(2, 512);
        assert!((work.price(&profile).expect("a price").median_s * 1e9 - 600.0).abs() < 1e-6);
    }
}
