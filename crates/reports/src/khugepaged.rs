//! What khugepaged may change of a prediction, and what it leaves in the end, in words.

use hksim_linux_mm::{KhugepagedAtEnd, KhugepagedBound, KhugepagedSettled};
use hksim_sim::SimReport;
use hksim_text::units::{bytes, count};

/// The lines about khugepaged; none where it has nothing to do.
pub fn lines<P>(report: &SimReport<P>) -> Vec<String> {
    let bound = report.khugepaged_bound.filter(|bound| bound.huge_pages_max > 0);
    let bound = bound.map(at_most).into_iter();
    bound.chain(report.khugepaged_at_end.map(at_end)).chain(report.khugepaged_settled.map(settled)).collect()
}

/// What may differ if khugepaged is active.
fn at_most(bound: KhugepagedBound) -> String {
    format!(
        "khugepaged, not in these figures, could create {} huge pages: RSS up to {} more, installs up to {} fewer",
        count(bound.huge_pages_max),
        bytes(bound.rss_bytes_extra_max),
        count(bound.installs_avoided_max)
    )
}

/// Memory at the end if khugepaged has worked at its pace.
fn at_end(most: KhugepagedAtEnd) -> String {
    format!(
        "at the end, with khugepaged at its pace: RSS up to {}, up to {} huge pages",
        bytes(most.rss_bytes_max),
        count(most.huge_pages_max)
    )
}

/// Memory once khugepaged has settled.
fn settled(settled: KhugepagedSettled) -> String {
    format!(
        "at the end, once khugepaged has scanned everything: RSS {}, {} huge pages ({} ranges collapsed: {} pages \
         copied, {} cleared)",
        bytes(settled.rss_bytes),
        count(settled.huge_pages),
        count(settled.scan.collapsed_pmds),
        count(settled.scan.copied_pages),
        count(settled.scan.zeroed_pages)
    )
}
