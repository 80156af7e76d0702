//! Feeds the touches and OS calls of one placement to one kernel model. Counts OS calls, and installs by kind and by
//! reason.

mod by_reason;
mod conversions;
mod install_log;
mod memory_limit;
mod memory_policy;
mod samples;

use std::mem;
use std::ops::Range;

use hksim_engine::{ByKind, OsCalls};
use hksim_policy::Errno;
use hksim_policy::memory::{Advice, Locking, Mapping, MemoryLock};
use rangemap::RangeSet;

use crate::addresses::{AddressLabel, AddressProvider, Addresses};
use crate::forks::{ForkReport, Forks, Present};
use crate::kernel_work::{FaultSpacing, KernelWork};
use crate::observer::{Accesses, AccountingObserver, Cause, MemoryObserver, Touch};
use crate::report::MemoryPolicyLabel;
use crate::timeline::Timeline;
pub use by_reason::{ByReason, Reason};
use conversions::{errno, kernel_advice, map_flags};
use hksim_linux_mm::{
    self as kernel, Access, Content, Install, InstallKind, InstallRun, Kernel, PAGE_BYTES, PMD_PAGES, RemapSource,
    Signal,
};
use install_log::InstallLog;
pub use install_log::LoggedInstalls;
pub(crate) use memory_limit::LimitExceeded;

/// The operation that caused an install.
#[derive(Clone, Copy)]
enum InstalledBy {
    /// A touch of a page.
    Touch(Cause, u64),
    /// A populating system call.
    Populate,
    /// MADV_COLLAPSE.
    Collapse,
    /// A write to a page shared with a child.
    CopyOnWrite(u64),
}

/// Peak values. Resident bytes include hugetlb pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Bytes in hugetlb pages.
    pub hugetlb_bytes: u64,
    /// Mappings.
    pub vmas: u64,
    /// Bytes of page tables.
    pub page_table_bytes: u64,
    /// Mapped transparent huge pages.
    pub huge_pages: u64,
}

/// A kernel model with the accounting of its installs.
#[derive(Clone)]
pub struct Accounting {
    kernel: Kernel,
    by_reason: ByReason,
    log: InstallLog,
    os_calls: OsCalls,
    os_calls_failed: u64,
    peaks: Peaks,
    /// Highest resident bytes since the last sample of the timeline.
    interval_peak_bytes: u64,
    timeline: Timeline,
    fault_spacing: FaultSpacing,
    huge_fault_spacing: FaultSpacing,
    /// Events performed so far.
    events: u64,
    /// Events performed before the event of the last install by an access.
    events_at_install: u64,
    forks: Forks,
    /// Pages that held data when they were purged or unmapped.
    purged: RangeSet<u64>,
    /// PMD ranges that were mapped by a huge page and have not been dropped as a whole since.
    once_huge: RangeSet<u64>,
    provider: AddressProvider,
    memory_policy: MemoryPolicyLabel,
    /// Events performed before the event in which an access raised SIGBUS.
    killed_at: Option<u64>,
    /// The event that exceeded the memory limit.
    limit_exceeded: Option<LimitExceeded>,
}

impl Accounting {
    /// Accounting for a new kernel.
    pub fn new(kernel: Kernel) -> Accounting {
        Accounting {
            kernel,
            by_reason: ByReason::default(),
            log: InstallLog::default(),
            os_calls: OsCalls::default(),
            os_calls_failed: 0,
            peaks: Peaks::default(),
            interval_peak_bytes: 0,
            timeline: Timeline::default(),
            fault_spacing: FaultSpacing::default(),
            huge_fault_spacing: FaultSpacing::default(),
            events: 0,
            events_at_install: 0,
            forks: Forks::default(),
            purged: RangeSet::new(),
            once_huge: RangeSet::new(),
            provider: AddressProvider::new(Addresses::default()),
            memory_policy: MemoryPolicyLabel::default(),
            killed_at: None,
            limit_exceeded: None,
        }
    }

