//! The verdict of a row: skipped, ok or failed, and which kernel rule a failure points at.

use hksim_replay::{Replayed, Skipped};
use hksim_sim::SimReport;
use serde::{Deserialize, Serialize};

use crate::checked::Checked;
use crate::residual::Residual;
use crate::stale::StaleEntries;

/// The claim about a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Every figure and every page equal the measurement.
    Exact,
    /// An unpredictable, counted event disturbed the replay. All differences are within what the number of these events
    /// can explain, and the allocator's actions equal the prediction.
    Bounded,
    /// Real threads ran in their own order. The figures are within the range of many runs.
    Statistical,
}

impl Class {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Bounded => "bounded",
            Class::Statistical => "statistical",
        }
    }
}

/// The judgement of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The class of the claim.
    pub class: Class,
    /// Whether the claim holds.
    pub verdict: Verdict,
    /// Why it does not hold, or a remark.
    pub reason: Option<String>,
}

impl Judged {
    /// Skipped, for this reason.
    pub fn skipped(reason: String) -> Judged {
        Judged::exact(Verdict::Skipped, Some(reason))
    }

    /// Whether the row failed by a difference that may not recur: a few faults while DAMON, reclaim or compaction was
    /// active, or only pages of `MADV_FREE`. These wait in batches of 31 on a processor that the replay may have left.
    /// A failure with another cause recurs.
    pub fn may_be_disturbed(&self, measured: &Replayed, residual: &Residual) -> bool {
        let by_others = others_ran(measured) && residual.is_few_faults();
        self.verdict == Verdict::Failed && (by_others || residual.is_lazy_free_only())
    }

    /// Adds the differences of earlier, possibly disturbed replays. If the row is now ok, the reason reports them. A
    /// failure that repeats is not attributed to the disturbance.
    pub fn after(mut self, differed: &[Judged]) -> Judged {
        let Some(first) = differed.first() else { return self };
        let (replays, reason) = (times(differed.len()), first.reason.as_deref().unwrap_or("no reason"));
        let before = if differed.iter().all(|judged| *judged == self) {
            format!("the same in {replays} before this one")
        } else {
            format!("{replays} before this one differed and may have been disturbed: {reason}")
        };
        self.reason = Some(self.reason.map_or(before.clone(), |reason| format!("{reason}; {before}")));
        self
    }

    fn exact(verdict: Verdict, reason: Option<String>) -> Judged {
        Judged { class: Class::Exact, verdict, reason }
    }
}

/// Whether the claim holds. The order makes the greatest verdict that of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// This machine cannot measure it.
    Skipped,
    /// It holds.
    Ok,
    /// It does not.
    Failed,
}

impl Verdict {
    /// The verdict in a table.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Skipped => "skipped",
            Verdict::Ok => "ok",
            Verdict::Failed => "FAILED",
        }
    }
}

/// Judges a row.
pub fn judge<P: Checked>(predicted: &SimReport<P>, measured: &Replayed, residual: &Residual) -> Judged {
    if let Some(reason) = P::lacks_here(predicted, measured) {
        return Judged::skipped(reason);
    }
    if let Some(stale) = StaleEntries::find(!predicted.forks.is_empty(), measured, residual) {
        let (verdict, reason) = match stale.confirm_here() {
            Ok(reason) => (Verdict::Ok, reason),
            Err(reason) => (Verdict::Failed, reason),
        };
        return Judged { class: Class::Bounded, verdict, reason: Some(reason) };
    }
    let unsound = unsound(measured);
    // An exact claim needs all pages and all kinds; without them the row is skipped.
    let is_needed = |skipped: &&Skipped| skipped.figure.contains("installs") || skipped.figure.contains("marks");
    if let (None, Some(skipped)) = (&unsound, measured.skipped.iter().find(is_needed)) {
        return Judged::skipped(not_measured(skipped));
    }
    let Some(reason) = unsound.or_else(|| (!residual.is_zero()).then(|| suspects(predicted, residual))) else {
        // Nothing predicted is compared with the processor's counters.
        let is_compared = |skipped: &&Skipped| skipped.figure != "dtlb";
        return Judged::exact(Verdict::Ok, measured.skipped.iter().find(is_compared).map(not_measured));
    };
    let environment = &measured.environment;
    let (collapses, fallbacks) =
        (environment.khugepaged_collapses.unwrap_or(0), environment.thp_fallbacks.unwrap_or(0));
    if collapses + fallbacks == 0 {
        return Judged::exact(Verdict::Failed, Some(reason));
    }
    let why = format!(
        "during the replay khugepaged collapsed {collapses} PMD ranges (R11) and {fallbacks} faults found no contiguous memory (R1, R2)"
    );
    let class = Class::Bounded;
    if residual.within_huge_pages(collapses + fallbacks) {
        Judged { class, verdict: Verdict::Ok, reason: Some(format!("{why}: this explains all differences")) }
    } else {
        Judged {
            class,
            verdict: Verdict::Failed,
            reason: Some(format!("{why}, which does not explain all differences: {reason}")),
        }
    }
}

