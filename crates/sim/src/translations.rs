//! What a data TLB sees of a simulation: every access, with the size of the page that maps it, and every change of a
//! mapping.

use std::ops::Range;

use hksim_linux_mm::{Content, InstallKind, Kernel, PMD_PAGES, PageState, PmdState};
use hksim_policy::memory::{Advice, Locking, Mapping, MemoryLock};
use hksim_policy::{Errno, PAGE_BYTES, Path};

use crate::accounting::Accounting;
use crate::lines::LineCounts;
use crate::miss_curves::MissCurves;
use crate::observer::{Accesses, AccountingObserver, Cause, MemoryObserver, Touch};
use crate::paths::PathCounts;
use crate::reach::TlbLookups;
use crate::tlb::PageSize;

/// Why mappings changed. The kernel then flushes their TLB entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// mmap.
    Mmap,
    /// munmap.
    Munmap,
    /// `MADV_DONTNEED`.
    Dontneed,
    /// `MADV_FREE`, after which the next write has to be seen.
    Free,
    /// `MADV_COLLAPSE` that installed a huge page.
    Collapse,
    /// mremap, at both ends.
    Mremap,
    /// A fault on a mapped page: a write to the zero page, to the huge zero page, or to a page shared with a child.
    Fault,
    /// fork, which makes all pages read-only.
    Fork,
}

/// Takes the stream of accesses and changes. Pages are 4 KiB and numbered from address 0.
pub trait Translations: Clone {
    /// Whether the stream is used. If not, it is not determined.
    const USED: bool = true;

    /// Which accesses the stream needs.
    const ACCESSES: Accesses = Accesses::Every;

    /// Whether the paths of the allocator's code are counted. That costs little beside the reports of every access.
    const COUNTS_PATHS: bool = true;

    /// Whether installs are part of the stream.
    const SEES_INSTALLS: bool = false;

    /// Sets the number of events performed so far. Called before any other method.
    fn set_events(&mut self, _events: u64) {}

    /// An access to a page, after a fault if there was one. A touch of several bytes of a page is one access, because
    /// immediately repeated accesses always hit.
    fn access(&mut self, page: u64, size: PageSize, cause: Cause);

    /// Called before anything that may change how pages are mapped.
    fn mappings_may_change(&mut self) {}

    /// The mapping of these pages changes.
    fn changed(&mut self, pages: &Range<u64>, by: Change);

    /// An access to bytes, after a fault if there was one.
    fn access_bytes(&mut self, kernel: &Kernel, bytes: Range<u64>, cause: Cause) {
        if Self::USED {
            for page in bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES) {
                self.access(page, page_size(kernel, page), cause);
            }
        }
    }

    /// An access to the allocator's tables that are not on its fast paths. TLB models leave it out.
    fn access_table(&mut self, _kernel: &Kernel, _bytes: Range<u64>) {}

    /// A fault outside huge pages, `is_later` than in the event of the one before. Called if [`Translations::SEES_INSTALLS`].
    fn faulted(&mut self, _is_later: bool) {}

    /// The kernel zeroed these pages and installed them. Called if [`Translations::SEES_INSTALLS`].
    fn installed(&mut self, _pages: Range<u64>) {}

    /// Hits and misses, if this is a TLB model.
    fn lookups(&self) -> Option<TlbLookups> {
        None
    }

    /// Misses by size, if this is a TLB model.
    fn miss_curves(&self) -> Option<MissCurves> {
        None
    }

    /// Accesses to cache lines, if this is a model of caches.
    fn lines(&self) -> Option<LineCounts> {
        None
    }
}

/// Two models of one stream.
impl<A: Translations, B: Translations> Translations for (A, B) {
    const USED: bool = A::USED || B::USED;
    const ACCESSES: Accesses = Accesses::Every;
    const SEES_INSTALLS: bool = A::SEES_INSTALLS || B::SEES_INSTALLS;

    fn set_events(&mut self, events: u64) {
        self.0.set_events(events);
        self.1.set_events(events);
    }

    fn access(&mut self, page: u64, size: PageSize, cause: Cause) {
        self.0.access(page, size, cause);
        self.1.access(page, size, cause);
    }

    fn mappings_may_change(&mut self) {
        self.0.mappings_may_change();
        self.1.mappings_may_change();
    }

    fn changed(&mut self, pages: &Range<u64>, by: Change) {
        self.0.changed(pages, by);
        self.1.changed(pages, by);
    }

