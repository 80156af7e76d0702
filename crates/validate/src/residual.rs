//! Prediction minus measurement.

use hksim_engine::{ByKind, Fallbacks, OsCalls};
use hksim_policy::{ALIGN_BYTES_MAX, HUGE_PAGE_BYTES, PAGE_BYTES};
use hksim_replay::{Mark, Replayed};
use hksim_sim::SimReport;
use hksim_sim::simulate::MarkedPages;
use serde::{Deserialize, Serialize};

use crate::checked::Checked;

/// Prediction minus measurement for each figure; null if the machine cannot measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residual {
    /// Installs.
    pub installs: Option<i64>,
    /// Installs by kind.
    pub installs_by_kind: Option<ByKind<i64>>,
    /// Faults.
    pub faults: Option<i64>,
    /// Traps.
    pub traps: Option<i64>,
    /// Peak resident bytes.
    pub rss_bytes_peak: Option<i64>,
    /// Resident bytes at the end.
    pub rss_bytes_end: Option<i64>,
    /// Peak number of mappings.
    pub vmas_peak: Option<i64>,
    /// OS calls.
    pub os_calls: Option<OsCalls<i64>>,
    /// OS calls that the kernel refused.
    pub os_calls_failed: Option<i64>,
    /// SuperSlabs for which hugetlb pages were refused.
    pub fallbacks: Option<Fallbacks<i64>>,
    /// Offset of the reservation from a multiple of the largest alignment; 0 is correct.
    pub misaligned_bytes: Option<u64>,
    /// Requests that failed.
    pub requests_failed: i64,
    /// Whether prediction and measurement place all objects at the same positions.
    pub placement_equal: Option<bool>,
    /// Pages present (or in that state) in the prediction only, over all marks.
    pub pages_only_predicted: Option<u64>,
    /// Pages present (or in that state) in the measurement only, over all marks.
    pub pages_only_measured: Option<u64>,
    /// Bytes given up by `MADV_FREE` and not written since: sum of absolute differences over all marks.
    pub lazy_free_bytes: Option<u64>,
    /// Peak page-table memory. If SuperSlabs have separate mappings, the kernel may use page tables that the process
    /// had before. The prediction does not know these, so it may be higher by their size.
    pub page_table_bytes_peak: Option<i64>,
    /// The part of that difference that earlier page tables cannot explain.
    pub page_table_bytes_unexplained: Option<u64>,
}

/// Differences at the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarksResidual {
    pages_only_predicted: u64,
    pages_only_measured: u64,
    /// `None` if the kernel did not report it.
    lazy_free_bytes: Option<u64>,
}

impl MarksResidual {
    /// Compares all marks. `None` if the replay has none.
    pub fn new(predicted: &[MarkedPages], measured: &Replayed) -> Option<MarksResidual> {
        if measured.marks.is_empty() {
            return None;
        }
        let nothing = Mark::default();
        let one = |mark: &MarkedPages| {
            let theirs = measured.marks.iter().find(|theirs| theirs.event == mark.event).unwrap_or(&nothing);
            let (only_ours, only_theirs) = mark.pages.symmetric_difference(&theirs.pages);
            MarksResidual {
                pages_only_predicted: only_ours.pages_total(),
                pages_only_measured: only_theirs.pages_total(),
                lazy_free_bytes: theirs.lazy_free_bytes.map(|bytes| bytes.abs_diff(mark.lazy_free_bytes)),
            }
        };
        predicted.iter().map(one).reduce(|sum, one| MarksResidual {
            pages_only_predicted: sum.pages_only_predicted + one.pages_only_predicted,
            pages_only_measured: sum.pages_only_measured + one.pages_only_measured,
            lazy_free_bytes: sum.lazy_free_bytes.zip(one.lazy_free_bytes).map(|(sum, one)| sum + one),
        })
    }
}

fn minus(predicted: u64, measured: u64) -> i64 {
    predicted.wrapping_sub(measured) as i64
}

/// The unexplained part of a difference in page-table memory, in bytes.
fn page_tables_unexplained<P: Checked>(predicted: &SimReport<P>, measured: &Replayed) -> Option<u64> {
    let surplus = minus(predicted.page_table_bytes_peak, measured.page_table_bytes_peak?);
    let shared_max = if predicted.policy.has_chosen_addresses() { measured.page_table_bytes_start? as i64 } else { 0 };
    Some(if (0..=shared_max).contains(&surplus) { 0 } else { surplus.unsigned_abs() })
}

impl Residual {
    /// Subtracts a measurement; `marks` are the differences over all marks.
    pub fn new<P: Checked>(predicted: &SimReport<P>, measured: &Replayed, marks: Option<MarksResidual>) -> Residual {
        let less = |predicted: u64, measured: Option<u64>| measured.map(|measured| minus(predicted, measured));
        Residual {
            installs: measured.installs.map(|installs| minus(predicted.installs.total, installs.total)),
            installs_by_kind: measured.installs.map(|theirs| predicted.installs.by_kind.with(theirs.by_kind, minus)),
            faults: less(predicted.faults, measured.faults),
            traps: less(predicted.traps, measured.traps),
            rss_bytes_peak: less(predicted.rss_bytes_peak, measured.rss_bytes_peak),
            rss_bytes_end: less(predicted.rss_bytes_end, measured.rss_bytes_end),
            vmas_peak: less(predicted.vmas_peak, measured.vmas_peak),
            os_calls: measured.os_calls.map(|theirs| predicted.os_calls.with(theirs, minus)),
            os_calls_failed: less(predicted.os_calls_failed, measured.os_calls_failed),
            fallbacks: measured.fallbacks.map(|theirs| predicted.fallbacks.with(theirs, minus)),
            misaligned_bytes: measured.base_address.map(|base| base % ALIGN_BYTES_MAX),
            requests_failed: minus(predicted.requests_failed, measured.requests_failed),
            placement_equal: measured
                .placement_digest
                .as_ref()
                .map(|placement| *placement == predicted.placement_digest),
            pages_only_predicted: marks.map(|marks| marks.pages_only_predicted),
            pages_only_measured: marks.map(|marks| marks.pages_only_measured),
            lazy_free_bytes: marks.and_then(|marks| marks.lazy_free_bytes),
            page_table_bytes_peak: less(predicted.page_table_bytes_peak, measured.page_table_bytes_peak),
            page_table_bytes_unexplained: page_tables_unexplained(predicted, measured),
        }
    }