/// Says why a figure was not measured.
pub(crate) fn not_measured(skipped: &Skipped) -> String {
    format!("{} not measured: {}", skipped.figure, skipped.reason)
}

/// Whether DAMON, reclaim or compaction was active on this machine during the replay.
fn others_ran(measured: &Replayed) -> bool {
    let environment = &measured.environment;
    [environment.damon_ns, environment.reclaim_scanned_pages].iter().flatten().any(|&count| count > 0)
}

fn times(replays: usize) -> String {
    if replays == 1 { "a replay".into() } else { format!("{replays} replays") }
}

/// Why a measurement is unreliable, if it is.
pub(crate) fn unsound(measured: &Replayed) -> Option<String> {
    let control = measured.control;
    if control.faults > 0 || control.traps.unwrap_or(0) > 0 {
        let traps = control.traps.unwrap_or(0);
        return Some(format!("the control run without a heap shows {} faults and {traps} traps", control.faults));
    }
    if let Some(lost) = measured.traps_lost.filter(|&lost| lost > 0) {
        return Some(format!("the kernel lost {lost} trap records"));
    }
    if let Some(pages) = measured.unclassified_pages.filter(|&pages| pages > 0) {
        return Some(format!("{pages} page changes match no kind of install"));
    }
    let contradictions: u64 = measured.marks.iter().map(|mark| mark.inconsistent_pages).sum();
    (contradictions > 0).then(|| format!("{contradictions} pages contradict the record of traps and calls"))
}

/// The rules about zero pages, and about copies after forks.
fn copy_suspects(forked: bool, residual: &Residual) -> Vec<&'static str> {
    let kinds = residual.installs_by_kind.unwrap_or_default();
    // Faults without an install restored write permission.
    let reuses = residual.faults.zip(residual.installs).map_or(0, |(faults, installs)| faults - installs);
    let mut found = Vec::new();
    if forked && (kinds.cow != 0 || reuses != 0) {
        found.push("R27 (first writes after a fork: shared pages are copied, others are written in place)");
    }
    if kinds.zero != 0 || (!forked && kinds.cow != 0) {
        found.push("R4 (zero page at a read, copied at a write)");
    }
    found
}

/// Names the rules (docs/reference/kernel-rules.md) that residuals point at.
fn suspects<P: Checked>(predicted: &SimReport<P>, residual: &Residual) -> String {
    let kinds = residual.installs_by_kind.unwrap_or_default();
    let calls = residual.os_calls.unwrap_or_default();
    let mut found: Vec<String> = Vec::new();
    if residual.placement_equal == Some(false) {
        found.push("placement differs: simulator and replay did not run the same allocator".into());
    }
    if calls.values() != [0; 4] {
        found.push("OS calls differ".into());
    }
    if residual.os_calls_failed.unwrap_or(0) < 0 {
        found.push(format!("the kernel refused {} more calls than predicted", -residual.os_calls_failed.unwrap_or(0)));
    }
    if kinds.thp != 0 && predicted.installs.by_reason.collapsed > 0 {
        found.push("R12 (MADV_COLLAPSE)".into());
    } else if kinds.thp != 0 {
        found.push(format!(
            "R1 (huge page at fault): {} predicted, {} measured",
            predicted.installs.by_kind.thp,
            predicted.installs.by_kind.thp.wrapping_sub(kinds.thp as u64)
        ));
    }
    if kinds.mthp != 0 {
        found.push("R3 (sizes between 4K and 2M at fault)".into());
    }
    if kinds.hugetlb != 0 {
        found.push("R13 (hugetlb)".into());
    }
    if predicted.policy.may_purge_lazily() && predicted.installs.by_kind.thp > 0 && predicted.pmd_splits > 0 {
        found.push("R10 (splitting maps zero-filled pages to the zero page)".into());
    }
    if residual.lazy_free_bytes.unwrap_or(0) > 0 {
        found.push("R9 (MADV_FREE marks pages, and a write removes the mark)".into());
    }
    if residual.page_table_bytes_unexplained.unwrap_or(0) > 0 {
        found.push("R15/R21 (page tables come with pages and go with whole huge pages)".into());
    }
    found.extend(copy_suspects(!predicted.forks.is_empty(), residual).into_iter().map(String::from));
    if predicted.installs.by_reason.refault_after_purge > 0 && residual.installs.unwrap_or(0) > 0 {
        found.push("R7/R8 (MADV_DONTNEED drops pages, and tables of whole huge pages)".into());
    }
    if predicted.installs.by_reason.populated > 0 && residual.traps.unwrap_or(0) < 0 {
        found.push("R24b (populate makes pages present: faults, but no traps)".into());
    }
    if residual.vmas_peak.unwrap_or(0) != 0 {
        found.push("R6/R14/R18 (merging of mappings)".into());
    }
    if found.is_empty() {
        found.push("no particular rule: compare by_kind and the page sets".into());
    }
    format!("layout residual {}, rule residual {}: {}", residual.layout(), residual.rules(), found.join("; "))
}