    /// The number, from 1, of the event in which an access raised SIGBUS because the hugetlb pool had no page for it.
    /// `None` if no access did. Figures after such an access are meaningless.
    pub fn killed_in_event(&self) -> Option<u64> {
        self.killed_at.map(|before| before + 1)
    }

    /// Sets the addresses of mmaps without a hint.
    pub fn with_addresses(self, addresses: Addresses) -> Accounting {
        Accounting { provider: AddressProvider::new(addresses), ..self }
    }

    /// Where the addresses of mmaps without a hint came from; `None` if there were none.
    pub fn addresses(&self) -> Option<AddressLabel> {
        Some(self.provider.label()).filter(|label| label.mmaps > 0)
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Installs by reason.
    pub fn by_reason(&self) -> ByReason {
        self.by_reason
    }

    /// From now on, keeps each install until it is taken.
    pub(crate) fn log_installs(&mut self) {
        self.log.switch_on();
    }

    /// Whether this is a later event than that of the last install.
    pub(crate) fn is_later(&self) -> bool {
        self.events > self.events_at_install
    }

    /// The installs since the last call, in their order, if they are logged.
    pub(crate) fn take_installs(&mut self) -> Vec<LoggedInstalls> {
        self.log.take()
    }

    /// OS calls.
    pub fn os_calls(&self) -> OsCalls {
        self.os_calls
    }

    /// OS calls that failed.
    pub fn os_calls_failed(&self) -> u64 {
        self.os_calls_failed
    }

    /// Installs by kind.
    pub fn by_kind(&self) -> ByKind {
        self.kernel.counters().into()
    }

    /// The kernel's work besides installs.
    pub fn work(&self) -> KernelWork {
        KernelWork {
            operations: *self.kernel.operations(),
            fault_spacing: self.fault_spacing,
            huge_fault_spacing: self.huge_fault_spacing,
            refaults: *self.kernel.refaults(),
        }
    }

    /// The forks so far.
    pub fn forks(&self) -> &[ForkReport] {
        self.forks.reports()
    }

    /// Records a fork after `event` events. `ranges` contains all pages of the program. The caller must then let the
    /// next write to each page pass its touch filter.
    pub(crate) fn fork(&mut self, event: u64, ranges: &[Range<u64>]) {
        let mut shared = Present::default();
        for range in ranges {
            let Present { pages, huge, hugetlb } = self.present(range);
            shared.pages += pages;
            shared.huge += huge;
            shared.hugetlb += hugetlb;
        }
        self.forks.begin(self.kernel.fork(), shared, event);
    }

    /// Records the exit of a child. `child` is the number of its fork, counted from 0.
    pub(crate) fn child_exits(&mut self, child: u32, event: u64) {
        self.forks.end(child, event);
    }

    /// Performs a touch after a fork. Distinguishes copies and reuses from first touches.
    fn touch_after_fork(&mut self, page: u64, access: Access, cause: Cause) {
        let state = self.kernel.page_states(page..page + 1).first().map(|run| run.state);
        let was_present = state.is_some_and(holds_data);
        let before = *self.kernel.counters();
        let installed = self.touch_kernel(
            page,
            access,
            if was_present { InstalledBy::CopyOnWrite(page) } else { InstalledBy::Touch(cause, page) },
        );
        // If the child lost the page, the page is no longer shared and the write does not copy it.
        let after = *self.kernel.counters();
        let may_copy = self.forks.has_child() && after.pages_kept_from_children == before.pages_kept_from_children;
        self.forks.charged(|report| {
            report.cow_reuses += after.reuses - before.reuses;
            if was_present
                && may_copy
                && let Some(install) = installed
            {
                report.cow_copies += 1;
                report.copied_bytes += install.pages * PAGE_BYTES;
                report.pmd_splits += after.pmd_splits - before.pmd_splits;
            }
        });
    }

    /// Highest values.
    pub fn peaks(&self) -> Peaks {
        self.peaks
    }

    fn note_peaks(&mut self) {
        self.note_limit(None);
        let kernel = &self.kernel;
        let peaks = &mut self.peaks;
        let resident_bytes = kernel.resident_bytes();
        peaks.rss_bytes = peaks.rss_bytes.max(resident_bytes);
        self.interval_peak_bytes = self.interval_peak_bytes.max(resident_bytes);
        peaks.hugetlb_bytes = peaks.hugetlb_bytes.max(kernel.hugetlb_pages() * PMD_PAGES * PAGE_BYTES);
        peaks.vmas = peaks.vmas.max(kernel.vma_count());
        peaks.page_table_bytes = peaks.page_table_bytes.max(kernel.page_table_bytes());
        peaks.huge_pages = peaks.huge_pages.max(kernel.huge_pages());
    }

    /// Attributes a run of installs to its reason. `upgrades` says whether the installs replaced zero pages.
    fn attribute(&mut self, run: InstallRun, by: InstalledBy, upgrades: bool) -> Reason {
        let pages = run.first_page..run.first_page + run.pages;
        let pmd = run.first_page / PMD_PAGES;
        let refaults = self.purged.overlaps(&pages);
        let reason = match by {
            InstalledBy::Populate => Reason::Populated,
            InstalledBy::Collapse => Reason::Collapsed,
            InstalledBy::CopyOnWrite(_) => Reason::CowAfterFork,
            InstalledBy::Touch(..) if upgrades => Reason::WriteAfterZeroPage,
            InstalledBy::Touch(..) if run.pages < PMD_PAGES * run.installs && self.once_huge.contains(&pmd) => {
                Reason::RefaultAfterSplit
            }
            InstalledBy::Touch(..) if refaults => Reason::RefaultAfterPurge,
            InstalledBy::Touch(cause, _) => cause.into(),
        };
        let touched = match by {
            InstalledBy::Touch(_, page) | InstalledBy::CopyOnWrite(page) => Some(page),
            InstalledBy::Populate | InstalledBy::Collapse => None,
        };
        *self.by_reason.of_mut(reason) += run.installs;
        self.log.push(run, reason, touched);
        if run.kind != InstallKind::Zero && refaults {
            self.purged.remove(pages.clone());
        }
        if run.kind == InstallKind::Thp {
            self.once_huge.insert(pmd..pages.end.div_ceil(PMD_PAGES));
        }
        reason
    }

    /// Number of installs still present in a range: single pages, and huge pages entirely inside the range.
    fn installed_in(&self, pages: Range<u64>) -> u64 {
        let states = self.kernel.page_states(pages);
        let installs = states.iter().map(|run| match run.state {
            kernel::PageState::Base => run.pages,
            kernel::PageState::Thp => run.pages / PMD_PAGES,
            _ => 0,
        });
        installs.sum()
    }

    /// Touches a page of the simulated address space and accounts for the install, if any.
    fn touch_kernel(&mut self, page: u64, access: Access, by: InstalledBy) -> Option<Install> {
        let has_zero_pages = self.kernel.counters().installs_of(InstallKind::Zero) > 0;
        let was_huge_zero = has_zero_pages && matches!(self.kernel.pmd_state(page), kernel::PmdState::HugeZero);
        let installed = match self.kernel.touch(page, access) {
            Ok(installed) => installed,
            // After a fork, the hugetlb pool may have no free page for a copy (R13b).
            Err(Signal::Bus) => {
                self.killed_at.get_or_insert(self.events);
                return None;
            }
            // The allocator touches only mapped pages, so this is a bug in it or in the model.
            Err(Signal::Segv) => unreachable!("an access to page {page:#x} raised SIGSEGV"),
        };
        if let Some(install) = installed {
            self.note_spacing(install.kind, 1);
            let upgrades = install.kind == InstallKind::Cow || was_huge_zero;
            let reason = self.attribute(install.into(), by, upgrades);
            self.note_limit(Some(reason));
            self.note_peaks();
        }
        installed
    }

    /// Prefaults the first pages of a range, if they are absent and are all alike. Returns their number.
    fn prefault_alike(&mut self, pages: &Range<u64>) -> u64 {
        if self.forks.any() || self.log.is_on() {
            return 0;
        }
        let Some(run) = self.kernel.touch_absent(pages, Access::Write(Content::Zero)) else { return 0 };
        self.note_spacing(run.kind, run.installs);
        let by = InstalledBy::Touch(Cause::Prefault, run.first_page);
        let pages = run.first_page..run.first_page + run.pages;
        if self.purged.overlaps(&pages) {
            for first_page in pages {
                self.attribute(InstallRun { first_page, pages: 1, installs: 1, ..run }, by, false);
            }
        } else {
            self.attribute(run, by, false);
        }
        self.note_peaks();
        run.pages
    }

    /// Records the spacing to the previous install. Of several simultaneous installs, all but the first have spacing 0.
    fn note_spacing(&mut self, kind: InstallKind, installs: u64) {
        let spacing = match kind {
            InstallKind::Thp | InstallKind::Hugetlb => &mut self.huge_fault_spacing,
            InstallKind::Base4k | InstallKind::Mthp | InstallKind::Zero | InstallKind::Cow => &mut self.fault_spacing,
        };
        if installs > 0 {
            spacing.add(self.events - mem::replace(&mut self.events_at_install, self.events), installs);
        }
    }

    fn called(&mut self, outcome: kernel::Outcome, by: InstalledBy) -> Result<(), Errno> {
        self.account_for(outcome.installs, by);
        self.returned(outcome.result)
    }

    /// Attributes the installs of a call to their reason.
    fn account_for(&mut self, installs: Vec<InstallRun>, by: InstalledBy) {
        for run in installs {
            if matches!((by, run.kind), (InstalledBy::Populate, InstallKind::Thp | InstallKind::Hugetlb)) {
                self.note_spacing(run.kind, run.installs);
            }
            self.attribute(run, by, false);
        }
    }

    fn returned(&mut self, result: Result<(), kernel::Errno>) -> Result<(), Errno> {
        self.note_peaks();
        self.os_calls_failed += u64::from(result.is_err());
        result.map_err(errno)
    }

    fn present(&self, pages: &Range<u64>) -> Present {
        Present::of(self.kernel.page_states(pages.clone()).into_iter())
    }

    /// Records that pages are about to be dropped. Later installs of these pages are refaults.
    fn dropping(&mut self, pages: &Range<u64>) {
        for run in self.kernel.page_states(pages.clone()) {
            if holds_data(run.state) {
                self.purged.insert(run.first_page..run.first_page + run.pages);
            }
        }
        let whole_pmds = pages.start.div_ceil(PMD_PAGES)..pages.end / PMD_PAGES;
        if !whole_pmds.is_empty() {
            self.once_huge.remove(whole_pmds);
        }
    }
}

/// Whether a page in this state has its own memory.
fn holds_data(state: kernel::PageState) -> bool {
    !matches!(state, kernel::PageState::None | kernel::PageState::Zero | kernel::PageState::HugeZero)
}

impl MemoryObserver for Accounting {
    const ACCESSES: Accesses = Accesses::Changing;

