//! The class `statistical`: runs of real threads differ, so the prediction is compared with many runs.

use std::borrow::Cow;

use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};
use hksim_replay::Replayed;
use hksim_sim::SimReport;
use serde::{Deserialize, Serialize};

/// Minimum relative tolerance outside the range of the runs. A few runs may agree by chance, which makes the range
/// narrow.
const SLACK: f64 = 0.02;

/// How far small counts may differ in any case: 2 % of 3 calls is nothing.
///
/// In another order of the threads, the heap of each may have a slab more or less, or a huge page where there are some, and a
/// SuperSlab more or less, with a call that maps it and one that purges it.
struct Few {
    calls: u64,
    faults: u64,
    bytes: u64,
}

impl Few {
    fn of(predicted: &SimReport, threads: u64) -> Self {
        const CALLS_PER_SUPERSLAB: u64 = 2;
        let has_huge = predicted.installs.by_kind.thp + predicted.installs.by_kind.hugetlb > 0;
        let bytes = if has_huge { HUGE_PAGE_BYTES } else { predicted.policy.slab_bytes };
        let faults = threads * predicted.policy.slab_bytes / PAGE_BYTES;
        Self { calls: threads * CALLS_PER_SUPERSLAB, faults, bytes: threads * bytes }
    }
}

/// A figure over all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The name of the figure.
    pub figure: Cow<'static, str>,
    /// The prediction, for the same events in the trace's order.
    pub predicted: u64,
    /// The minimum of the runs.
    pub min: u64,
    /// The median of the runs.
    pub median: u64,
    /// The maximum of the runs.
    pub max: u64,
    /// The least tolerance outside that range.
    pub tolerance: u64,
}

impl Spread {
    fn new(figure: &'static str, predicted: u64, mut runs: Vec<u64>, few: u64) -> Option<Spread> {
        runs.sort_unstable();
        let (&min, &max) = (runs.first()?, runs.last()?);
        let tolerance = few.max((predicted as f64 * SLACK) as u64);
        Some(Spread { figure: Cow::Borrowed(figure), predicted, min, median: runs[runs.len() / 2], max, tolerance })
    }

    /// Whether the prediction is inside the range of the runs, or outside by at most the width of the range or the tolerance.
    pub fn holds(&self) -> bool {
        let slack = (self.max - self.min).max(self.tolerance);
        (self.min.saturating_sub(slack)..=self.max.saturating_add(slack)).contains(&self.predicted)
    }

    /// The figure as text.
    pub fn text(&self) -> String {
        let Spread { figure, predicted, min, median, max, .. } = self;
        format!("{figure} {predicted} predicted, {min} to {max} measured (median {median})")
    }
}

/// The compared figures: those that do not depend on when they are read.
pub fn spreads(predicted: &SimReport, threads: u64, runs: &[Replayed]) -> Vec<Spread> {
    let few = Few::of(predicted, threads);
    let figure = |name, predicted, few, of: fn(&Replayed) -> Option<u64>| {
        let values: Option<Vec<u64>> = runs.iter().map(of).collect();
        Spread::new(name, predicted, values?, few)
    };
    let calls = predicted.os_calls.values().iter().sum();
    [
        figure("faults", predicted.faults, few.faults, |run| run.faults),
        figure("traps", predicted.traps, few.faults, |run| run.traps),
        figure("rss_bytes_end", predicted.rss_bytes_end, few.bytes, |run| run.rss_bytes_end),
        figure("os_calls", calls, few.calls, |run| Some(run.os_calls?.values().iter().sum())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_may_lie_as_far_outside_as_runs_lie_apart() {
        let holds =
            |predicted, runs: &[u64]| Spread::new("faults", predicted, runs.to_vec(), 0).map(|spread| spread.holds());
        assert_eq!([90, 110, 100].map(|predicted| holds(predicted, &[105, 100, 95])), [Some(true); 3]);
        assert_eq!([84, 116].map(|predicted| holds(predicted, &[105, 100, 95])), [Some(false); 2]);
        assert_eq!(
            [981, 1020, 960].map(|predicted| holds(predicted, &[1000, 1000])),
            [Some(true), Some(true), Some(false)]
        );
        assert_eq!(holds(1, &[]), None);
        let few = |predicted| Spread::new("os_calls", predicted, vec![2, 2, 2], 2).map(|spread| spread.holds());
        assert_eq!([few(3), few(4), few(5), few(0)], [Some(true), Some(true), Some(false), Some(true)]);
    }
}
