//! Writes to pages that `MADV_FREE` marked. They raise no fault while the page is present, so a recording does not have
//! them, and two things depend on them: whether the kernel can reclaim the page at a memory limit, and what the program
//! would pay if `MADV_DONTNEED` had dropped it. Both are predicted as ranges, between no such write and all of them.

use std::path::Path;

use hksim_linux_mm::{Access, Advice, Content, Kernel, KnownPages, LimitOutcome, MemoryLimit, Outcome};
use hksim_memory_trace::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use crate::family::{Family, FamilyError};
use crate::least_limit::least_limits;
use crate::report::Prediction;
use crate::setting::{MadvFree, Setting};
use crate::simulate::{Detail, simulate_with};
use crate::steps::Action;

/// What the program does with present pages after it marked them by `MADV_FREE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AfterFree {
    /// It writes them only where the recording has a fault.
    #[default]
    NoWrite,
    /// It writes all of them again at once.
    WritesAll,
}

/// What depends on writes that the recording does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnseenWrites {
    /// Bytes in present pages that `MADV_FREE` marked, in all calls of all processes of the family.
    pub marked_bytes: u64,
    /// With `--madv-free dontneed`: the figures if all of these pages were written again at once. The prediction's own ones
    /// are those if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<AtMost>,
    /// With a memory limit: the least limit that the program survives if none of these pages was written again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_limit_bytes_min: Option<u64>,
    /// If the program is killed in any case: the last event in which that can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_max: Option<u64>,
}

/// Figures of a program that writes all pages again that `MADV_FREE` marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtMost {
    /// Page-table installs.
    pub installs: u64,
    /// Faults charged to `ru_minflt`.
    pub faults: u64,
    /// #PF exceptions in modelled memory.
    pub traps: u64,
    /// Highest resident bytes.
    pub rss_bytes_peak: u64,
    /// Resident bytes at the end.
    pub rss_bytes_end: u64,
}

impl AtMost {
    fn of(prediction: &Prediction) -> Self {
        let Prediction { installs, faults, traps, rss_bytes_peak, rss_bytes_end, .. } = *prediction;
        Self { installs: installs.total, faults, traps, rss_bytes_peak, rss_bytes_end }
    }
}

impl Prediction {
    /// Its figures if the program wrote all pages again that `MADV_FREE` had marked; its own ones where that makes no
    /// difference.
    pub fn at_most(&self) -> AtMost {
        self.unseen_writes.and_then(|unseen| unseen.at_most).unwrap_or_else(|| AtMost::of(self))
    }
}

/// The pages that an operation marks and that could be written without a fault, where the setting makes a difference
/// between those that are and those that are not.
pub(crate) fn marked_pages(setting: &Setting, kernel: &Kernel, action: &Action) -> u64 {
    let drops = setting.madv_free == MadvFree::DontNeed;
    match action {
        Action::Advise { pages, advice: Advice::Free, .. } if drops || setting.kernel.memory_limit_bytes.is_some() => {
            kernel.writable_without_fault(pages).into_iter().map(|pages| pages.end - pages.start).sum()
        }
        Action::KnowPages { pages, state: KnownPages::SmallLazy | KnownPages::HugeLazy }
            if setting.kernel.memory_limit_bytes.is_some() =>
        {
            pages.end - pages.start
        }
        _ => 0,
    }
}

impl AfterFree {
    /// `MADV_FREE` or what replaces it, with the writes that follow.
    pub fn advise(self, kernel: &mut Kernel, pages: &std::ops::Range<u64>, advice: Advice) -> Outcome {
        let written = match self {
            Self::NoWrite => Vec::new(),
            Self::WritesAll => kernel.writable_without_fault(pages),
        };
        let outcome = kernel.advise(pages.clone(), advice);
        for page in written.into_iter().flatten() {
            // The mapping allows it, so the page is there afterwards.
            let _ = kernel.touch(page, Access::Write(Content::NonZero));
        }
        outcome
    }

    /// The state of pages that are there when the recording begins.
    pub fn known(self, state: KnownPages) -> KnownPages {
        match (self, state) {
            (Self::WritesAll, KnownPages::SmallLazy) => KnownPages::Small,
            (Self::WritesAll, KnownPages::HugeLazy) => KnownPages::Huge,
            (_, state) => state,
        }
    }
}

/// Completes predictions, each of which has its setting's index: the least limits that are survived, and what depends on
/// writes that the recording does not have.
///
/// # Errors
/// The recording cannot be read.
pub(crate) fn complete(path: &Path, settings: &[Setting], predictions: &mut [Prediction]) -> Result<(), FamilyError> {
    for (prediction, least) in predictions.iter_mut().zip(least_limits(path, settings, AfterFree::NoWrite)?) {
        prediction.memory_limit.iter_mut().for_each(|limit| limit.least_limit_bytes = least);
    }
    let marked = |index: &usize| predictions[*index].marked_pages > 0;
    let unsure: Vec<usize> = (0..predictions.len()).filter(marked).collect();
    if unsure.is_empty() {
        return Ok(());
    }
    let chosen: Vec<Setting> = unsure.iter().map(|&index| settings[index].clone()).collect();
    let written = simulate_with(Family::open(path)?, &chosen, Detail::Figures, AfterFree::WritesAll)?.predictions;
    let least = least_limits(path, &chosen, AfterFree::WritesAll)?;
    for ((index, mut written), least) in unsure.into_iter().zip(written).zip(least) {
        written.memory_limit.iter_mut().for_each(|limit| limit.least_limit_bytes = least);
        widen(&mut predictions[index], &written);
    }
    Ok(())
}

/// Makes a prediction without writes one for any writes, given the one with all of them.
fn widen(none: &mut Prediction, all: &Prediction) {
    let most = AtMost::of(all);
    let at_most = (none.setting.madv_free == MadvFree::DontNeed && AtMost::of(none) != most).then_some(most);
    let limits = none.memory_limit.clone().zip(all.memory_limit.clone());
    let is_alike = |(none, all): &(MemoryLimit, MemoryLimit)| verdict(none) == verdict(all);
    let limits = limits.filter(|limits| !is_alike(limits));
    if at_most.is_none() && limits.is_none() {
        return;
    }
    let mut unseen = UnseenWrites {
        marked_bytes: none.marked_pages * PAGE_BYTES,
        at_most,
        least_limit_bytes_min: None,
        event_max: None,
    };
    if let Some((without, with)) = limits {
        unseen.least_limit_bytes_min = without.least_limit_bytes.min(with.least_limit_bytes);
        unseen.event_max = without.event.max(with.event).filter(|_| without.outcome == with.outcome);
        none.memory_limit = Some(merged(without, with));
    }
    none.unseen_writes = Some(unseen);
}

/// What is said about a limit.
fn verdict(limit: &MemoryLimit) -> (LimitOutcome, Option<u64>, Option<u64>) {
    (limit.outcome, limit.event, limit.least_limit_bytes)
}

/// A limit for any writes: the first event that can be fatal, and the least limit that is survived in any case.
fn merged(none: MemoryLimit, all: MemoryLimit) -> MemoryLimit {
    let outcome = if none.outcome == all.outcome { none.outcome } else { LimitOutcome::Unknown };
    let least_limit_bytes = none.least_limit_bytes.max(all.least_limit_bytes);
    let event = |limit: &MemoryLimit| limit.event.unwrap_or(u64::MAX);
    let first = if event(&all) <= event(&none) { all } else { none };
    MemoryLimit { outcome, least_limit_bytes, ..first }
}