    fn set_events(&mut self, events: u64) {
        self.events = events;
    }

    fn touch(&mut self, page: u64, touch: Touch, cause: Cause) {
        let access = match touch {
            Touch::Read => Access::Read,
            Touch::WriteZero => Access::Write(Content::Zero),
            Touch::Write => Access::Write(Content::NonZero),
        };
        if self.forks.any() {
            self.touch_after_fork(page, access, cause);
        } else {
            self.touch_kernel(page, access, InstalledBy::Touch(cause, page));
        }
    }

    fn prefault(&mut self, pages: Range<u64>) {
        let mut page = pages.start;
        while page < pages.end {
            let alike = self.prefault_alike(&(page..pages.end));
            if alike == 0 {
                self.touch(page, Touch::WriteZero, Cause::Prefault);
            }
            page += alike.max(1);
        }
    }

    fn access(&mut self, _bytes: Range<u64>, _cause: Cause) {}

    fn reserve(&mut self, pages: Range<u64>) {
        self.os_calls.mmap += 1;
        let outcome = self.kernel.map(pages, map_flags(Mapping::Plain));
        assert!(outcome.result.is_ok(), "a fresh address space has room for the reservation");
        self.note_peaks();
    }

    fn map(&mut self, pages: Range<u64>, mapping: Mapping) -> Result<(), Errno> {
        self.os_calls.mmap += 1;
        self.dropping(&pages);
        let outcome = self.kernel.map(pages, map_flags(mapping));
        self.called(outcome, InstalledBy::Populate)
    }

