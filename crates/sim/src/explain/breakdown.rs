//! Installs by every key that explains them. The sums over each key are equal.

use std::collections::BTreeMap;

use hksim_linux_mm::InstallKind;

use crate::accounting::{LoggedInstalls, Reason};
use crate::memory::PageUse;

/// Who caused an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin<T> {
    /// The allocator's start, before the first event.
    Start,
    /// Something in the trace.
    Trace(T),
}

/// Everything that is known of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstallKey {
    /// Why it was made.
    pub reason: Reason,
    /// What the page is used for.
    pub page_use: PageUse,
    /// The SuperSlab; `None` for the allocator's tables, for memory outside its mappings, and for allocators without
    /// SuperSlabs.
    pub superslab: Option<u32>,
    /// The call site that allocated the event's object; 0 if it is unknown or the event has no object.
    pub site: Origin<u32>,
    /// The thread of the event.
    pub thread: Origin<u32>,
    /// The number of marks that were passed before, and the name of the last one.
    pub phase: Origin<Option<u32>>,
    /// The interval of the trace's time, 0 to [`INTERVALS`] - 1.
    pub interval: usize,
}

/// Installs that are the same work for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstallWork {
    /// Of a kind, and neither of the others.
    Kind(InstallKind),
    /// Single pages that a call populated.
    Populated,
    /// Huge pages that a call collapsed.
    Collapsed,
}

impl InstallWork {
    /// The work of installs.
    pub(crate) fn of(logged: &LoggedInstalls) -> InstallWork {
        match (logged.reason, logged.kind, logged.touched) {
            (Reason::Collapsed, ..) => InstallWork::Collapsed,
            (_, InstallKind::Base4k, None) => InstallWork::Populated,
            (_, kind, _) => InstallWork::Kind(kind),
        }
    }
}

/// Number of intervals that the trace's time is divided into.
pub const INTERVALS: usize = 20;

/// Installs by every key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// By reason.
    pub reason: BTreeMap<Reason, u64>,
    /// By use of the page.
    pub page_use: BTreeMap<PageUse, u64>,
    /// By SuperSlab.
    pub superslab: BTreeMap<Option<u32>, u64>,
    /// By call site.
    pub site: BTreeMap<Origin<u32>, u64>,
    /// By thread.
    pub thread: BTreeMap<Origin<u32>, u64>,
    /// By the last mark before, a number of the trace's list of mark names.
    pub phase: BTreeMap<Origin<Option<u32>>, u64>,
    /// By interval of time. Of equal length; the last ends with the trace.
    pub time: [u64; INTERVALS],
    /// By reason and use, at the start and later.
    pub causes: BTreeMap<CauseKey, u64>,
}

/// What one cause of installs has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CauseKey {
    /// The reason.
    pub reason: Reason,
    /// Whether they were made at the allocator's start, before the first event.
    pub at_start: bool,
    /// What the pages are used for.
    pub page_use: PageUse,
}

impl Breakdown {
    /// Adds installs with equal keys.
    pub fn add(&mut self, key: InstallKey, installs: u64) {
        let InstallKey { reason, page_use, superslab, site, thread, phase, interval } = key;
        *self.reason.entry(reason).or_default() += installs;
        *self.page_use.entry(page_use).or_default() += installs;
        *self.superslab.entry(superslab).or_default() += installs;
        *self.site.entry(site).or_default() += installs;
        *self.thread.entry(thread).or_default() += installs;
        *self.phase.entry(phase).or_default() += installs;
        self.time[interval] += installs;
        let cause = CauseKey { reason, at_start: thread == Origin::Start, page_use };
        *self.causes.entry(cause).or_default() += installs;
    }
}
