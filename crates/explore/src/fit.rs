//! Which hypotheses explain somebody else's counts: a fixed part, and a part per allocation, free, byte or class.
//!
//! Each hypothesis is a line, `count = fixed + per_unit * units`, fitted to the counts by least squares. Aggregate
//! counts can rarely tell hypotheses apart whose units grow alike, so all that fit are reported.

use std::collections::{BTreeMap, BTreeSet};

use hksim_policy::PAGE_BYTES;
use hksim_text::units::bytes;
use serde::{Deserialize, Serialize};

use crate::sentences::percent;

/// The fewest counts from which a line with two parameters can fail to fit.
pub const COUNTS_MIN: usize = 3;

/// What a trace asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Calls that allocate.
    pub allocations: u64,
    /// Calls that free.
    pub frees: u64,
    /// Bytes requested.
    pub requested_bytes: u64,
    /// Allocations by the bytes of their size class; larger ones under `u64::MAX`.
    pub by_class: BTreeMap<u64, u64>,
    /// Pages of 4 KiB that requests of [`LARGE_BYTES_MIN`] and more fill, by the largest power of two in the request.
    pub large_pages: BTreeMap<u64, u64>,
}

/// Smallest request of which the pages count: allocators that map blocks one by one do so from some size above it.
pub const LARGE_BYTES_MIN: u64 = 32 << 10;

impl Demand {
    /// Adds an allocation of `size` bytes, which a block of `class_bytes` serves; `None` above the largest class.
    pub fn allocate(&mut self, size: u64, class_bytes: Option<u64>) {
        self.allocations += 1;
        self.requested_bytes = self.requested_bytes.saturating_add(size);
        *self.by_class.entry(class_bytes.unwrap_or(u64::MAX)).or_default() += 1;
        if size >= LARGE_BYTES_MIN {
            let pages = self.large_pages.entry(1 << size.ilog2()).or_default();
            *pages = pages.saturating_add(size.div_ceil(PAGE_BYTES));
        }
    }
}

/// A fitted hypothesis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hypothesis {
    /// What the counts are proportional to, apart from a fixed part.
    pub name: String,
    /// The fixed part.
    pub fixed: f64,
    /// The part per unit.
    pub per_unit: f64,
    /// The largest deviation from a count, as a share of that count.
    pub residual_worst: f64,
    /// Whether its fixed part or its part per unit is negative: a cause cannot remove pages.
    pub has_negative_part: bool,
    /// Whether it is within the tolerance, with no negative part.
    pub fits: bool,
}

/// The hypotheses for some counts, the best first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Deviation that is accepted.
    pub tolerance: f64,
    /// The hypotheses, by their largest deviation. If a fixed number fits, those that vary less than the tolerance are
    /// left out: they are the fixed number.
    pub hypotheses: Vec<Hypothesis>,
    /// Whether exactly one fits.
    pub identified: bool,
    /// The result in words.
    pub sentence: String,
}

/// Fits every hypothesis. `counts`, `demands` and `predicted` are those of the same traces; `predicted` are the installs
/// of the design in question.
pub fn fit(counts: &[u64], demands: &[Demand], predicted: &[u64], tolerance: f64) -> Fit {
    let counts: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
    let fixed_number = hypothesis(FIXED.into(), line(&[], &counts), &vec![0.0; counts.len()], &counts, tolerance);
    let varies_within = if fixed_number.fits { tolerance * counts.iter().copied().fold(0.0, f64::max) } else { -1.0 };
    let mut hypotheses = vec![fixed_number];
    for (name, units) in units_of(demands) {
        let (fixed, per_unit) = line(&units, &counts);
        if per_unit.abs() * range(&units) > varies_within {
            hypotheses.push(hypothesis(name, (fixed, per_unit), &units, &counts, tolerance));
        }
    }
    let predicted: Vec<f64> = predicted.iter().map(|&installs| installs as f64).collect();
    hypotheses.push(hypothesis("the given design, simulated".into(), (0.0, 1.0), &predicted, &counts, tolerance));
    hypotheses.sort_by(|one, other| one.residual_worst.total_cmp(&other.residual_worst));
    let fitting: Vec<&Hypothesis> = hypotheses.iter().filter(|hypothesis| hypothesis.fits).collect();
    let sentence = sentence(&fitting, &hypotheses, tolerance);
    Fit { tolerance, identified: fitting.len() == 1, sentence, hypotheses }
}

/// The hypothesis that the counts do not depend on the trace.
const FIXED: &str = "a fixed number";