    fn map_anywhere(&mut self, pages: u64, mapping: Mapping) -> Result<u64, Errno> {
        self.os_calls.mmap += 1;
        let modelled = || self.kernel.unmapped_area(pages, self.provider.top() / PAGE_BYTES);
        let Some(first) = self.provider.given().map(|address| address / PAGE_BYTES).or_else(modelled) else {
            return self.returned(Err(kernel::Errno::NoMemory)).map(|()| 0);
        };
        let outcome = self.kernel.map(first..first + pages, map_flags(mapping));
        self.called(outcome, InstalledBy::Populate)?;
        self.provider.mapped();
        Ok(first)
    }

    fn trim(&mut self, pages: Range<u64>) -> Result<(), Errno> {
        let populated = self.installed_in(pages.clone());
        self.by_reason.populated -= populated;
        self.by_reason.alignment_excess += populated;
        self.log.trimmed(&pages);
        self.os_calls.munmap += 1;
        let result = self.kernel.unmap(pages);
        self.returned(result)
    }

    fn unmap(&mut self, pages: Range<u64>) -> Result<(), Errno> {
        self.os_calls.munmap += 1;
        self.dropping(&pages);
        let result = self.kernel.unmap(pages);
        self.returned(result)
    }

    fn content(&mut self, page: u64, content: Content) {
        self.kernel.set_content(page, content);
    }

