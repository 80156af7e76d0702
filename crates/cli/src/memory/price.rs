//! The system time of a prediction, from a machine's profile.

use hksim_cost_model::{FirstTouch, Locality, Operation, Price, Profile, Work};
use hksim_memory_sim::{Prediction, Spacing};
use hksim_policy::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use crate::system_time::milliseconds;

/// Bytes of a page table.
const PAGE_TABLE_BYTES: u64 = 4096;

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
    let footprint = prediction.rss_bytes_peak;
    let locality = locality(done.spacing);
    let mut work = Work::default();
    let populated_small = done.populated_pages.min(kinds.base_4k);
    work.add_first_touches(FirstTouch::Pages(locality), kinds.base_4k - populated_small, footprint);
    work.add_first_touches(FirstTouch::Populated, populated_small, footprint);
    work.add_first_touches(FirstTouch::Huge(locality), kinds.thp, footprint);
    work.add_first_touches(FirstTouch::Pool(locality), kinds.hugetlb, footprint);
    for (&bytes, &folios) in &done.mthp_by_bytes {
        work.add_first_touches(FirstTouch::Folios(bytes, locality), folios, footprint);
    }
    for (operation, number) in [
        (Operation::ZeroReadFault, kinds.zero),
        (Operation::WriteAfterZero, kinds.cow.saturating_sub(done.copies_after_fork)),
        (Operation::CopyAfterFork, done.copies_after_fork),
        (Operation::ReuseAfterFork, prediction.reuses),
        (Operation::PageTable, done.page_table_bytes_allocated / PAGE_TABLE_BYTES),
        (Operation::DontneedPage, done.madv_dontneed_pages),
        (Operation::DontneedHuge, done.madv_dontneed_huge_pages),
        (Operation::MunmapPage, done.unmapped_pages),
        (Operation::MunmapHuge, done.unmapped_huge_pages),
        (Operation::SplitHuge, prediction.pmd_splits),
        (Operation::MmapCall, done.map_calls),
        (Operation::MunmapCall, done.unmap_calls),
        (Operation::MadviseCall, done.madvise_calls),
        (Operation::ForkCall, done.forks),
        (Operation::ForkPage, done.forked_pages),
    ] {
        work.add(operation, number);
    }
    // The pages that are present at the exit are dropped there.
    let huge_end = prediction.huge_pages_end;
    let small_end = (prediction.rss_bytes_end / PAGE_BYTES).saturating_sub(huge_end * hksim_linux_mm::PMD_PAGES);
    work.add(Operation::MunmapPage, small_end);
    work.add(Operation::MunmapHuge, huge_end);
    work
}

fn locality(spacing: Spacing) -> Locality {
    let share = |part: u64| part as f64 / spacing.touches.max(1) as f64;
    Locality { filling: share(spacing.filling), apart: share(spacing.apart), far: 0.0 }
}