/// The largest of some numbers minus the smallest.
fn range(numbers: &[f64]) -> f64 {
    let largest = numbers.iter().copied().fold(f64::MIN, f64::max);
    (largest - numbers.iter().copied().fold(f64::MAX, f64::min)).max(0.0)
}

/// The units of every hypothesis apart from the fixed number, one per trace.
fn units_of(demands: &[Demand]) -> Vec<(String, Vec<f64>)> {
    let column = |of: &dyn Fn(&Demand) -> u64| demands.iter().map(|demand| of(demand) as f64).collect::<Vec<f64>>();
    let mut all = vec![
        ("per allocation".to_string(), column(&|demand| demand.allocations)),
        ("per free".to_string(), column(&|demand| demand.frees)),
        ("per byte requested".to_string(), column(&|demand| demand.requested_bytes)),
    ];
    let mut classes: Vec<u64> = demands.iter().flat_map(|demand| demand.by_class.keys().copied()).collect();
    classes.sort_unstable();
    classes.dedup();
    for &class in &classes {
        let name =
            if class == u64::MAX { "blocks above the classes".into() } else { format!("the {class}-byte class") };
        all.push((
            format!("per allocation of {name}"),
            column(&|demand| demand.by_class.get(&class).copied().unwrap_or(0)),
        ));
    }
    for &class in classes.iter().skip(1).filter(|&&class| class != u64::MAX) {
        let from = |demand: &Demand| demand.by_class.range(class..).map(|(_, calls)| calls).sum();
        all.push((format!("per allocation of the {class}-byte class and above"), column(&from)));
    }
    let thresholds: BTreeSet<u64> = demands.iter().flat_map(|demand| demand.large_pages.keys().copied()).collect();
    for &least in &thresholds {
        let from = |demand: &Demand| {
            demand.large_pages.range(least..).fold(0, |sum: u64, (_, pages)| sum.saturating_add(*pages))
        };
        all.push((format!("per page of blocks of {} and more, each mapped on its own", bytes(least)), column(&from)));
    }
    all
}

/// Fixed part and slope of the line with the least squares. A constant or empty column has no slope.
fn line(units: &[f64], counts: &[f64]) -> (f64, f64) {
    let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len().max(1) as f64;
    let (mean_units, mean_counts) = (mean(units), mean(counts));
    let spread: f64 = units.iter().map(|unit| (unit - mean_units).powi(2)).sum();
    let common: f64 = units.iter().zip(counts).map(|(unit, count)| (unit - mean_units) * (count - mean_counts)).sum();
    let slope = if spread > 0.0 { common / spread } else { 0.0 };
    (mean_counts - slope * mean_units, slope)
}

fn hypothesis(
    name: String,
    (fixed, per_unit): (f64, f64),
    units: &[f64],
    counts: &[f64],
    tolerance: f64,
) -> Hypothesis {
    let deviation = |(unit, count): (&f64, &f64)| (fixed + per_unit * unit - count).abs() / count.max(1.0);
    let residual_worst = units.iter().zip(counts).map(deviation).fold(0.0, f64::max);
    let has_negative_part = fixed < -tolerance * counts.iter().copied().fold(0.0, f64::max) || per_unit < 0.0;
    let fits = residual_worst <= tolerance && !has_negative_part;
    Hypothesis { name, fixed, per_unit, residual_worst, has_negative_part, fits }
}

