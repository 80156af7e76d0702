//! Turns counts into system time.

use std::collections::BTreeMap;

use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::area::HUGE_BYTES;
use serde::{Deserialize, Serialize};

use crate::profile::{BETWEEN, Cost, CostError, FOLIOS, FOOTPRINTS, Footprint, Operation, Profile};

/// Allowance for effects that are not counted: the state of the caches and the placement of pages. The dispersion of
/// rounds has the same causes, so a price takes the wider of the two ranges: allowance or dispersion. Calibration loops
/// have the caches to themselves, so real costs are seldom much lower, but more often higher.
const UNCOUNTED_BELOW: f64 = 0.14;
const UNCOUNTED_ABOVE: f64 = 0.27;

/// Memory that is touched after much other work is as cold in the caches as a footprint of this size.
const APART_BYTES: u64 = 32 << 20;

/// Memory that the kernel hands out again before it has left the nearest caches.
pub(crate) const NEAR_BYTES: u64 = 256 << 10;

/// Pages in a huge page.
const PAGES_PER_HUGE: u64 = HUGE_BYTES / PAGE_BYTES;

/// The locality of first touches: shares of all touches from 0 to 1, with a sum of at most 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Locality {
    /// Share of touches while one object is written from its first byte to its last.
    pub filling: f64,
    /// Share of touches after much other work.
    pub apart: f64,
    /// Shares of touches of single pages after each amount of other work in [`BETWEEN`], where it is known.
    pub between: [f64; BETWEEN.len()],
    /// Share of touches of huge pages after so much other work that all data of the fault path has left the caches.
    pub far: f64,
}

impl Locality {
    /// The locality of touches in a run that repeats, while this amount of memory passes through the caches. Filling an
    /// object makes a fault dearer because the object's lines displace those of the fault path; a large footprint
    /// displaces them, too. So filling counts in full with 4 MiB and not at all from 32 MiB on, where its first touches
    /// cost the same as others.
    pub(crate) fn among(self, bytes: u64) -> Locality {
        let [least, ..] = &FOOTPRINTS;
        let log = |bytes: u64| (bytes as f64).log2();
        let clamped = bytes.clamp(least.bytes, APART_BYTES);
        let near = (log(APART_BYTES) - log(clamped)) / (log(APART_BYTES) - log(least.bytes));
        Locality { filling: self.filling * near, ..self }
    }

    /// Share of touches after a known amount of other work.
    fn after_other_work(self) -> f64 {
        self.between.iter().sum()
    }

    /// The measured footprints around an amount of memory, with shares as from [`around`]. For touches after much other
    /// work, an amount below 32 MiB counts as 32 MiB.
    fn around(self, bytes: u64) -> impl Iterator<Item = (&'static Footprint, f64)> {
        let part =
            |bytes: u64, part: f64| around(bytes).into_iter().map(move |(footprint, share)| (footprint, share * part));
        part(bytes, 1.0 - self.apart - self.far).chain(part(bytes.max(APART_BYTES), self.apart))
    }
}

/// How memory is first touched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FirstTouch {
    /// Single pages, with a fault for each.
    Pages(Locality),
    /// Single pages, by a populating call.
    Populated,
    /// Folios of this many bytes: larger than a page, smaller than a huge page.
    Folios(u64, Locality),
    /// Huge pages.
    Huge(Locality),
    /// Pages of the hugetlb pool.
    Pool(Locality),
}

/// The amount of hugetlb memory in one measurement.
pub(crate) const POOL_BYTES: u64 = 8 << 20;

/// The count of each operation. A count is a fraction if the cost is interpolated between two measured operations, and
/// negative if the cost of an operation is subtracted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    counts: BTreeMap<Operation, f64>,
    /// Number of folios larger than a page and smaller than a huge page, by size in bytes.
    folios: BTreeMap<u64, f64>,
    /// Bytes in these folios, by the size of the footprint that passes through the caches.
    folio_bytes: BTreeMap<u64, f64>,
    /// Number of first touches of huge pages in memory that the process did not have before.
    new_huge: u64,
}