    fn access_bytes(&mut self, kernel: &Kernel, bytes: Range<u64>, cause: Cause) {
        self.0.access_bytes(kernel, bytes.clone(), cause);
        self.1.access_bytes(kernel, bytes, cause);
    }

    fn access_table(&mut self, kernel: &Kernel, bytes: Range<u64>) {
        self.0.access_table(kernel, bytes.clone());
        self.1.access_table(kernel, bytes);
    }

    fn faulted(&mut self, is_later: bool) {
        self.0.faulted(is_later);
        self.1.faulted(is_later);
    }

    fn installed(&mut self, pages: Range<u64>) {
        self.0.installed(pages.clone());
        self.1.installed(pages);
    }

    fn lookups(&self) -> Option<TlbLookups> {
        self.0.lookups().or_else(|| self.1.lookups())
    }

    fn miss_curves(&self) -> Option<MissCurves> {
        self.0.miss_curves().or_else(|| self.1.miss_curves())
    }

    fn lines(&self) -> Option<LineCounts> {
        self.0.lines().or_else(|| self.1.lines())
    }
}

/// For a run in which metadata writes matter: after a fork, they copy pages; after the split of a huge page, they replace
/// the zero pages that the split left. `COUNTS_PATHS` is whether paths are counted.
#[derive(Clone)]
pub(crate) struct MetadataWrites<const COUNTS_PATHS: bool>;

impl<const COUNTS_PATHS: bool> Translations for MetadataWrites<COUNTS_PATHS> {
    const USED: bool = false;
    const ACCESSES: Accesses = Accesses::ChangingMetadata;
    const COUNTS_PATHS: bool = COUNTS_PATHS;

    fn access(&mut self, _page: u64, _size: PageSize, _cause: Cause) {}

    fn changed(&mut self, _pages: &Range<u64>, _by: Change) {}
}

/// Accounting that also observes every access.
#[derive(Clone)]
pub struct TranslationObserver<T> {
    accounting: Accounting,
    page_paths: PathCounts,
    pub(crate) translations: T,
}

impl<T: Translations> TranslationObserver<T> {
    /// An observer of a run that has not begun.
    pub fn new(mut accounting: Accounting, translations: T) -> TranslationObserver<T> {
        if T::SEES_INSTALLS {
            accounting.log_installs();
        }
        TranslationObserver { accounting, page_paths: PathCounts::default(), translations }
    }

    /// Passes on what the kernel installed and zeroed since the last call. A fault among it `is_later` than in the event of the
    /// one before.
    fn pass_installs(&mut self, is_later: bool) {
        if T::SEES_INSTALLS {
            for logged in self.accounting.take_installs() {
                if logged.touched.is_some() && !matches!(logged.kind, InstallKind::Thp | InstallKind::Hugetlb) {
                    self.translations.faulted(is_later);
                }
                if logged.kind != InstallKind::Zero {
                    self.translations.installed(logged.pages);
                }
            }
        }
    }

    /// What changes if a touch changes the mapping of a page: its state, and the number of write faults on pages that
    /// parent and child shared.
    fn mapping(&self, page: u64) -> (PageState, u64) {
        if !T::USED {
            return (PageState::None, 0);
        }
        let write_faults = self.accounting.forks().iter().map(|fork| fork.cow_copies + fork.cow_reuses).sum();
        (self.accounting.kernel().page_state(page), write_faults)
    }

    /// The 2 MiB ranges of `pages` that huge pages map.
    fn huge_ranges(&self, pages: &Range<u64>) -> Vec<u64> {
        let ranges = if T::USED { pages.start / PMD_PAGES..pages.end.div_ceil(PMD_PAGES) } else { 0..0 };
        let is_huge = |range: &u64| page_size(self.accounting.kernel(), range * PMD_PAGES) == PageSize::Huge;
        ranges.filter(is_huge).collect()
    }

    fn collapse(&mut self, pages: Range<u64>) -> Result<(), Errno> {
        let before = self.huge_ranges(&pages);
        let result = self.accounting_mut().advise(pages.clone(), Advice::Collapse);
        for range in self.huge_ranges(&pages) {
            if !before.contains(&range) {
                self.translations.changed(&(range * PMD_PAGES..(range + 1) * PMD_PAGES), Change::Collapse);
            }
        }
        self.pass_installs(false);
        result
    }
}