/// `hypotheses` are sorted by their largest deviation.
fn sentence(fitting: &[&Hypothesis], hypotheses: &[Hypothesis], tolerance: f64) -> String {
    let within = percent(tolerance);
    match fitting {
        [] => {
            let nearest = hypotheses.iter().find(|hypothesis| !hypothesis.has_negative_part);
            let nearest = nearest.map_or(String::new(), |nearest| {
                format!("; the nearest, {}, is off by {}", nearest.name, percent(nearest.residual_worst))
            });
            let negative = hypotheses.iter().filter(|hypothesis| hypothesis.residual_worst <= tolerance).count();
            let negative = match negative {
                0 => String::new(),
                1 => " One more is within it, but with a negative part: a cause cannot remove pages.".to_string(),
                more => format!(" {more} more are within it, but with a negative part: a cause cannot remove pages."),
            };
            format!("None of the hypotheses fits within {within}{nearest}.{negative}")
        }
        [one] => format!("One hypothesis fits within {within}: {}.", one.name),
        several => {
            let named: Vec<&str> = several.iter().take(3).map(|hypothesis| hypothesis.name.as_str()).collect();
            format!(
                "Not identified: {} hypotheses fit within {within}, among them {}. Counts of traces that differ in these \
                 would tell them apart.",
                several.len(),
                named.join("; ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(small: u64, large: u64) -> Demand {
        Demand {
            allocations: small + large,
            frees: small,
            requested_bytes: 16 * small + 512 * large,
            by_class: BTreeMap::from([(16, small), (512, large)]),
            ..Demand::default()
        }
    }

    /// A library that maps each block of 128 KiB and more on its own: its pages, and 90 more.
    #[test]
    fn pages_of_mapped_blocks_are_found() {
        let traces: [&[(u64, u64)]; 4] = [
            &[(100, 9_000), (200_000, 40)],
            &[(100, 30), (70_000, 600), (131_072, 7)],
            &[(3_000_000, 11), (40_000, 90)],
            &[(100, 70_000), (140_000, 3), (5_000, 800)],
        ];
        let mut counts = Vec::new();
        let demand_of = |requests: &&[(u64, u64)]| {
            let (mut demand, mut count) = (Demand::default(), 90);
            for &(size, calls) in *requests {
                (0..calls).for_each(|_| demand.allocate(size, (size <= 512).then_some(512)));
                count += if size >= 128 << 10 { calls * size.div_ceil(PAGE_BYTES) } else { 0 };
            }
            counts.push(count);
            demand
        };
        let demands: Vec<Demand> = traces.iter().map(demand_of).collect();
        let fit = fit(&counts, &demands, &[1, 2, 3, 4], 0.01);
        let best = &fit.hypotheses[0];
        assert!(best.name == "per page of blocks of 128.0 KiB and more, each mapped on its own", "{fit:?}");
        assert!(best.fits && (best.fixed - 90.0).abs() < 1.0 && (best.per_unit - 1.0).abs() < 1e-3, "{best:?}");
    }

    #[test]
    fn the_planted_line_is_found_and_alone_if_the_traces_differ_enough() {
        let demands = [demand(1_000, 10), demand(5_000, 4_000), demand(90_000, 20), demand(10, 70_000)];
        let counts: Vec<u64> = demands.iter().map(|demand| 700 + demand.by_class[&512] / 2).collect();
        let fit = fit(&counts, &demands, &[1, 2, 3, 4], 0.01);
        let best = &fit.hypotheses[0];
        assert!(best.name.contains("512-byte class") && best.fits, "{fit:?}");
        assert!((best.fixed - 700.0).abs() < 1.0 && (best.per_unit - 0.5).abs() < 1e-3, "{best:?}");
    }

    #[test]
    fn proportional_demands_cannot_be_told_apart() {
        let demands: Vec<Demand> = (1..5).map(|times| demand(1_000 * times, 300 * times)).collect();
        let counts: Vec<u64> = demands.iter().map(|demand| 50 + demand.allocations / 4).collect();
        let fit = fit(&counts, &demands, &[0; 4], 0.01);
        assert!(!fit.identified && fit.sentence.starts_with("Not identified"), "{}", fit.sentence);
        assert!(fit.hypotheses.iter().filter(|hypothesis| hypothesis.fits).count() >= 5);
    }

    #[test]
    fn counts_that_nothing_explains_fit_nothing() {
        let demands = [demand(1, 2), demand(300, 5), demand(9, 8), demand(1_000, 1)];
        let fit = fit(&[5_000, 10, 90_000, 3], &demands, &[1, 1, 1, 1], 0.01);
        assert!(!fit.identified && fit.sentence.starts_with("None"), "{}", fit.sentence);
    }

    #[test]
    fn a_negative_part_is_the_reason_and_never_the_nearest() {
        let demands = [demand(1_000, 0), demand(2_000, 0), demand(3_000, 0), demand(4_000, 0)];
        let fit = fit(&[90_000, 80_000, 70_000, 60_000], &demands, &[1; 4], 0.01);
        let best = &fit.hypotheses[0];
        assert!(best.has_negative_part && !best.fits && best.residual_worst < 0.01, "{best:?}");
        assert!(fit.sentence.contains("the nearest, a fixed number, is off by"), "{}", fit.sentence);
        assert!(fit.sentence.contains("more are within it, but with a negative part"), "{}", fit.sentence);
    }

    #[test]
    fn equal_counts_are_a_fixed_number_and_nothing_else() {
        let demands = [demand(1_000, 10), demand(5_000, 4_000), demand(90_000, 20), demand(10, 70_000)];
        for counts in [[700; 4], [700, 701, 699, 700]] {
            let fit = fit(&counts, &demands, &[1, 2, 3, 4], 0.01);
            assert!(fit.identified && fit.sentence.contains("a fixed number"), "{}", fit.sentence);
        }
    }
}