#[cfg(test)]
mod tests {
    use hksim_engine::ByKind;

    use super::*;

    fn named(forked: bool, cow: i64, zero: i64, faults: i64) -> Vec<&'static str> {
        let kinds = ByKind { cow, zero, base_4k: 0, mthp: 0, thp: 0, hugetlb: 0 };
        let installs = Some(cow + zero);
        let residual =
            Residual { installs_by_kind: Some(kinds), installs, faults: Some(faults), ..Residual::default() };
        let rule = |text: &'static str| text.split(' ').next().unwrap_or_default();
        copy_suspects(forked, &residual).into_iter().map(rule).collect()
    }

    #[test]
    fn copies_point_at_forks_where_there_were_some_and_at_zero_pages_else() {
        assert_eq!(named(true, -3, 0, -3), ["R27"]);
        assert_eq!(named(true, 0, 0, 2), ["R27"], "only what no longer is shared differs");
        assert_eq!(named(false, -3, 0, -3), ["R4"]);
        assert_eq!(named(true, -3, 2, -1), ["R27", "R4"]);
        assert_eq!(named(true, 0, 2, 2), ["R4"]);
        assert!(named(true, 0, 0, 0).is_empty() && named(false, 0, 0, 1).is_empty());
    }

    #[test]
    fn what_failed_beside_damon_or_compaction_is_not_believed_at_once() {
        let beside = |verdict, damon_ns, reclaim_scanned_pages| {
            let mut measured = Replayed::default();
            (measured.environment.damon_ns, measured.environment.reclaim_scanned_pages) =
                (damon_ns, reclaim_scanned_pages);
            Judged::exact(verdict, None).may_be_disturbed(&measured, &Residual::default())
        };
        assert!(beside(Verdict::Failed, Some(1), None) && beside(Verdict::Failed, Some(0), Some(7)));
        assert!(!beside(Verdict::Failed, Some(0), Some(0)) && !beside(Verdict::Failed, None, None));
        assert!(!beside(Verdict::Ok, Some(1), Some(1)));
        let failed = Judged::exact(Verdict::Failed, None);
        let lazy = Residual { lazy_free_bytes: Some(57_344), ..Residual::default() };
        assert!(failed.may_be_disturbed(&Replayed::default(), &lazy));
        assert!(!failed.may_be_disturbed(&Replayed::default(), &Residual { installs: Some(1), ..lazy }));
    }

    #[test]
    fn a_failure_that_comes_again_alike_is_not_put_down_to_others() {
        let failed = |reason: &str| Judged::exact(Verdict::Failed, Some(reason.into()));
        let reason_after = |last: Judged, differed: &[Judged]| last.after(differed).reason.unwrap_or_default();
        let ok = Judged::exact(Verdict::Ok, None);
        assert_eq!(ok.clone().after(&[]).reason, None);
        let twice = reason_after(ok, &[failed("R1"), failed("R2")]);
        assert_eq!(twice, "2 replays before this one differed and may have been disturbed: R1");
        assert_eq!(
            reason_after(failed("R1"), &[failed("R1"), failed("R1")]),
            "R1; the same in 2 replays before this one"
        );
        assert!(reason_after(failed("R1"), &[failed("R2")]).contains("disturbed: R2"));
    }
}
