//! Writes to pages that `MADV_FREE` marked. They raise no fault while the page is present, so a recording does not have
//! them, and two things depend on them: whether the kernel can reclaim the page at a memory limit, and what the program
//! would pay if `MADV_DONTNEED` had dropped it. Both are predicted as ranges, between no such write and all of them.

use std::path::Path;

use hksim_linux_mm::{Access, Advice, Content, Kernel, KnownPages, LimitOutcome, MemoryLimit, Outcome};
use hksim_memory_trace::{Beginning, PAGE_BYTES};
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnseenWrites {
    /// Bytes in present pages that `MADV_FREE` marked, in all calls of all processes of the family, and those of which that
    /// is unknown at the start of a recording.
    pub marked_bytes: u64,
    /// With `--madv-free dontneed`: the smaller of the figures if none of these pages was written again, which are the
    /// prediction's own ones, and if all were at once. Writes can also save pages: a range that is partly dropped stays
    /// without a huge page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<RangeEnd>,
    /// The larger ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<RangeEnd>,
    /// With a memory limit: the least limit that the program survives if none of these pages was written again; in a fork
    /// family also, if the kernel took them at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_limit_bytes_min: Option<u64>,
    /// If a program without relatives is killed in any case: the last event in which that can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_max: Option<u64>,
}

/// Figures at one end of their ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeEnd {
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

impl RangeEnd {
    fn of(prediction: &Prediction) -> Self {
        let Prediction { installs, faults, traps, rss_bytes_peak, rss_bytes_end, .. } = *prediction;
        Self { installs: installs.total, faults, traps, rss_bytes_peak, rss_bytes_end }
    }

    /// The figures of two predictions, of each the one that `pick` takes.
    fn of_both(self, other: Self, pick: fn(u64, u64) -> u64) -> Self {
        Self {
            installs: pick(self.installs, other.installs),
            faults: pick(self.faults, other.faults),
            traps: pick(self.traps, other.traps),
            rss_bytes_peak: pick(self.rss_bytes_peak, other.rss_bytes_peak),
            rss_bytes_end: pick(self.rss_bytes_end, other.rss_bytes_end),
        }
    }
}

impl Prediction {
    /// The low ends of its ranges, which depend on whether the program wrote pages again that `MADV_FREE` had marked; its own
    /// figures where that makes no difference.
    pub fn at_least(&self) -> RangeEnd {
        self.unseen_writes.and_then(|unseen| unseen.at_least).unwrap_or_else(|| RangeEnd::of(self))
    }

