//! An allocator in simulated memory, as a run of a trace sees it.

use std::cell::{Ref, RefMut};
use std::ops::Range;

use hksim_engine::{Design, DriveError, Driver, Fallbacks, Heaps, OnSpace, PAGE_BYTES, Region};
use hksim_policy::Allocator;
use hksim_policy::memory::MemoryLock;
use hksim_trace::hkt::BatchReader;

use crate::memory::{PageUse, Place, SimMemory};
use crate::observer::AccountingObserver;
use crate::paths::PathCounts;
use crate::space::SimSpace;
use crate::superslabs::SuperSlabs;

/// Figures of the SuperSlab allocator itself; 0 for others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnFigures {
    /// Highest number of SuperSlabs in use.
    pub(crate) superslabs_peak: u64,
    /// Its fallbacks.
    pub(crate) fallbacks: Fallbacks,
}

/// See the module.
pub(crate) trait Subject: Heaps + Send + Sized {
    /// Observes the memory.
    type Observer: AccountingObserver;

    /// Performs events of a batch: those before the first uncommon one, and before event `end` of the batch.
    fn step_common(driver: &mut Driver<Self>, reader: &mut BatchReader<'_>, end: usize) -> Result<(), DriveError>;

    /// An event of the trace was performed.
    fn event_done(&self);

    /// The observer; of several designs that share a placement, the leader's.
    fn observer(&self) -> RefMut<'_, Self::Observer>;

    /// Calls `visit` with the number and observer of each design that shares the placement.
    fn each_track(&self, visit: impl FnMut(usize, &Self::Observer)) {
        let mut visit = visit;
        visit(0, &self.observer());
    }

    /// Calls `call` with each observer. Designs that share the placement may also share observers.
    fn each_observer(&self, call: impl FnMut(&mut Self::Observer)) {
        let mut call = call;
        call(&mut self.observer());
    }

    /// The mapped ranges, in the order of their names: the name of the first page, and the pages in the simulated address
    /// space. Names are equal in simulation and replay.
    fn mapped_ranges(&self) -> Vec<(u64, Range<u64>)>;

    /// The pages of the simulated address space that hold a block's first `bytes` bytes.
    fn pages_of(&self, place: Self::Place, bytes: u64) -> Range<u64>;

    /// A fork has write-protected these pages, which are given by their names.
    fn forked(&self, named: Range<u64>);

    /// `mlockall` or `munlockall` of the program.
    fn lock_memory(&self, lock: MemoryLock);

    /// Figures of the allocator itself.
    fn own_figures(&self) -> OwnFigures;

    /// The paths of the allocator's code that its placement ran; `None` if they are not counted.
    fn placement_paths(&self) -> Option<PathCounts> {
        None
    }

    /// Describes a page of the simulated address space.
    fn place_of(&self, page: u64) -> Place;

    /// The SuperSlab of a page, which is given by its name, if the allocator has SuperSlabs.
    fn superslab_of(&self, name: u64) -> Option<u32>;

    /// The SuperSlab where a block begins, if the allocator has SuperSlabs.
    fn superslab_of_block(&self, place: Self::Place) -> Option<u32>;
}

impl<H: AccountingObserver + Send> Subject for SuperSlabs<H> {
    type Observer = H;

    #[inline(always)]
    fn step_common(driver: &mut Driver<Self>, reader: &mut BatchReader<'_>, end: usize) -> Result<(), DriveError> {
        driver.step_common(reader, end, SimMemory::event_done)
    }

    #[inline(always)]
    fn event_done(&self) {
        self.mem.event_done();
    }

    fn observer(&self) -> RefMut<'_, H> {
        self.mem.observer()
    }

    fn each_track(&self, visit: impl FnMut(usize, &H)) {
        self.mem.each_track(visit);
    }

    fn each_observer(&self, call: impl FnMut(&mut H)) {
        self.mem.each_observer(call);
    }

    fn mapped_ranges(&self) -> Vec<(u64, Range<u64>)> {
        self.mem.mapped_ranges().collect()
    }

    fn pages_of(&self, place: Self::Place, bytes: u64) -> Range<u64> {
        self.mem.pages_of(place, bytes)
    }

    fn forked(&self, named: Range<u64>) {
        self.mem.forked(named);
    }

    fn lock_memory(&self, lock: MemoryLock) {
        // An error is ignored. The model does not limit locked memory, so an error only means that locking stopped at an
        // unmapped part of the arena, as in the kernel.
        let _ = Allocator::lock_memory(self, lock);
    }

    fn own_figures(&self) -> OwnFigures {
        let pool = self.mem.pool_meta();
        OwnFigures { superslabs_peak: u64::from(pool.superslabs_peak.get()), fallbacks: Fallbacks::of(pool) }
    }

    fn placement_paths(&self) -> Option<PathCounts> {
        H::COUNTS_PATHS.then(|| self.mem.path_counts())
    }

    fn place_of(&self, page: u64) -> Place {
        self.mem.place_of(page)
    }

    fn superslab_of(&self, name: u64) -> Option<u32> {
        self.mem.superslab_of(name)
    }

    fn superslab_of_block(&self, place: Self::Place) -> Option<u32> {
        Some(place.superslab)
    }
}

impl<D: Design + Send, H: AccountingObserver + Send> Subject for OnSpace<D, SimSpace<H>> {
    type Observer = H;

    fn step_common(driver: &mut Driver<Self>, reader: &mut BatchReader<'_>, end: usize) -> Result<(), DriveError> {
        driver.step_each(reader, end, |allocator| allocator.event_done())
    }

    fn event_done(&self) {
        self.memory_mut().event_done();
    }

    fn observer(&self) -> RefMut<'_, H> {
        RefMut::map(self.memory_mut(), SimSpace::observer_mut)
    }

    fn mapped_ranges(&self) -> Vec<(u64, Range<u64>)> {
        self.memory().region().named_pages().collect()
    }

    fn pages_of(&self, place: u64, bytes: u64) -> Range<u64> {
        place / PAGE_BYTES..(place + bytes).div_ceil(PAGE_BYTES)
    }

    fn forked(&self, named: Range<u64>) {
        let start = Region::START / PAGE_BYTES;
        self.memory_mut().forked(start + named.start..start + named.end);
    }

    fn lock_memory(&self, lock: MemoryLock) {
        self.memory_mut().lock_memory(lock);
    }

    fn own_figures(&self) -> OwnFigures {
        OwnFigures::default()
    }

    fn place_of(&self, page: u64) -> Place {
        let ranges = Ref::map(self.memory(), SimSpace::region);
        let named = ranges.named_pages().find(|(_, pages)| pages.contains(&page));
        let page_use = if named.is_some() { PageUse::Undescribed } else { PageUse::Unused };
        Place { page: named.map(|(first, pages)| first + page - pages.start), superslab: None, page_use }
    }

    fn superslab_of(&self, _name: u64) -> Option<u32> {
        None
    }

    fn superslab_of_block(&self, _place: u64) -> Option<u32> {
        None
    }
}
