//! What khugepaged may change of a prediction, and what it leaves in the end, in words.

use hksim_linux_mm::{KhugepagedAtEnd, KhugepagedBound, KhugepagedSettled};
use hksim_sim::SimReport;
use hksim_text::units::{bytes, count};
use serde::Deserialize;

/// What a prediction says about khugepaged.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Effects {
    #[serde(rename = "khugepaged_bound")]
    bound: Option<KhugepagedBound>,
    #[serde(rename = "khugepaged_at_end")]
    at_end: Option<KhugepagedAtEnd>,
    #[serde(rename = "khugepaged_settled")]
    settled: Option<KhugepagedSettled>,
}

impl Effects {
    /// The lines about khugepaged; none where it has nothing to do.
    pub fn lines(self) -> Vec<String> {
        let bound = self.bound.filter(|bound| bound.huge_pages_max > 0);
        bound.map(at_most).into_iter().chain(self.at_end.map(at_end)).chain(self.settled.map(settled)).collect()
    }
}

/// The lines about khugepaged; none where it has nothing to do.
pub fn lines<P>(report: &SimReport<P>) -> Vec<String> {
    let SimReport { khugepaged_bound: bound, khugepaged_at_end: at_end, khugepaged_settled: settled, .. } = *report;
    Effects { bound, at_end, settled }.lines()
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
    let folios = match settled.scan.collapsed_folios {
        0 => String::new(),
        made => format!(", {} smaller folios made", count(made)),
    };
    format!(
        "at the end, once khugepaged has scanned everything: RSS {}, {} huge pages ({} ranges collapsed{folios}: {} pages \
         copied, {} cleared)",
        bytes(settled.rss_bytes),
        count(settled.huge_pages),
        count(settled.scan.collapsed_pmds),
        count(settled.scan.copied_pages),
        count(settled.scan.zeroed_pages)
    )
}