    fn folio_pages_outside(&self, pages: &Range<u64>) -> Vec<u64> {
        self.kernel.folio_pages_outside(pages)
    }

    fn advise(&mut self, pages: Range<u64>, advice: Advice) -> Result<(), Errno> {
        self.os_calls.madvise += 1;
        if advice == Advice::DontNeed {
            // The kernel drops pages only up to the first locked page.
            self.dropping(&(pages.start..self.kernel.first_locked(&pages)));
        }
        let advice = kernel_advice(advice);
        let by = if advice == kernel::Advice::Collapse { InstalledBy::Collapse } else { InstalledBy::Populate };
        let outcome = self.kernel.advise(pages, advice);
        self.called(outcome, by)
    }

    fn lock_process(&mut self, lock: MemoryLock) {
        self.change_locks(lock);
    }

    fn lock(&mut self, pages: Range<u64>, locking: Locking) -> Result<(), Errno> {
        self.lock_pages(pages, locking)
    }

    fn remap(&mut self, old: Range<u64>, new: Range<u64>) -> Result<(), Errno> {
        self.os_calls.mremap += 1;
        let kept = (old.end - old.start).min(new.end - new.start);
        self.dropping(&(old.start + kept..old.end));
        if new.start != old.start {
            self.dropping(&new);
        }
        let result = self.kernel.mremap(old, new, RemapSource::Unmapped);
        self.returned(result)
    }
}

impl AccountingObserver for Accounting {
    fn accounting(&self) -> &Accounting {
        self
    }