/// A range of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Every cost at its low end, minus the allowance for uncounted effects.
    pub low_s: f64,
    /// Every cost at its median.
    pub median_s: f64,
    /// Every cost at its high end, plus the allowance for uncounted effects.
    pub high_s: f64,
}

impl Price {
    /// Whether a time is inside the range.
    pub fn contains(&self, seconds: f64) -> bool {
        (self.low_s..=self.high_s).contains(&seconds)
    }

    /// The high end divided by the low end; 1 for an empty range, infinite if the low end is 0.
    pub fn factor(&self) -> f64 {
        if self.high_s > 0.0 { self.high_s / self.low_s } else { 1.0 }
    }

    fn add(&mut self, number: f64, cost: &Cost) {
        let number = number / 1e9;
        self.low_s += number * cost.low_ns;
        self.median_s += number * cost.median_ns;
        self.high_s += number * cost.high_ns;
    }

    /// The range, widened for uncounted effects.
    fn widened(self) -> Price {
        let Price { low_s, median_s, high_s } = self;
        Price {
            low_s: low_s.min((1.0 - UNCOUNTED_BELOW) * median_s).max(0.0),
            median_s,
            high_s: high_s.max((1.0 + UNCOUNTED_ABOVE) * median_s),
        }
    }
}

impl Work {
    /// Counts an operation.
    pub fn add(&mut self, operation: Operation, number: u64) {
        self.add_part(operation, number as f64);
    }

    fn add_part(&mut self, operation: Operation, number: f64) {
        if number != 0.0 {
            *self.counts.entry(operation).or_default() += number;
        }
    }

    /// Counts first touches. `footprint_bytes` is the memory that passes through the caches: the peak, or the amount
    /// that was returned.
    pub fn add_first_touches(&mut self, touch: FirstTouch, number: u64, footprint_bytes: u64) {
        if number == 0 {
            return;
        }
        let number = number as f64;
        match touch {
            FirstTouch::Huge(locality) => self.add_huge(number, locality, footprint_bytes),
            FirstTouch::Pages(locality) => {
                self.add_with_locality(Operation::WriteFault, number, locality);
                self.add_distance(number * (1.0 - locality.apart), around(footprint_bytes));
            }
            FirstTouch::Populated => {
                self.add_part(Operation::PopulateWrite, number);
                self.add_distance(number, around(footprint_bytes));
            }
            FirstTouch::Folios(bytes, locality) => {
                *self.folios.entry(bytes).or_default() += number;
                self.add_part(Operation::MemsetUntouched, number * locality.filling);
                self.add_part(Operation::Refault, number * -locality.filling);
                self.add_part(Operation::WriteFaultApart, number * locality.apart);
                self.add_between(number, locality);
                self.add_part(Operation::WriteFault, number * -(locality.apart + locality.after_other_work()));
                for (footprint, share) in locality.around(footprint_bytes).filter(|&(_, share)| share > 0.0) {
                    *self.folio_bytes.entry(footprint.bytes).or_default() += number * bytes as f64 * share;
                }
            }
            FirstTouch::Pool(locality) => {
                self.add_part(Operation::HugetlbFault, number);
                self.add_huge(number, locality, footprint_bytes);
                self.add_huge(-number, Locality::default(), POOL_BYTES);
            }
        }
    }