/// The size of the entry that maps a page, or that would map it after a fault on a small page.
pub(crate) fn page_size(kernel: &Kernel, page: u64) -> PageSize {
    match kernel.pmd_state(page) {
        PmdState::Thp | PmdState::HugeZero | PmdState::Hugetlb => PageSize::Huge,
        PmdState::None | PmdState::Table => PageSize::Base,
    }
}

impl<T: Translations> AccountingObserver for TranslationObserver<T> {
    fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    fn accounting_mut(&mut self) -> &mut Accounting {
        self.translations.mappings_may_change();
        &mut self.accounting
    }

    fn fork(&mut self, event: u64, pages: &[Range<u64>]) {
        pages.iter().for_each(|pages| self.translations.changed(pages, Change::Fork));
        self.accounting_mut().fork(event, pages);
    }

    fn page_paths(&self) -> PathCounts {
        self.page_paths.clone()
    }

    fn misses(&self) -> Option<TlbLookups> {
        self.translations.lookups()
    }

    fn miss_curves(&self) -> Option<MissCurves> {
        self.translations.miss_curves()
    }

    fn lines(&self) -> Option<LineCounts> {
        self.translations.lines()
    }
}

impl<T: Translations> MemoryObserver for TranslationObserver<T> {
    const ACCESSES: Accesses = T::ACCESSES;
    const COUNTS_PATHS: bool = T::COUNTS_PATHS;

    fn page_path(&mut self, path: Path, times: u64) {
        self.page_paths.add(path, times);
    }

    fn set_events(&mut self, events: u64) {
        self.translations.set_events(events);
        self.accounting.set_events(events);
    }

    fn touch(&mut self, page: u64, touch: Touch, cause: Cause) {
        let before = self.mapping(page);
        let is_later = self.accounting.is_later();
        self.accounting_mut().touch(page, touch, cause);
        if before.0 != PageState::None && before != self.mapping(page) {
            self.translations.changed(&(page..page + 1), Change::Fault);
        }
        self.pass_installs(is_later);
    }

    #[inline(always)]
    fn access(&mut self, bytes: Range<u64>, cause: Cause) {
        self.translations.access_bytes(self.accounting.kernel(), bytes, cause);
    }

    fn access_table(&mut self, bytes: Range<u64>) {
        self.translations.access_table(self.accounting.kernel(), bytes);
    }

    fn reserve(&mut self, pages: Range<u64>) {
        self.accounting_mut().reserve(pages);
    }

    fn map(&mut self, pages: Range<u64>, mapping: Mapping) -> Result<(), Errno> {
        self.translations.changed(&pages, Change::Mmap);
        let mapped = self.accounting_mut().map(pages, mapping);
        self.pass_installs(false);
        mapped
    }

    fn map_anywhere(&mut self, pages: u64, mapping: Mapping) -> Result<u64, Errno> {
        let mapped = self.accounting_mut().map_anywhere(pages, mapping);
        self.pass_installs(false);
        mapped
    }

    fn trim(&mut self, pages: Range<u64>) -> Result<(), Errno> {
        self.translations.changed(&pages, Change::Munmap);
        self.accounting_mut().trim(pages)
    }

    fn unmap(&mut self, pages: Range<u64>) -> Result<(), Errno> {
        self.translations.changed(&pages, Change::Munmap);
        self.accounting_mut().unmap(pages)
    }

    fn content(&mut self, page: u64, content: Content) {
        self.accounting.content(page, content);
    }

    fn folio_pages_outside(&self, pages: &Range<u64>) -> Vec<u64> {
        self.accounting.folio_pages_outside(pages)
    }

    fn advise(&mut self, pages: Range<u64>, advice: Advice) -> Result<(), Errno> {
        match advice {
            Advice::DontNeed => self.translations.changed(&pages, Change::Dontneed),
            Advice::Free => self.translations.changed(&pages, Change::Free),
            Advice::Collapse => return self.collapse(pages),
            _ => {}
        }
        let advised = self.accounting_mut().advise(pages, advice);
        self.pass_installs(false);
        advised
    }

    fn lock_process(&mut self, lock: MemoryLock) {
        self.accounting_mut().lock_process(lock);
    }

    fn lock(&mut self, pages: Range<u64>, locking: Locking) -> Result<(), Errno> {
        self.accounting_mut().lock(pages, locking)
    }

    fn remap(&mut self, old: Range<u64>, new: Range<u64>) -> Result<(), Errno> {
        self.translations.changed(&old, Change::Mremap);
        self.translations.changed(&new, Change::Mremap);
        self.accounting_mut().remap(old, new)
    }
}