    fn accounting_mut(&mut self) -> &mut Accounting {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_linux_mm::{KernelConfig, Refaults};

    const PMD: u64 = 1 << 20;

    fn write(accounting: &mut Accounting, pages: Range<u64>) {
        pages.for_each(|page| accounting.touch(page, Touch::Write, Cause::Application));
    }

    #[test]
    fn refaults_are_counted_by_kind_and_apart_from_new_memory() {
        let mut accounting = Accounting::new(Kernel::new(KernelConfig::default()));
        let area = |number: u64| (PMD + number) * PMD_PAGES..(PMD + number + 1) * PMD_PAGES;
        let (small, huge, pool) = (area(0), area(1), area(2));
        for (pages, mapping) in [(&small, Mapping::Plain), (&huge, Mapping::Plain), (&pool, Mapping::Hugetlb)] {
            assert_eq!(accounting.map(pages.clone(), mapping), Ok(()));
        }
        let [ten, six] = [10, 6].map(|pages| small.start..small.start + pages);
        write(&mut accounting, ten.clone());
        assert_eq!(accounting.advise(six.clone(), Advice::DontNeed), Ok(()));
        write(&mut accounting, ten.start..ten.end + 2);
        assert_eq!(accounting.advise(six.clone(), Advice::DontNeed), Ok(()));
        assert_eq!(accounting.advise(six.start..ten.end + 4, Advice::PopulateWrite), Ok(()));
        assert_eq!(accounting.work().operations.populated_pages, 8);
        assert_eq!(accounting.advise(huge.clone(), Advice::HugePage), Ok(()));
        for pages in [&huge, &pool] {
            write(&mut accounting, pages.start..pages.start + 1);
            assert_eq!(accounting.advise(pages.clone(), Advice::DontNeed), Ok(()));
            write(&mut accounting, pages.start..pages.start + 1);
        }
        let refaults = accounting.work().refaults;
        let totals = |of: [Refaults; 5]| of.map(|refaults| refaults.total());
        assert_eq!(
            totals([refaults.base_4k, refaults.base_4k_populated, refaults.mthp, refaults.thp, refaults.hugetlb]),
            [6, 6, 0, 1, 1]
        );
        // A copy after a fork counts neither as a refault nor as a populated page.
        accounting.fork(0, &[small.clone(), pool.clone()]);
        write(&mut accounting, pool.start..pool.start + 1);
        assert_eq!(accounting.advise(ten, Advice::PopulateWrite), Ok(()));
        assert_eq!((accounting.work().refaults, accounting.work().operations.populated_pages), (refaults, 8));
    }

    #[test]
    fn a_child_loses_hugetlb_pages_to_its_parent_if_the_pool_is_empty() {
        let mut accounting =
            Accounting::new(Kernel::new(KernelConfig { hugetlb_pool_pages: Some(3), ..KernelConfig::default() }));
        let pool = PMD * PMD_PAGES..(PMD + 2) * PMD_PAGES;
        assert_eq!(accounting.map(pool.clone(), Mapping::Hugetlb), Ok(()));
        write(&mut accounting, pool.clone());
        accounting.fork(0, std::slice::from_ref(&pool));
        // The pool has one free page, for the first copy. At the second write, the child loses its page.
        write(&mut accounting, pool.clone());
        assert_eq!((accounting.forks()[0].cow_copies, accounting.kernel().hugetlb_pages()), (1, 2));
        assert_eq!(accounting.kernel().counters().pages_kept_from_children, 1);
        accounting.child_exits(0, 1);
        accounting.fork(1, std::slice::from_ref(&pool));
        write(&mut accounting, pool);
        assert_eq!(accounting.forks()[1].cow_copies, 1, "the first child's page is back in the pool");
    }

    #[test]
    fn pages_marked_free_twice_are_counted_separately() {
        let mut accounting = Accounting::new(Kernel::new(KernelConfig::default()));
        let pages = PMD * PMD_PAGES..PMD * PMD_PAGES + 8;
        assert_eq!(accounting.map(pages.clone(), Mapping::Plain), Ok(()));
        write(&mut accounting, pages.clone());
        assert_eq!(accounting.advise(pages.start..pages.start + 3, Advice::Free), Ok(()));
        assert_eq!(accounting.work().operations.madv_free_repeated_pages, 0);
        assert_eq!(accounting.advise(pages, Advice::Free), Ok(()));
        assert_eq!(
            (accounting.work().operations.madv_free_pages, accounting.work().operations.madv_free_repeated_pages),
            (11, 3)
        );
    }
}