    /// The sum of all absolute differences; 0 iff all measured figures equal their prediction.
    pub fn magnitude(&self) -> u64 {
        self.layout().saturating_add(self.rules())
    }

    /// Differences in placement: the allocator's decisions, and the address of its reservation. A row with such a
    /// difference says nothing about the kernel's rules.
    pub fn layout(&self) -> u64 {
        let placement = u64::from(self.placement_equal == Some(false));
        let misaligned = u64::from(self.misaligned_bytes.is_some_and(|bytes| bytes > 0));
        placement + misaligned + self.requests_failed.unsigned_abs()
    }

    /// Differences in what the kernel did.
    pub fn rules(&self) -> u64 {
        let figures = [self.installs, self.faults, self.traps, self.rss_bytes_peak, self.rss_bytes_end, self.vmas_peak];
        let kinds = self.installs_by_kind.unwrap_or_default().values();
        let calls = self.os_calls.unwrap_or_default().values();
        let refused = self.fallbacks.unwrap_or_default().values().into_iter().chain(self.os_calls_failed);
        let signed = figures.into_iter().flatten().chain(kinds).chain(calls).chain(refused);
        let pages = [
            self.pages_only_predicted,
            self.pages_only_measured,
            self.lazy_free_bytes,
            self.page_table_bytes_unexplained,
        ];
        let pages = pages.into_iter().flatten();
        signed.map(i64::unsigned_abs).chain(pages).fold(0, u64::saturating_add)
    }

    /// Whether this number of huge pages, more or fewer than predicted, can explain all differences. A huge page
    /// accounts for up to 512 pages, each installed twice if it is read and then written. Placement and calls must be
    /// equal.
    pub fn within_huge_pages(&self, huge_pages: u64) -> bool {
        let installs_max = huge_pages.saturating_mul(2 * HUGE_PAGE_BYTES / PAGE_BYTES);
        let bytes_max = huge_pages.saturating_mul(HUGE_PAGE_BYTES);
        let within = |figures: &[Option<i64>], most: u64| figures.iter().flatten().all(|n| n.unsigned_abs() <= most);
        let thp = self.installs_by_kind.map(|kinds| kinds.thp);
        let calls = self.os_calls.unwrap_or_default().values();
        self.layout() == 0
            && calls == [0; 4]
            && within(&[self.installs, self.faults, self.traps], installs_max)
            && within(&[self.rss_bytes_peak, self.rss_bytes_end], bytes_max)
            && within(&[thp], huge_pages)
    }

    /// Whether only a few faults differ: placement, calls and mappings equal the prediction.
    pub fn is_few_faults(&self) -> bool {
        const FEW: u64 = 16;
        let faults = [self.installs, self.faults, self.traps];
        self.layout() == 0
            && self.os_calls.unwrap_or_default().values() == [0; 4]
            && [self.vmas_peak, self.os_calls_failed].iter().flatten().all(|&n| n == 0)
            && faults.iter().flatten().all(|n| n.unsigned_abs() <= FEW)
    }

    /// Whether the only differences are in the bytes marked by `MADV_FREE`.
    pub fn is_lazy_free_only(&self) -> bool {
        self.lazy_free_bytes.is_some_and(|bytes| bytes > 0 && bytes == self.magnitude())
    }

    /// Whether all measured figures equal their prediction.
    pub fn is_zero(&self) -> bool {
        self.magnitude() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_huge_page_explains_512_pages_and_no_other_call() {
        let kinds = ByKind { thp: 1, base_4k: -512, mthp: 0, hugetlb: 0, zero: 0, cow: 0 };
        let lost =
            Residual { installs: Some(-511), faults: Some(-511), installs_by_kind: Some(kinds), ..Residual::default() };
        assert!(lost.within_huge_pages(1) && !lost.within_huge_pages(0));
        let twice = Residual { faults: Some(-2), traps: Some(-2), ..Residual::default() };
        let elsewhere = Residual { placement_equal: Some(false), ..twice };
        assert!(twice.is_few_faults() && !lost.is_few_faults() && !elsewhere.is_few_faults());
        let too_many = Residual { installs: Some(-1025), ..lost };
        assert!(!too_many.within_huge_pages(1) && too_many.within_huge_pages(2));
        let calls = OsCalls { madvise: 1, mmap: 0, munmap: 0, mremap: 0 };
        assert!(!Residual { os_calls: Some(calls), ..lost }.within_huge_pages(9));
        assert!(!Residual { placement_equal: Some(false), ..lost }.within_huge_pages(9));
    }
}
