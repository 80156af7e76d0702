//! Counts into system time.

use serde::Serialize;

use crate::profile::{Cost, CostError, Operation, Profile};

/// How often each thing was done. Single pages are 4 KiB, huge pages 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Pages installed by an access.
    pub faulted_pages: u64,
    /// Pages installed by a populating call.
    pub populated_pages: u64,
    /// Folios between the two sizes, and the bytes of one.
    pub mid_folios: u64,
    /// See `mid_folios`.
    pub mid_bytes: u64,
    /// Huge pages whose memory is new to the process.
    pub huge_pages_new: u64,
    /// Huge pages whose memory was given back before.
    pub huge_pages_again: u64,
    /// Pages of the hugetlb pool.
    pub hugetlb_pages: u64,
    /// Zero pages.
    pub zero_pages: u64,
    /// Zero pages written.
    pub zero_pages_written: u64,
    /// Pages given back.
    pub dropped_pages: u64,
    /// Huge pages given back.
    pub dropped_huge_pages: u64,
    /// Huge pages split.
    pub splits: u64,
    /// Calls of `mmap`.
    pub mmap_calls: u64,
    /// Calls of `munmap`.
    pub munmap_calls: u64,
    /// Calls of `madvise`.
    pub madvise_calls: u64,
}

/// A range of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Price {
    /// With every cost at its low end.
    pub low_s: f64,
    /// With every cost at its median.
    pub median_s: f64,
    /// With every cost at its high end.
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

    fn add(&mut self, number: u64, cost: &Cost) {
        let number = number as f64 / 1e9;
        self.low_s += number * cost.low_ns;
        self.median_s += number * cost.median_ns;
        self.high_s += number * cost.high_ns;
    }
}

impl Work {
    /// The system time of the work on the profile's machine.
    ///
    /// # Errors
    /// Work of a kind that the profile has no cost of.
    pub fn price(&self, profile: &Profile) -> Result<Price, CostError> {
        let mut price = Price::default();
        for (number, operation) in [
            (self.faulted_pages, Operation::WriteFault),
            (self.populated_pages, Operation::PopulateWrite),
            (self.huge_pages_new, Operation::HugeFault),
            (self.huge_pages_again, Operation::HugeRefault),
            (self.hugetlb_pages, Operation::HugetlbFault),
            (self.zero_pages, Operation::ZeroReadFault),
            (self.zero_pages_written, Operation::WriteAfterZero),
            (self.dropped_pages, Operation::DontneedPage),
            (self.dropped_huge_pages, Operation::DontneedHuge),
            (self.splits, Operation::SplitHuge),
            (self.mmap_calls, Operation::MmapCall),
            (self.munmap_calls, Operation::MunmapCall),
            (self.madvise_calls, Operation::MadviseCall),
        ] {
            if number > 0 {
                price.add(number, cost_of(profile, operation)?);
            }
        }
        if self.mid_folios > 0 {
            price.add(self.mid_folios, &mid_cost(profile, self.mid_bytes)?);
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
            version: 1,
            machine: String::new(),
            processors: 1,
            kernel: String::new(),
            elapsed_s: 0.0,
            skipped: Vec::new(),
            costs,
        }
    }

    #[test]
    fn a_price_is_the_sum_of_counts_by_costs() {
        let profile = profile(&[
            (Operation::WriteFault, 1000.0),
            (Operation::MadviseCall, 300.0),
            (Operation::HugeFault, 102_100.0),
        ]);
        let work = Work { faulted_pages: 2_000_000, madvise_calls: 1_000_000, ..Work::default() };
        let price = work.price(&profile).expect("a price");
        assert!(
            (price.median_s - 2.3).abs() < 1e-9
                && (price.low_s - 1.15).abs() < 1e-9
                && (price.high_s - 4.6).abs() < 1e-9
        );
        assert!(price.contains(2.0) && !price.contains(1.0) && (price.factor() - 4.0).abs() < 1e-9);
        // 16 of 512 pages lie 15/511 up the line: 1000 + 15 * 101100 / 511.
        let work = Work { mid_folios: 1, mid_bytes: 64 << 10, ..Work::default() };
        let price = work.price(&profile).expect("a price");
        assert!((price.median_s * 1e9 - (1000.0 + 15.0 * 101_100.0 / 511.0)).abs() < 1e-6);
        assert!(matches!(Work { splits: 1, ..Work::default() }.price(&profile), Err(CostError::Lacks { .. })));
    }
}
