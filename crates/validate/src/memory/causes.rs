//! Why a measured run has other faults or pages than predicted.

use hksim_linux_mm::PMD_PAGES;
use hksim_linux_probe::stale_entries::{Cause, additional_faults};
use hksim_memory_sim::{Family, Prediction};
use hksim_memory_trace::Beginning;
use hksim_policy::HUGE_PAGE_BYTES;

use super::compare::{Comparison, Subject};
use super::figures::Figures;
use super::measure::{Program, Run};
use super::pages::pinned_pages;
use crate::error::ValidateError;
use hksim_text::units::{count, of};

/// Pages at the exit that were made present without an exception.
///
/// # Errors
/// A measured run cannot be read.
pub(crate) fn pinned(
    predictions: &[Prediction],
    runs: &[Run],
    program: &Program,
) -> Result<Option<String>, ValidateError> {
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
pub(crate) fn more_faults(comparison: &Comparison) -> Vec<String> {
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
    causes
}

/// More faults by outdated TLB entries of a virtual machine, if they explain all differences and this machine shows them.
pub(crate) fn stale_entries(
    subject: &Subject<'_>,
    comparison: &Comparison,
    predictions: &[Prediction],
) -> Option<String> {
    /// Additional faults of a huge page: all its small pages but the one whose fault changes the page table.
    const FAULTS_MAX: u64 = PMD_PAGES - 1;
    let is_forked = subject.recording.header.beginning != Beginning::Exec;
    let (mut faults, mut has_forks, mut has_pool) = (0, is_forked, false);
    for ((predicted, measured), prediction) in comparison.pairs().zip(predictions) {
        let more = measured.traps.checked_sub(predicted.traps)?;
        let pool_pages = prediction.hugetlb_bytes_peak / HUGE_PAGE_BYTES;
        let has_others = Figures { traps: measured.traps, ..*predicted }.distance(measured) > 0;
        if has_others
            || !predicted.peak_holds(measured)
            || more > FAULTS_MAX * (prediction.huge_pages_peak + pool_pages)
        {
            return None;
        }
        faults += more;
        has_forks |= prediction.page_work.operations.forks > 0;
        has_pool |= pool_pages > 0;
    }
    let cause = match (has_forks, has_pool) {
        (true, _) => Cause::Fork,
        (false, true) => Cause::PoolPageRead,
        (false, false) => return None,
    };
    let is_same_memory = comparison.pages_differ.is_none_or(|pages| pages == [0, 0]);
    let found = additional_faults(cause).filter(|&found| found > 0 && faults > 0 && is_same_memory)?;
    Some(format!(
        "{} more than predicted in huge pages that are made writable again, and no other difference: this virtual machine \
         keeps outdated TLB entries ({} more in a test of one huge page)",
        of(faults, "fault"),
        count(found)
    ))
}