    /// The high ends.
    pub fn at_most(&self) -> RangeEnd {
        self.unseen_writes.and_then(|unseen| unseen.at_most).unwrap_or_else(|| RangeEnd::of(self))
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
    widen_marked(path, settings, predictions)?;
    if predictions.iter().all(|prediction| prediction.memory_limit.is_none()) {
        return Ok(());
    }
    let at_start = |beginning| match beginning {
        Beginning::Attached { lazy_unknown_bytes, .. } => lazy_unknown_bytes,
        _ => 0,
    };
    let unknown_bytes = Family::open(path)?.recordings().map(|(_, header)| at_start(header.beginning)).sum();
    if unknown_bytes > 0 {
        predictions.iter_mut().for_each(|prediction| doubt(prediction, unknown_bytes));
    }
    Ok(())
}

/// Takes into account that so many of the bytes at the start may be given up, which the model takes for in use.
fn doubt(prediction: &mut Prediction, unknown_bytes: u64) {
    let Some(limit) = &mut prediction.memory_limit else { return };
    let Some(least) = limit.least_limit_bytes else { return };
    let unseen = prediction.unseen_writes.get_or_insert_default();
    unseen.marked_bytes += unknown_bytes;
    let low = unseen.least_limit_bytes_min.unwrap_or(least).saturating_sub(unknown_bytes);
    unseen.least_limit_bytes_min = Some(low);
    if limit.outcome == LimitOutcome::Killed && limit.limit_bytes >= low {
        limit.outcome = LimitOutcome::Unknown;
    }
}

fn widen_marked(path: &Path, settings: &[Setting], predictions: &mut [Prediction]) -> Result<(), FamilyError> {
    let marked = |index: &usize| predictions[*index].marked_pages > 0;
    let unsure: Vec<usize> = (0..predictions.len()).filter(marked).collect();
    if unsure.is_empty() {
        return Ok(());
    }
    let chosen: Vec<Setting> = unsure.iter().map(|&index| settings[index].clone()).collect();
    let family = Family::open(path)?;
    let has_relatives = family.members() > 1;
    let written = simulate_with(family, &chosen, Detail::Figures, AfterFree::WritesAll)?;
    let has_relatives = has_relatives || written.children_missing > 0;
    let reclaimed = if has_relatives { reclaimed_at_once(path, &chosen)? } else { vec![None; chosen.len()] };
    let least = least_limits(path, &chosen, AfterFree::WritesAll)?;
    for (((index, mut written), least), reclaimed) in
        unsure.into_iter().zip(written.predictions).zip(least).zip(reclaimed)
    {
        written.memory_limit.iter_mut().for_each(|limit| limit.least_limit_bytes = least);
        widen(&mut predictions[index], reclaimed, &written, has_relatives);
    }
    Ok(())
}

/// The limits if the kernel took all pages at once that `MADV_FREE` marked. The model does not reclaim pages that relatives
/// share, as the kernel does: this is the least that a family can need.
fn reclaimed_at_once(path: &Path, settings: &[Setting]) -> Result<Vec<Option<MemoryLimit>>, FamilyError> {
    let dropping = |setting: &Setting| Setting { madv_free: MadvFree::DontNeed, ..setting.clone() };
    let settings: Vec<Setting> = settings.iter().map(dropping).collect();
    let simulated = simulate_with(Family::open(path)?, &settings, Detail::Figures, AfterFree::NoWrite)?;
    let least = least_limits(path, &settings, AfterFree::NoWrite)?;
    let limit = |(prediction, least_limit_bytes): (Prediction, _)| {
        prediction.memory_limit.map(|limit| MemoryLimit { least_limit_bytes, ..limit })
    };
    Ok(simulated.predictions.into_iter().zip(least).map(limit).collect())
}

/// Makes a prediction without writes one for any writes, given the one with all of them; `reclaimed`: its limit, if memory can
/// be reclaimed that the model does not reclaim. Events of different processes have no common order.
fn widen(none: &mut Prediction, reclaimed: Option<MemoryLimit>, all: &Prediction, has_relatives: bool) {
    let [one, other] = [&*none, all].map(RangeEnd::of);
    let is_range = none.setting.madv_free == MadvFree::DontNeed && one != other;
    let end = |pick: fn(u64, u64) -> u64| is_range.then(|| one.of_both(other, pick));
    let limits = reclaimed.or_else(|| none.memory_limit.clone()).zip(all.memory_limit.clone());
    let is_alike = |(none, all): &(MemoryLimit, MemoryLimit)| verdict(none) == verdict(all);
    let limits = limits.filter(|limits| !is_alike(limits));
    if !is_range && limits.is_none() {
        return;
    }
    let mut unseen = UnseenWrites {
        marked_bytes: none.marked_pages * PAGE_BYTES,
        at_least: end(u64::min),
        at_most: end(u64::max),
        least_limit_bytes_min: None,
        event_max: None,
    };
    if let Some((without, with)) = limits {
        unseen.least_limit_bytes_min = without.least_limit_bytes.min(with.least_limit_bytes);
        let is_ordered = without.outcome == with.outcome && !has_relatives;
        unseen.event_max = without.event.max(with.event).filter(|_| is_ordered);
        none.memory_limit = Some(merged(without, with));
    }
    none.unseen_writes = Some(unseen);
}

/// What is said about a limit.
fn verdict(limit: &MemoryLimit) -> (LimitOutcome, Option<u64>, Option<u64>) {
    (limit.outcome, limit.event, limit.least_limit_bytes)
}

/// A limit for any writes: the first moment that can be fatal, and the least limit that is survived in any case.
fn merged(none: MemoryLimit, all: MemoryLimit) -> MemoryLimit {
    let outcome = if none.outcome == all.outcome { none.outcome } else { LimitOutcome::Unknown };
    let least_limit_bytes = none.least_limit_bytes.max(all.least_limit_bytes);
    let moment = |limit: &MemoryLimit| (limit.event.is_none(), limit.moment_ns, limit.event);
    let first = if moment(&all) <= moment(&none) { all } else { none };
    MemoryLimit { outcome, least_limit_bytes, ..first }
}