    /// Counts the extra cost of zeroing pages with these footprints, compared with the smallest one. `footprints` has
    /// the share of each.
    fn add_distance(&mut self, pages: f64, footprints: impl IntoIterator<Item = (&'static Footprint, f64)>) {
        self.add_part(Operation::WriteFault, -pages);
        for (footprint, share) in footprints {
            self.add_part(footprint.write_fault, pages * share);
        }
    }

    /// Counts installs of huge pages while `footprint_bytes` of memory pass through the caches.
    fn add_huge(&mut self, number: f64, locality: Locality, footprint_bytes: u64) {
        self.add_part(Operation::HugeFaultFar, number * locality.far);
        for (footprint, share) in locality.around(footprint_bytes) {
            self.add_part(footprint.huge_fault, number * share);
        }
    }

    /// Counts first touches of memory that was returned to the kernel before. `returned_bytes` is all memory that was
    /// returned with it.
    pub fn add_refaults(&mut self, touch: FirstTouch, number: u64, returned_bytes: u64) {
        let pages = match touch {
            FirstTouch::Pages(locality) => {
                let number = number as f64;
                self.add_with_locality(Operation::Refault, number, locality);
                self.add_distance(number * (1.0 - locality.apart), around(returned_bytes));
                number * (1.0 - locality.filling - locality.apart - locality.after_other_work())
            }
            _ => {
                self.add_first_touches(touch, number, returned_bytes);
                if touch == FirstTouch::Populated { number as f64 } else { 0.0 }
            }
        };
        let near = pages * nearness(returned_bytes);
        self.add_part(Operation::RefaultNear, near);
        self.add_part(Operation::Refault, -near);
    }

    /// Counts faults of single pages, by their locality. Touches that neither fill an object nor come after much other
    /// work count as `operation`.
    fn add_with_locality(&mut self, operation: Operation, number: f64, locality: Locality) {
        let Locality { filling, apart, .. } = locality;
        self.add_part(Operation::MemsetUntouched, number * filling);
        self.add_part(Operation::WriteFaultApart, number * apart);
        self.add_between(number, locality);
        self.add_part(operation, number * (1.0 - filling - apart - locality.after_other_work()));
    }

    /// Counts the faults of single pages that came after known amounts of other work.
    fn add_between(&mut self, number: f64, locality: Locality) {
        for ((_, operation), share) in BETWEEN.into_iter().zip(locality.between) {
            self.add_part(operation, number * share);
        }
    }

    /// The work of both.
    #[must_use]
    pub(crate) fn plus(mut self, other: Work) -> Work {
        other.counts.into_iter().for_each(|(operation, number)| self.add_part(operation, number));
        for (own, others) in [(&mut self.folios, other.folios), (&mut self.folio_bytes, other.folio_bytes)] {
            others.into_iter().for_each(|(bytes, number)| *own.entry(bytes).or_default() += number);
        }
        self.new_huge += other.new_huge;
        self
    }

    /// Counts PMD ranges (2 MiB) that `MADV_COLLAPSE` collapsed, which contained this many present pages in total.
    pub fn add_collapses(&mut self, blocks: u64, present_pages: u64) {
        let full = (present_pages as f64 / PAGES_PER_HUGE as f64).min(blocks as f64);
        self.add_part(Operation::CollapseFull, full);
        self.add_part(Operation::CollapseSparse, blocks as f64 - full);
    }

    /// The system time of the work on the profile's machine.
    ///
    /// # Errors
    /// The profile lacks the cost of an operation.
    pub fn price(&self, profile: &Profile) -> Result<Price, CostError> {
        let mut price = Price::default();
        self.costs(profile)?.iter().for_each(|(number, cost)| price.add(*number, cost));
        Ok(price.widened())
    }

    /// Counts first touches of huge pages in memory that the process did not have before. They are counted by
    /// [`Work::add_first_touches`], too.
    pub fn add_new_huge(&mut self, number: u64) {
        self.new_huge += number;
    }

    /// The system time if a host has to back new huge pages with memory first, as that of a virtual machine may;
    /// `None` without new huge pages.
    ///
    /// # Errors
    /// The profile lacks the cost of an operation.
    pub fn cold_price(&self, profile: &Profile) -> Result<Option<Price>, CostError> {
        if self.new_huge == 0 {
            return Ok(None);
        }
        let mut price = Price::default();
        self.costs(profile)?.iter().for_each(|(number, cost)| price.add(*number, cost));
        price.add(self.new_huge as f64, &cost_of(profile, Operation::HostBacking)?);
        Ok(Some(price.widened()))
    }

    /// The processor time of the work in kernel and user mode: what a program that waits for it takes longer. On the
    /// profile's machine.
    ///
    /// # Errors
    /// The profile lacks the cost of an operation.
    pub fn processor_price(&self, profile: &Profile) -> Result<Price, CostError> {
        let mut price = Price::default();
        self.costs(profile)?.iter().for_each(|(number, cost)| price.add(*number, &cost.of_processor()));
        Ok(price.widened())
    }

    /// The median of that, in seconds: that of several parts is their sum.
    ///
    /// # Errors
    /// The profile lacks the cost of an operation.
    pub fn processor_s(&self, profile: &Profile) -> Result<f64, CostError> {
        Ok(self.costs(profile)?.iter().map(|(number, cost)| number * cost.of_processor().median_ns).sum::<f64>() / 1e9)
    }

    /// Each count with its cost per operation.
    fn costs(&self, profile: &Profile) -> Result<Vec<(f64, Cost)>, CostError> {
        let operations = self.counts.iter().map(|(&operation, &number)| Ok((number, cost_of(profile, operation)?)));
        let folios = self.folios.iter().map(|(&bytes, &folios)| Ok((folios, folio_cost(profile, bytes)?)));
        let distances =
            self.folio_bytes.iter().map(|(&footprint, &bytes)| Ok((bytes, distance_cost(profile, footprint)?)));
        operations.chain(folios).chain(distances).collect()
    }
}

/// The measured footprints around an amount of memory, with interpolation shares on a logarithmic scale. The shares sum
/// to 1.
fn around(bytes: u64) -> [(&'static Footprint, f64); 2] {
    neighbours(&FOOTPRINTS.map(|footprint| footprint.bytes), bytes).map(|(at, share)| (&FOOTPRINTS[at], share))
}

/// The places of the two sizes around an amount of memory, with interpolation shares as in [`around`]. `sizes` are at least two, in
/// ascending order. An amount outside them counts as the nearest.
pub(crate) fn neighbours(sizes: &[u64], bytes: u64) -> [(usize, f64); 2] {
    let above = sizes.iter().position(|&size| bytes <= size).unwrap_or(sizes.len() - 1).max(1);
    let (least, most) = (sizes[above - 1], sizes[above]);
    let log = |bytes: u64| (bytes as f64).log2();
    let share = (log(bytes.clamp(least, most)) - log(least)) / (log(most) - log(least));
    [(above - 1, 1.0 - share), (above, share)]
}

/// How near returned memory is when the kernel hands it out again: 1 up to 256 KiB, 0 from the smallest measured footprint
/// on, and between them on a logarithmic scale.
fn nearness(returned_bytes: u64) -> f64 {
    let [least, ..] = &FOOTPRINTS;
    let log = |bytes: u64| (bytes as f64).log2();
    (log(least.bytes) - log(returned_bytes.clamp(NEAR_BYTES, least.bytes))) / (log(least.bytes) - log(NEAR_BYTES))
}

/// A cost.
///
/// # Errors
/// The profile lacks it.
pub(crate) fn cost_of(profile: &Profile, operation: Operation) -> Result<Cost, CostError> {
    profile.costs.get(&operation).copied().ok_or_else(|| {
        let skipped = profile.skipped.iter().find(|skipped| skipped.operation == operation);
        let reason = skipped.map_or("the calibration did not try it", |skipped| &skipped.reason);
        CostError::Lacks { operation: operation.word(), reason: reason.to_string() }
    })
}

/// The extra cost of zeroing a byte with a footprint of this size, compared with the smallest footprint. It is derived
/// from huge pages, which are zeroed like folios, or from single pages if the profile has no costs of huge pages.
fn distance_cost(profile: &Profile, footprint_bytes: u64) -> Result<Cost, CostError> {
    let [least, ..] = &FOOTPRINTS;
    let footprint = FOOTPRINTS.iter().find(|footprint| footprint.bytes == footprint_bytes).unwrap_or(least);
    let huge = [least.huge_fault, footprint.huge_fault].map(|operation| cost_of(profile, operation));
    let (near, far, bytes) = match huge {
        [Ok(near), Ok(far)] => (near, far, HUGE_BYTES),
        _ => (cost_of(profile, least.write_fault)?, cost_of(profile, footprint.write_fault)?, PAGE_BYTES),
    };
    let more = |near: f64, far: f64| (far - near) / bytes as f64;
    Ok(Cost {
        low_ns: more(near.low_ns, far.low_ns),
        median_ns: more(near.median_ns, far.median_ns),
        high_ns: more(near.high_ns, far.high_ns),
        ..far
    })
}

/// The cost of a folio of this size. The costs of other sizes do not show it: interpolated between
/// them, a folio cost 2.5 us, and 3.7 when it was measured.
fn folio_cost(profile: &Profile, bytes: u64) -> Result<Cost, CostError> {
    let timed = FOLIOS.iter().find(|&&(size, _)| size == bytes);
    let (_, operation) = timed.ok_or(CostError::NoSuchFolio { bytes })?;
    cost_of(profile, *operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(costs: &[(Operation, f64)]) -> Profile {
        let cost = |ns: f64| Cost { low_ns: ns / 2.0, median_ns: ns, high_ns: ns * 2.0, kernel_share: 0.5, rounds: 5 };
        let costs = costs.iter().map(|&(operation, ns)| (operation, cost(ns))).collect();
        Profile {
            version: crate::profile::VERSION,
            machine: String::new(),
            processors: 1,
            kernel: String::new(),
            elapsed_s: 0.0,
            kernel_share: None,
            core: None,
            skipped: Vec::new(),
            costs,
            memory: None,
            code: None,
        }
    }

    fn work(counts: &[(Operation, u64)]) -> Work {
        let mut work = Work::default();
        counts.iter().for_each(|&(operation, number)| work.add(operation, number));
        work
    }

    #[test]
    fn a_price_is_the_sum_of_counts_times_costs() {
        let profile = profile(&[
            (Operation::WriteFault, 1000.0),
            (Operation::MadviseCall, 300.0),
            (Operation::HugeFault, 102_100.0),
        ]);
        let price = work(&[(Operation::WriteFault, 2_000_000), (Operation::MadviseCall, 1_000_000)])
            .price(&profile)
            .expect("a price");
        assert!((price.median_s - 2.3).abs() < 1e-9);
        assert!(price.contains(1.2) && !price.contains(1.1), "the quartiles are half and twice the median: {price:?}");
        assert!((price.factor() - 4.0).abs() < 1e-9);
        let both =
            work(&[(Operation::WriteFault, 2_000_000), (Operation::MadviseCall, 1_000_000)]).processor_s(&profile);
        assert!((both.expect("a time") - 4.6).abs() < 1e-9, "the kernel's share is one half");
        let faults = work(&[(Operation::WriteFault, 1_000_000)]);
        let [kernel, processor] = [faults.price(&profile), faults.processor_price(&profile)]
            .map(|price| price.map(|price| [price.low_s, price.median_s, price.high_s]).expect("a price"));
        assert!(kernel.iter().zip(processor).all(|(kernel, both)| (2.0 * kernel - both).abs() < 1e-9));
        let mut steady = profile.clone();
        let faults = work(&[(Operation::WriteFault, 1_000_000)]);
        steady.costs.values_mut().for_each(|cost| (cost.low_ns, cost.high_ns) = (0.9 * cost.median_ns, cost.median_ns));
        let price = faults.price(&steady).expect("a price");
        assert!(
            (price.low_s - 0.86).abs() < 1e-9 && (price.high_s - 1.27).abs() < 1e-9,
            "the allowance for uncounted effects: {price:?}"
        );
        assert!(matches!(work(&[(Operation::SplitHuge, 1)]).price(&profile), Err(CostError::Lacks { .. })));
    }

    #[test]
    fn a_folio_has_a_price_only_if_its_size_was_timed() {
        let folio = |bytes: u64| {
            let mut work = Work::default();
            work.add_first_touches(FirstTouch::Folios(bytes, Locality::default()), 1, 4 << 20);
            work
        };
        let mut profile = profile(&[(Operation::WriteFault, 1000.0), (Operation::HugeFault, 102_100.0)]);
        for (bytes, word) in
            [(16 << 10, "mthp_fault_16k"), (64 << 10, "mthp_fault_64k"), (512 << 10, "mthp_fault_512k")]
        {
            let why = folio(bytes).price(&profile).expect_err("no folio was timed").to_string();
            assert!(why.contains(word), "{why}");
        }
        let cost = |ns: f64| Cost { median_ns: ns, ..profile.costs[&Operation::WriteFault] };
        let timed = [(Operation::MthpFault16k, cost(2000.0)), (Operation::MthpFault64k, cost(5000.0))];
        profile.costs.extend(timed);
        let median = |bytes: u64| (folio(bytes).price(&profile).expect("a price").median_s * 1e9).round();
        assert_eq!([16 << 10, 64 << 10].map(median), [2000.0, 5000.0]);
        let why = folio(32 << 10).price(&profile).expect_err("only the sizes around it were timed").to_string();
        assert!(why.contains("mthp_fault_32k"), "{why}");
        assert!(matches!(folio(8 << 10).price(&profile), Err(CostError::NoSuchFolio { bytes: 8192 })));
    }

    fn first_touch(profile: &Profile, touch: FirstTouch, bytes: u64) -> f64 {
        let mut work = Work::default();
        work.add_first_touches(touch, 1, bytes);
        (work.price(profile).expect("a price").median_s * 1e9).round()
    }

    #[test]
    fn first_touches_are_interpolated_between_footprints() {
        let profile = profile(&[
            (Operation::HugeFault, 10_000.0),
            (Operation::HugeFault8m, 20_000.0),
            (Operation::HugeFault16m, 36_000.0),
            (Operation::HugeFault32m, 40_000.0),
            (Operation::HugeFault128m, 80_000.0),
            (Operation::HugeFaultFar, 100_000.0),
        ]);
        let cost = |bytes: u64| first_touch(&profile, FirstTouch::Huge(Locality::default()), bytes);
        assert_eq!([cost(1 << 20), cost(4 << 20), cost(32 << 20), cost(1 << 40)], [10e3, 10e3, 40e3, 80e3]);
        // 64 MiB is halfway from 32 to 128 MiB on a logarithmic scale.
        assert_eq!([cost(8 << 20), cost(16 << 20), cost(64 << 20)], [20e3, 36e3, 60e3]);
        let apart = FirstTouch::Huge(Locality { apart: 0.5, ..Locality::default() });
        let costs = [4 << 20, 64 << 20].map(|bytes| first_touch(&profile, apart, bytes));
        assert_eq!(costs, [25e3, 60e3], "half of the touches cost at least as much as in 32 MiB");
        let far = FirstTouch::Huge(Locality { apart: 0.25, far: 0.5, ..Locality::default() });
        let costs = [4 << 20, 64 << 20].map(|bytes| first_touch(&profile, far, bytes));
        assert_eq!(costs, [62.5e3, 80e3], "half of all touches cost as much as the far operation");
    }

    #[test]
    fn the_costs_of_locality_and_footprint_add_up() {
        let profile = profile(&[
            (Operation::WriteFault, 1000.0),
            (Operation::WriteFault8m, 1000.0),
            (Operation::WriteFault16m, 1200.0),
            (Operation::WriteFault32m, 1200.0),
            (Operation::WriteFault128m, 1300.0),
            (Operation::WriteFaultApart, 3000.0),
            (Operation::MemsetUntouched, 1800.0),
            (Operation::PopulateWrite, 900.0),
            (Operation::Refault, 1100.0),
            (Operation::HugeFault, 10_000.0),
            (Operation::HugeFault8m, 20_000.0),
            (Operation::HugeFault16m, 36_000.0),
            (Operation::HugeFault32m, 42_000.0),
            (Operation::HugeFault128m, 80_000.0),
            (Operation::HugetlbFault, 50_000.0),
            (Operation::MthpFault64k, 5000.0),
        ]);
        let locality = |filling, apart| Locality { filling, apart, ..Locality::default() };
        let cost = |touch, bytes| first_touch(&profile, touch, bytes);
        let pages =
            |filling, apart, mib: u64| cost(FirstTouch::Pages(locality(filling, apart).among(mib << 20)), mib << 20);
        assert_eq!([pages(0.0, 0.0, 32), pages(1.0, 0.0, 32), pages(0.0, 1.0, 32)], [1200.0, 1200.0, 3000.0]);
        assert_eq!([pages(0.0, 0.0, 4), pages(1.0, 0.0, 4), pages(0.0, 1.0, 4)], [1000.0, 1800.0, 3000.0]);
        // 16 MiB is two thirds of the way from 4 to 32 MiB on a logarithmic scale.
        assert!((pages(0.75, 0.25, 16) - (0.25 * (1800.0 + 200.0) + 0.5 * 1200.0 + 0.25 * 3000.0)).abs() < 1e-6);
        assert_eq!([cost(FirstTouch::Populated, 0), cost(FirstTouch::Populated, 1 << 40)], [900.0, 1200.0]);
        // After known work: what the timed amounts cost, and what a footprint adds.
        let mut between = [0.0; BETWEEN.len()];
        between[5] = 0.5;
        let after = FirstTouch::Pages(Locality { filling: 0.25, between, ..Locality::default() });
        assert_eq!(cost(after, 32 << 20), 0.25 * 1800.0 + 0.5 * 3000.0 + 0.25 * 1000.0 + 200.0);
        let folio =
            |filling, apart, bytes| cost(FirstTouch::Folios(64 << 10, locality(filling, apart).among(bytes)), bytes);
        // 64 KiB is 1/32 of a huge page.
        assert_eq!(folio(0.5, 0.0, 32 << 20), 5000.0 + 32_000.0 / 32.0);
        assert_eq!(folio(0.5, 0.0, 4 << 20), 5000.0 + 350.0);
        assert_eq!(folio(0.0, 0.5, 0), 5000.0 + 16_000.0 / 32.0 + 1000.0);
        // The pool is measured with 8 MiB.
        let pool = |bytes| cost(FirstTouch::Pool(locality(0.0, 0.0)), bytes);
        assert_eq!(
            [pool(4 << 20), pool(8 << 20)],
            [40_000.0, 50_000.0],
            "a smaller footprint: minus the difference of huge pages"
        );
        assert_eq!(
            pool(1 << 40),
            50_000.0 + 80_000.0 - 20_000.0,
            "a larger footprint: plus the difference of huge pages"
        );
        let mut refaults = Work::default();
        for bytes in [4 << 20, 32 << 20] {
            refaults.add_refaults(FirstTouch::Pages(locality(0.25, 0.25).among(bytes)), 4, bytes);
        }
        let refaults_ns = refaults.price(&profile).expect("a price").median_s * 1e9;
        let near_and_far_ns = [1800.0 + 3000.0 + 2200.0, 3000.0 + 3300.0 + 3.0 * 200.0];
        assert!((refaults_ns - near_and_far_ns.iter().sum::<f64>()).abs() < 1e-6);
    }

    #[test]
    fn memory_that_was_returned_just_before_is_cheaper() {
        let profile = profile(&[
            (Operation::WriteFault, 1000.0),
            (Operation::WriteFault8m, 1000.0),
            (Operation::PopulateWrite, 900.0),
            (Operation::Refault, 1100.0),
            (Operation::RefaultNear, 700.0),
        ]);
        let cost = |touch: FirstTouch, bytes: u64| {
            let mut work = Work::default();
            work.add_refaults(touch, 1, bytes);
            (work.price(&profile).expect("a price").median_s * 1e9).round()
        };
        let pages = FirstTouch::Pages(Locality::default());
        assert_eq!([4096, 256 << 10, 1 << 20, 4 << 20].map(|bytes| cost(pages, bytes)), [700.0, 700.0, 900.0, 1100.0]);
        assert_eq!([4096, 1 << 20, 4 << 20].map(|bytes| cost(FirstTouch::Populated, bytes)), [500.0, 700.0, 900.0]);
    }

    #[test]
    fn collapses_are_interpolated_between_sparse_and_full() {
        let profile = profile(&[(Operation::CollapseSparse, 100.0), (Operation::CollapseFull, 500.0)]);
        let mut work = Work::default();
        work.add_collapses(2, 512);
        assert!((work.price(&profile).expect("a price").median_s * 1e9 - 600.0).abs() < 1e-6);
    }
}
