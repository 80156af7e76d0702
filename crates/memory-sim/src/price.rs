//! The system time of a prediction, from a machine's profile.

use hksim_cost_model::{Caches, Calls, KernelWork, Locality, Operation, Profile, SystemTime, Work};

use crate::page_work::Spacing;
use crate::report::Prediction;

/// The time in the kernel that the modelled operations of a prediction take.
pub fn system_time(prediction: &Prediction, profile: &Profile) -> SystemTime {
    SystemTime::of(&work(prediction), profile)
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
        caches: Caches::Warm(prediction.rss_bytes_peak),
        pmd_splits: prediction.pmd_splits,
        reuses: prediction.reuses,
        calls: Calls {
            map: done.calls.map_calls,
            unmap: done.calls.unmap_calls,
            advise: done.calls.madvise_calls,
            remap: done.calls.remap_calls,
        },
    });
    work.add(Operation::MunmapPage, done.at_exit.pages - done.at_exit.folio_pages);
    work.add(Operation::DropFolioPage, done.at_exit.folio_pages);
    work.add(Operation::MunmapHuge, done.at_exit.huge_pages);
    work.add(Operation::HugetlbDrop, done.at_exit.hugetlb_pages);
    work
}

fn locality(spacing: Spacing) -> Locality {
    let share = |part: u64| part as f64 / spacing.touches.max(1) as f64;
    Locality { filling: share(spacing.filling), apart: share(spacing.apart), ..Locality::default() }
}
