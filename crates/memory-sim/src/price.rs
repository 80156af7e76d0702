//! The system time of a prediction, from a machine's profile.

use hksim_cost_model::system_time::milliseconds;
use hksim_cost_model::{Calls, KernelWork, Locality, Operation, Price, Profile, Work};
use serde::{Deserialize, Serialize};

use crate::page_work::Spacing;
use crate::report::Prediction;

/// The time in the kernel that the modelled operations take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemorySystemTime {
    /// The range; absent if the profile lacks a cost.
    #[serde(flatten)]
    pub price: Option<Price>,
    /// The profile's processor.
    pub machine: String,
    /// The profile's kernel.
    pub kernel_release: String,
    /// Why there is no range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl MemorySystemTime {
    /// The time of a prediction.
    pub fn of(prediction: &Prediction, profile: &Profile) -> Self {
        let (price, skipped) = match work(prediction).price(profile) {
            Ok(price) if price.median_s < 0.0 => (None, Some("the profile's costs contradict each other".to_string())),
            Ok(price) => (Some(price), None),
            Err(why) => (None, Some(why.to_string())),
        };
        Self { price, machine: profile.machine.clone(), kernel_release: profile.kernel.clone(), skipped }
    }

    /// The range as text.
    pub fn text(&self) -> String {
        match self.price {
            Some(Price { low_s, median_s, high_s }) => {
                let [low, median, high] = [low_s, median_s, high_s].map(milliseconds);
                format!("{low} to {high} (median {median})")
            }
            None => format!("skipped: {}", self.skipped.as_deref().unwrap_or_default()),
        }
    }
}

/// The kernel's work. How warm the caches are at a first touch is estimated from the time since the previous one.
fn work(prediction: &Prediction) -> Work {
    let (kinds, done) = (prediction.installs.by_kind, &prediction.page_work);
    let locality = locality(done.spacing);
    let mut work = Work::from(&KernelWork {
        installs: [kinds.base_4k, kinds.mthp, kinds.thp, kinds.hugetlb, kinds.zero, kinds.cow],
        operations: &done.operations,
        refaults: &done.refaults,
        small: locality,
        huge: locality,
        footprint_bytes: prediction.rss_bytes_peak,
        pmd_splits: prediction.pmd_splits,
        reuses: prediction.reuses,
        calls: Calls { map: done.calls.map_calls, unmap: done.calls.unmap_calls, advise: done.calls.madvise_calls },
    });
    work.add(Operation::MunmapPage, done.at_exit.pages);
    work.add(Operation::MunmapHuge, done.at_exit.huge_pages);
    work.add(Operation::HugetlbDrop, done.at_exit.hugetlb_pages);
    work
}

fn locality(spacing: Spacing) -> Locality {
    let share = |part: u64| part as f64 / spacing.touches.max(1) as f64;
    Locality { filling: share(spacing.filling), apart: share(spacing.apart), far: 0.0 }
}
