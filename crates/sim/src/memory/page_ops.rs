//! The page operations of one paging policy, on the kernel that its observer models.

use std::cell::RefCell;
use std::ops::Range;

use hksim_policy::memory::{Advice, ArenaRange, Locking, Mapping, PageOps};
use hksim_policy::{Errno, PAGE_BYTES, Path};

use super::{BASE_PAGE, SimMemory};
use crate::observer::{Cause, MemoryObserver};

/// Performs page operations for one observer of a memory. What they do to the memory itself (contents, links, touches
/// to be reported again) applies to all of its observers.
pub(super) struct ObservedOps<'a, H: MemoryObserver> {
    pub(super) memory: &'a SimMemory<H>,
    pub(super) observer: &'a RefCell<H>,
}

impl<H: MemoryObserver> SimMemory<H> {
    pub(super) fn pages(&self, range: ArenaRange) -> Range<u64> {
        let first = (self.layout.arena + range.start) / PAGE_BYTES;
        first..first + range.bytes / PAGE_BYTES
    }

    /// Records that the state of these pages changed: touches pass the filter again, and links on them are lost.
    pub(super) fn forget(&self, pages: Range<u64>) {
        let arena_page = self.layout.arena / PAGE_BYTES;
        self.filter.forget(pages, |page| {
            let Some(from_arena) = page.checked_sub(arena_page) else { return };
            let at = from_arena * PAGE_BYTES;
            let ordinal = at >> self.layout.superslab_shift;
            if let Some(superslab) = self.superslabs[ordinal as usize].get() {
                let offset = at - (ordinal << self.layout.superslab_shift);
                let place = superslab.slices[(offset >> self.slice_shift) as usize].links.get();
                self.links.lose_page(place, self.layout.arena + at);
            }
        });
    }
}

impl<H: MemoryObserver> ObservedOps<'_, H> {
    /// Calls the observer with pages of the simulated address space.
    fn call<R>(&self, pages: &Range<u64>, call: impl FnOnce(&mut H, Range<u64>) -> R) -> R {
        self.note(Path::PageOperation, 1);
        call(&mut self.memory.observed(self.observer), self.memory.pages_at(pages))
    }

    /// Counts a path of the allocator's code.
    fn note(&self, path: Path, times: u64) {
        if H::COUNTS_PATHS {
            self.observer.borrow_mut().page_path(path, times);
        }
    }

    /// As [`ObservedOps::call`], for calls that drop the pages.
    fn drop_pages<R>(&self, pages: &Range<u64>, call: impl FnOnce(&mut H, Range<u64>) -> R) -> R {
        self.memory.flush_meta_writes();
        self.memory.forget(pages.clone());
        self.memory.wiped(pages);
        self.call(pages, call)
    }

    /// Writes zeros to the first `bytes` bytes of every page. The touches do not pass the filter: another observer's
    /// pages may still be untouched.
    fn prefault(&self, range: ArenaRange, bytes: u64) {
        let pages = self.memory.pages(range);
        let (named, mut observer) = (self.memory.pages_at(&pages), self.memory.observed(self.observer));
        observer.prefault(named.clone());
        if H::ACCESSES.any() {
            named.map(|page| page * PAGE_BYTES).for_each(|at| observer.access(at..at + bytes, Cause::Prefault));
        }
        drop(observer);
        for page in pages.filter(|_| self.memory.contents.is_some()) {
            self.memory.written(page * PAGE_BYTES, bytes, 0);
        }
    }
}

impl<H: MemoryObserver> PageOps for ObservedOps<'_, H> {
    fn map(&self, range: ArenaRange, mapping: Mapping) -> Result<(), Errno> {
        self.drop_pages(&self.memory.pages(range), |observer, pages| observer.map(pages, mapping))
    }

    fn unmap(&self, range: ArenaRange) -> Result<(), Errno> {
        self.drop_pages(&self.memory.pages(range), |observer, pages| observer.unmap(pages))
    }

    fn advise(&self, range: ArenaRange, advice: Advice) -> Result<(), Errno> {
        let (memory, pages) = (self.memory, self.memory.pages(range));
        memory.flush_meta_writes();
        if matches!(advice, Advice::DontNeed | Advice::Free) {
            memory.forget(pages.clone());
        }
        if advice == Advice::Free {
            memory.report_contents(&pages);
        }
        let advised = self.call(&pages, |observer, pages| observer.advise(pages, advice));
        if advice == Advice::DontNeed && advised.is_ok() {
            memory.wiped(&pages);
        }
        advised
    }

    fn remap(&self, from: ArenaRange, to_start: u64) -> Result<(), Errno> {
        let memory = self.memory;
        memory.flush_meta_writes();
        let pages = memory.pages(from);
        let to = memory.pages(ArenaRange { start: to_start, ..from });
        memory.forget(pages.clone());
        memory.forget(to.clone());
        if let Some(contents) = &memory.contents {
            contents.copy(to_start, from.start, from.bytes);
            memory.wiped(&pages);
        }
        self.call(&pages, |observer, pages| observer.remap(pages, memory.pages_at(&to)))
    }

    fn map_anywhere(&self, bytes: u64, mapping: Mapping) -> Result<u64, Errno> {
        self.note(Path::PageOperation, 1);
        let mapped = self.memory.observed(self.observer).map_anywhere(bytes / PAGE_BYTES, mapping);
        mapped.map(|page| page * PAGE_BYTES)
    }

    fn unmap_at(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        self.note(Path::PageOperation, 1);
        let first = address / PAGE_BYTES;
        let pages = first..first + bytes / PAGE_BYTES;
        let is_bound = self.memory.bindings.as_ref().is_some_and(|bindings| bindings.is_bound_at(first));
        let mut observer = self.memory.observed(self.observer);
        if is_bound { observer.unmap(pages) } else { observer.trim(pages) }
    }

    fn touch_pages(&self, range: ArenaRange) {
        self.note(Path::PageTouched, range.bytes / PAGE_BYTES);
        self.prefault(range, 1);
    }

    fn fill_pages(&self, range: ArenaRange) {
        self.note(Path::Fill, 1);
        self.note(Path::ByteFilled, range.bytes);
        self.prefault(range, PAGE_BYTES);
    }

    fn lock_tables(&self) -> Result<(), Errno> {
        let tables = BASE_PAGE..BASE_PAGE + self.memory.layout.arena / PAGE_BYTES;
        self.memory.observed(self.observer).lock(tables, Locking::OnFault)
    }

    fn lock_range(&self, range: ArenaRange, locking: Locking) -> Result<(), Errno> {
        self.memory.flush_meta_writes();
        self.call(&self.memory.pages(range), |observer, pages| observer.lock(pages, locking))
    }
}
