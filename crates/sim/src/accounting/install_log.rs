//! The installs of a run, one by one, for an explanation of where they come from.

use std::ops::Range;

use hksim_linux_mm::{InstallKind, InstallRun, PMD_PAGES};

use super::by_reason::Reason;

/// Installs of consecutive pages for one reason. Pages are those of the simulated address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedInstalls {
    /// The kind of the entries.
    pub kind: InstallKind,
    /// The pages that became present, or changed.
    pub pages: Range<u64>,
    /// Number of installs: one for each page, or for each folio.
    pub installs: u64,
    /// Their reason.
    pub reason: Reason,
    /// The page that was touched; `None` if a system call installed the pages.
    pub touched: Option<u64>,
}

impl LoggedInstalls {
    pub(super) fn of(run: InstallRun, reason: Reason, touched: Option<u64>) -> LoggedInstalls {
        let pages = run.first_page..run.first_page + run.pages;
        LoggedInstalls { kind: run.kind, pages, installs: run.installs, reason, touched }
    }

    /// Divides the installs at a page: those before it, and those from it on.
    fn split(self, at: u64) -> (LoggedInstalls, LoggedInstalls) {
        let at = at.clamp(self.pages.start, self.pages.end);
        let each = (self.pages.end - self.pages.start) / self.installs.max(1);
        let before = (at - self.pages.start).div_ceil(each.max(1)).min(self.installs);
        let first = LoggedInstalls { pages: self.pages.start..at, installs: before, ..self.clone() };
        let second = LoggedInstalls { pages: at..self.pages.end, installs: self.installs - before, ..self };
        (first, second)
    }
}

/// The installs since the log was last taken. Off by default.
#[derive(Clone, Debug, Default)]
pub(super) struct InstallLog(Option<Vec<LoggedInstalls>>);

impl InstallLog {
    pub(super) fn switch_on(&mut self) {
        self.0.get_or_insert_default();
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn push(&mut self, run: InstallRun, reason: Reason, touched: Option<u64>) {
        if let Some(log) = &mut self.0
            && run.installs > 0
        {
            log.push(LoggedInstalls::of(run, reason, touched));
        }
    }

    pub(super) fn take(&mut self) -> Vec<LoggedInstalls> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Gives the populated pages of a range another reason: they are the excess of an aligned mapping. As in the
    /// accounting, huge pages count only if they are entirely inside the range.
    pub(super) fn trimmed(&mut self, pages: &Range<u64>) {
        let Some(log) = &mut self.0 else { return };
        for logged in std::mem::take(log) {
            let overlaps = logged.pages.start < pages.end && pages.start < logged.pages.end;
            if logged.reason != Reason::Populated || !overlaps {
                log.push(logged);
                continue;
            }
            let whole = if logged.kind == InstallKind::Thp { PMD_PAGES } else { 1 };
            let (before, rest) = logged.split(pages.start.next_multiple_of(whole));
            let (excess, after) = rest.split(pages.end / whole * whole);
            let excess = LoggedInstalls { reason: Reason::AlignmentExcess, ..excess };
            log.extend([before, excess, after].into_iter().filter(|part| part.installs > 0));
        }
    }
}
