//! Why a measured run has other faults or pages than predicted.

use anyhow::Result;
use hksim_linux_probe::stale_entries::faults_by_stale_entries;
use hksim_memory_sim::{Family, Prediction};
use hksim_memory_trace::Beginning;

use super::compare::{Comparison, Subject};
use super::measure::{Program, Run};
use super::pages::pinned_pages;
use crate::output::units::{count, of};

/// Pages at the exit that were made present without an exception.
///
/// # Errors
/// A measured run cannot be read.
pub fn pinned(predictions: &[Prediction], runs: &[Run], program: &Program) -> Result<Option<String>> {
    let mut pages = 0;
    for (prediction, run) in predictions.iter().zip(runs) {
        let present = run.snapshot.as_ref().and_then(|snapshot| snapshot.present.as_ref());
        let (Some(present), Some(file)) = (present, program.file_in(&run.files)) else { continue };
        let touches = Family::open(&file.path)?.touches()?;
        pages = pages.max(pinned_pages(&prediction.pages, present, &touches));
    }
    Ok((pages > 0).then(|| {
        format!(
            "{} became present without an exception, so they are not recorded: system calls that pin memory (direct \
             input, io_uring, process_vm_readv) or userfaultfd",
            of(pages, "page")
        )
    }))
}

/// What can raise more faults than predicted. Empty if a run has fewer.
pub fn more_faults(subject: &Subject<'_>, comparison: &Comparison, predictions: &[Prediction]) -> Vec<String> {
    if !comparison.pairs().all(|(predicted, measured)| predicted.traps <= measured.traps) {
        return Vec::new();
    }
    let mut causes = Vec::new();
    let is_same_count = comparison.pages_differ.is_some_and(|[ours, theirs]| ours == theirs && ours > 0);
    if comparison.pages_split > 0 || is_same_count {
        causes.push(
            "the kernel frees pages of zeros when it splits a large folio (R10); later accesses to them raise faults \
             that the recording does not show"
                .to_string(),
        );
    }
    let is_forked = subject.recording.header.beginning != Beginning::Exec;
    let forks = |prediction: &Prediction| is_forked || prediction.page_work.forks > 0;
    let has_shared_huge = predictions.iter().any(|prediction| prediction.huge_pages_peak > 0 && forks(prediction));
    let is_same_memory = comparison.pages_differ == Some([0, 0]);
    if let Some(faults @ 1..) = (is_same_memory && has_shared_huge).then(faults_by_stale_entries).flatten() {
        causes.push(format!(
            "after a fork, this virtual machine raises additional faults in huge pages ({} in a test of one huge page), \
             because its TLB keeps outdated entries for their small pages",
            count(faults)
        ));
    }
    causes
}
