//! Prediction minus measurement.

use hksim_replay::Replayed;
use hksim_sim::SimReport;
use serde::Serialize;

/// Installs by kind, predicted minus measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindResidual {
    /// 4 KiB pages.
    pub base_4k: i64,
    /// Folios between a page and a huge page.
    pub mthp: i64,
    /// Transparent huge pages.
    pub thp: i64,
    /// Pages of the hugetlb pool.
    pub hugetlb: i64,
    /// Zero pages.
    pub zero: i64,
    /// Pages in place of zero pages.
    pub cow: i64,
}

/// OS calls, predicted minus measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallResidual {
    /// `mmap`.
    pub mmap: i64,
    /// `munmap`.
    pub munmap: i64,
    /// `madvise`.
    pub madvise: i64,
    /// `mremap`.
    pub mremap: i64,
}

/// Prediction minus measurement, figure by figure; null where the machine could not measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Residual {
    /// All installs.
    pub installs: Option<i64>,
    /// Installs by kind.
    pub by_kind: Option<KindResidual>,
    /// Faults.
    pub faults: Option<i64>,
    /// Traps.
    pub traps: Option<i64>,
    /// Peak resident bytes.
    pub rss_bytes: Option<i64>,
    /// Resident bytes at the end.
    pub rss_bytes_end: Option<i64>,
    /// Mappings at their peak.
    pub vmas_peak: Option<i64>,
    /// OS calls.
    pub os_calls: Option<CallResidual>,
    /// Requests that failed.
    pub failed: i64,
    /// Whether every object was placed alike.
    pub placement_equal: Option<bool>,
    /// Pages present (or in that state) in the prediction only, over all marks.
    pub pages_only_predicted: Option<u64>,
    /// Pages present (or in that state) in the measurement only, over all marks.
    pub pages_only_measured: Option<u64>,
}

fn minus(predicted: u64, measured: u64) -> i64 {
    predicted.wrapping_sub(measured) as i64
}

impl Residual {
    /// Subtracts a measurement; `pages` are the differences over all marks.
    pub fn new(predicted: &SimReport, measured: &Replayed, pages: Option<(u64, u64)>) -> Residual {
        let less = |predicted: u64, measured: Option<u64>| measured.map(|measured| minus(predicted, measured));
        Residual {
            installs: measured.installs.map(|installs| minus(predicted.installs.total, installs.total)),
            by_kind: measured.installs.map(|measured| {
                let (ours, theirs) = (predicted.installs.by_kind, measured.by_kind);
                KindResidual {
                    base_4k: minus(ours.base_4k, theirs.base_4k),
                    mthp: minus(ours.mthp, theirs.mthp),
                    thp: minus(ours.thp, theirs.thp),
                    hugetlb: minus(ours.hugetlb, theirs.hugetlb),
                    zero: minus(ours.zero, theirs.zero),
                    cow: minus(ours.cow, theirs.cow),
                }
            }),
            faults: less(predicted.faults, measured.faults),
            traps: less(predicted.traps, measured.traps),
            rss_bytes: less(predicted.rss_bytes_peak, measured.rss_bytes_peak),
            rss_bytes_end: less(predicted.rss_bytes_end, measured.rss_bytes_end),
            vmas_peak: less(predicted.vmas_peak, measured.vmas_peak),
            os_calls: measured.os_calls.map(|theirs| {
                let ours = predicted.os_calls;
                CallResidual {
                    mmap: minus(ours.mmap, theirs.mmap),
                    munmap: minus(ours.munmap, theirs.munmap),
                    madvise: minus(ours.madvise, theirs.madvise),
                    mremap: minus(ours.mremap, theirs.mremap),
                }
            }),
            failed: minus(predicted.failed, measured.failed),
            placement_equal: measured.placement.as_ref().map(|placement| *placement == predicted.placement),
            pages_only_predicted: pages.map(|pages| pages.0),
            pages_only_measured: pages.map(|pages| pages.1),
        }
    }

    /// All differences added up without their signs; 0 iff everything that was measured equals its prediction.
    pub fn magnitude(&self) -> u64 {
        let kinds = self.by_kind.unwrap_or_default();
        let calls = self.os_calls.unwrap_or_default();
        let figures = [self.installs, self.faults, self.traps, self.rss_bytes, self.rss_bytes_end, self.vmas_peak];
        let signed = figures.into_iter().flatten().chain([
            kinds.base_4k,
            kinds.mthp,
            kinds.thp,
            kinds.hugetlb,
            kinds.zero,
            kinds.cow,
            calls.mmap,
            calls.munmap,
            calls.madvise,
            calls.mremap,
            self.failed,
        ]);
        let pages = [self.pages_only_predicted, self.pages_only_measured].into_iter().flatten();
        let placement = u64::from(self.placement_equal == Some(false));
        signed.map(i64::unsigned_abs).chain(pages).fold(placement, u64::saturating_add)
    }

    /// Whether everything that was measured equals its prediction.
    pub fn is_zero(&self) -> bool {
        self.magnitude() == 0
    }
}
