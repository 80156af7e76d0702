//! The allocator's memory in the simulator: it reports accesses to observers and does not store contents.

mod accesses;
mod bindings;
mod contents;
mod filter;
mod followers;
mod forked;
mod front_caches;
mod growing;
mod kept_bytes;
mod links;
mod meta_tracker;
mod nonzero;
mod page_ops;
mod page_use;
mod paths;
mod report_contents;
mod script;
mod superslab;
mod world;
mod written;
mod zeroed;

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::ops::Range;

use hksim_engine::prefetch;
use hksim_policy::field::Field;
use hksim_policy::layout::{BASE_ADDRESS, HEAP_BYTES, HEAPS_MAX, Layout};
use hksim_policy::memory::{ArenaRange, Block, Link, Locking, Memory, MemoryLock, PageOps};
use hksim_policy::meta::{ENTRY_BYTES, Entry, PoolMeta, SpanMeta, SuperSlabMeta};
use hksim_policy::vocabulary::{Align, Header, MetaPlace};
use hksim_policy::{Errno, Geometry, InvalidFree, PAGE_BYTES, Paging, Path};

use crate::observer::{Cause, MemoryObserver, Touch};
use crate::paths::PathCells;
use bindings::Bindings;
use contents::Contents;
use filter::TouchFilter;
pub use followers::Followers;
use kept_bytes::KeptBytes;
pub use links::LinkPlace;
use links::Links;
use meta_tracker::{MetaItem, MetaTracker};
use nonzero::NonZero;
pub use page_use::{PageUse, Place};
use superslab::SimSuperSlab;
pub use superslab::SimWord;

/// Bytes of a link.
const LINK_BYTES: u64 = 4;
/// Bytes of the key that follows a link.
const KEY_BYTES: u64 = 4;
/// Entries on one page of the arena table.
const ENTRIES_PER_PAGE: usize = (PAGE_BYTES / ENTRY_BYTES) as usize;
/// First page of the reservation in the simulated address space.
pub const BASE_PAGE: u64 = BASE_ADDRESS / PAGE_BYTES;

type EntryPage = Box<[Entry; ENTRIES_PER_PAGE]>;

/// A simulated memory. It reports to the observer of the allocator's own paging policy, the leader, and to those of
/// other paging policies that share the placement, the followers.
pub struct SimMemory<H: MemoryObserver> {
    observer: RefCell<H>,
    followers: RefCell<Followers<H>>,
    /// Number of events performed.
    events: Cell<u64>,
    filter: TouchFilter,
    contents: Option<Contents>,
    layout: Layout,
    slices: u32,
    slice_shift: u32,
    links: Links,
    superslabs: Box<[OnceCell<Box<SimSuperSlab>>]>,
    table: Box<[OnceCell<EntryPage>]>,
    pool: PoolMeta,
    message_queues: Box<[SimWord]>,
    front_caches: front_caches::FrontCaches,
    now_ns: Cell<u64>,
    /// Addresses of SuperSlabs with separate mappings.
    bindings: Option<Bindings>,
    /// How the program locks future mappings, if it does.
    locks_future: Cell<Option<Locking>>,
    /// Detects metadata writes, provided that the observer needs it: after a fork, and once a split may have dropped a
    /// page of metadata.
    meta_tracker: MetaTracker,
    /// How often the allocator ran each path of its code. Page operations are counted by observers.
    paths: PathCells,
}

impl<H: MemoryObserver> SimMemory<H> {
    /// Reserves the layout in the simulated address space and initialises its control page.
    pub fn new(layout: Layout, geometry: &impl Geometry, observer: H) -> SimMemory<H> {
        SimMemory::with_followers(layout, geometry, observer, Followers::default())
    }

    /// As [`SimMemory::new`], for several paging policies. Placement is that of the allocator's own policy, which
    /// `observer` observes.
    ///
    /// # Panics
    /// If there are followers, and the policy cannot have any: see [`SimMemory::can_have_followers`].
    pub fn with_followers(
        layout: Layout,
        geometry: &impl Geometry,
        observer: H,
        followers: Followers<H>,
    ) -> SimMemory<H> {
        assert!(followers.is_empty() || SimMemory::<H>::can_have_followers(layout.align, geometry.header()));
        let ordinals = layout.ordinals() as usize;
        let memory = SimMemory {
            observer: RefCell::new(observer),
            followers: RefCell::new(followers),
            events: Cell::new(0),
            filter: TouchFilter::new(layout.named_bytes() / PAGE_BYTES),
            contents: matches!(geometry.header(), Header::Light | Header::Off)
                .then(|| Contents::Bytes(KeptBytes::new(layout.ordinals(), layout.superslab_shift))),
            slices: geometry.slices(),
            slice_shift: geometry.slice_shift(),
            links: Links::default(),
            superslabs: (0..ordinals).map(|_| OnceCell::new()).collect(),
            table: (0..ordinals.div_ceil(ENTRIES_PER_PAGE)).map(|_| OnceCell::new()).collect(),
            pool: PoolMeta::new(),
            message_queues: (0..HEAPS_MAX).map(|_| SimWord::default()).collect(),
            front_caches: front_caches::FrontCaches::new(&layout),
            now_ns: Cell::new(0),
            bindings: (layout.align != Align::Arena)
                .then(|| Bindings::new(layout.ordinals(), (1 << layout.superslab_shift) / PAGE_BYTES)),
            locks_future: Cell::new(None),
            meta_tracker: MetaTracker::default(),
            paths: PathCells::default(),
            layout,
        };
        memory.each_observer(|observer| observer.reserve(memory.reserved()));
        memory.touch(0, PAGE_BYTES, Touch::WriteZero, Cause::Metadata);
        memory
    }

    /// From now on, tracks which bytes are zero. Call it before the first event. Needed for policies that purge with
    /// MADV_FREE: it can split a folio, and a split drops zero-filled pages, including metadata pages. Slows down every
    /// write.
    pub fn keep_contents(&mut self) {
        let (superslabs, shift) = (self.layout.ordinals(), self.layout.superslab_shift);
        self.contents.get_or_insert_with(|| Contents::NonZero(NonZero::new(superslabs, shift)));
    }

    /// The leader's observer.
    pub fn observer(&self) -> RefMut<'_, H> {
        self.observed(&self.observer)
    }

    /// The pool's control block, without an access.
    pub(crate) fn pool_meta(&self) -> &PoolMeta {
        &self.pool
    }

    /// Called after every event of the trace.
    #[inline]
    pub fn event_done(&self) {
        self.flush_meta_writes();
        self.events.set(self.events.get() + 1);
    }

    /// An observer that knows how many events were performed.
    fn observed<'a>(&self, observer: &'a RefCell<H>) -> RefMut<'a, H> {
        let mut observer = observer.borrow_mut();
        observer.set_events(self.events.get());
        observer
    }

    /// A block's address in the simulated address space.
    pub fn address_of(&self, block: Block<u32>) -> u64 {
        let at = self.layout.superslab_of(block.superslab) + u64::from(block.offset);
        self.address_at(at)
    }

    /// The pages of the simulated address space that hold a block's first `bytes` bytes.
    pub fn pages_of(&self, block: Block<u32>, bytes: u64) -> Range<u64> {
        let first = self.layout.superslab_of(block.superslab) + u64::from(block.offset);
        self.pages_at(&(first / PAGE_BYTES..(first + bytes).div_ceil(PAGE_BYTES)))
    }

    /// The reservation, as pages of the simulated address space.
    fn reserved(&self) -> Range<u64> {
        BASE_PAGE..BASE_PAGE + self.layout.bytes() / PAGE_BYTES
    }

    /// Translates a page's name to its page in the simulated address space.
    #[inline]
    fn page_at(&self, page: u64) -> u64 {
        match (&self.bindings, page.checked_sub(self.layout.arena / PAGE_BYTES)) {
            (Some(bindings), Some(arena_page)) => bindings.page_of(arena_page),
            _ => BASE_PAGE + page,
        }
    }

    /// Like `page_at`, for contiguous pages: those of one block, or of one system call.
    #[inline]
    fn pages_at(&self, pages: &Range<u64>) -> Range<u64> {
        let first = self.page_at(pages.start);
        first..first + (pages.end - pages.start)
    }

    /// A range of slices, as bytes from the start of the reservation.
    fn bytes_of(&self, superslab: u32, slices: &Range<u32>) -> Range<u64> {
        let [start, end] = [slices.start, slices.end].map(|slice| u64::from(slice) << self.slice_shift);
        let base = self.layout.superslab_of(superslab);
        base + start..base + end
    }

    /// Where the link at an offset is, and its byte from the start of the reservation.
    #[inline(always)]
    fn find_link(&self, superslab: u32, at: u32) -> (LinkPlace, u64) {
        let place = self.superslab_at(superslab).slices[(at >> self.slice_shift) as usize].links.get();
        (place, place.at(at))
    }

    #[inline(never)]
    fn push_link_slowly(&self, superslab: u32, at: u32, link: Link, key: u32) {
        let (place, from_start) = self.find_link(superslab, at);
        if !H::ACCESSES.every() && self.filter.is_written(from_start / PAGE_BYTES) {
            self.links.write(place, from_start, link);
            self.written_pair(from_start, link.to_bits(), key);
            return self.accessed(from_start, LINK_BYTES + KEY_BYTES, Cause::FreeList);
        }
        self.write_link(superslab, at, link);
        self.read_key(superslab, at);
        self.write_key(superslab, at, key);
    }

    #[cold]
    #[inline(never)]
    fn take_link_slowly(&self, place: LinkPlace, superslab: u32, at: u32) -> Link {
        let from_start = place.at(at);
        self.accessed(from_start, LINK_BYTES, Cause::FreeList);
        let link = self.links.read(place, from_start);
        self.write_key(superslab, at, 0);
        link
    }

    #[inline(always)]
    fn superslab_at(&self, ordinal: u32) -> &SimSuperSlab {
        match self.superslabs[ordinal as usize].get() {
            Some(superslab) => superslab,
            None => unreachable!("the allocator used SuperSlab {ordinal} before initialising it"),
        }
    }

    /// The offset of the key after a link, from the start of the reservation.
    #[inline(always)]
    fn key_at(&self, superslab: u32, link_at: u32) -> u64 {
        self.layout.superslab_of(superslab) + u64::from(link_at) + LINK_BYTES
    }
}

impl<H: MemoryObserver> Memory for SimMemory<H> {
    type SuperSlab = u32;
    type Word = SimWord;
    type Guard<'a>
        = ()
    where
        H: 'a;
    type LinkPlace = LinkPlace;
    const NO_LINKS: LinkPlace = LinkPlace::NONE;
    const COUNTS_PATHS: bool = H::COUNTS_PATHS;

    fn ordinals(&self) -> u32 {
        self.layout.ordinals()
    }

    #[inline(always)]
    fn superslab(&self, ordinal: u32) -> u32 {
        ordinal
    }

    #[inline(always)]
    fn ordinal(&self, superslab: u32) -> u32 {
        superslab
    }

    fn init_meta(&self, superslab: u32) {
        self.superslabs[superslab as usize].get_or_init(|| {
            let links = self.links.place_of_others(self.bytes_of(superslab, &(0..self.slices)), self.slice_shift);
            Box::new(SimSuperSlab::new(self.slices, links))
        });
        let meta_bytes = u64::from(self.layout.meta_bytes);
        self.note_fill(meta_bytes);
        if self.contents.is_some() {
            self.written(self.layout.meta_of(superslab), meta_bytes, 0);
            self.superslab_at(superslab).zero_meta();
        }
        self.touch(self.layout.meta_of(superslab), meta_bytes, Touch::Write, Cause::Metadata);
    }

    #[inline(always)]
    fn meta(&self, superslab: u32) -> &SuperSlabMeta<SimWord> {
        self.observe_meta(|| MetaItem::Header(superslab));
        &self.superslab_at(superslab).meta
    }

    #[inline(always)]
    fn slice_meta(&self, _place: MetaPlace, superslab: u32, slice: u32) -> &SpanMeta {
        self.observe_meta(|| MetaItem::Slab(superslab, slice));
        &self.superslab_at(superslab).slices[slice as usize].meta
    }

    #[inline(always)]
    fn remote(&self, superslab: u32, slice: u32) -> &SimWord {
        self.observe_meta(|| MetaItem::Remote(superslab, slice));
        &self.superslab_at(superslab).remote[slice as usize]
    }

    #[inline(always)]
    fn message_next(&self, superslab: u32, slice: u32) -> &SimWord {
        self.observe_meta(|| MetaItem::MessageNext(superslab, slice));
        &self.superslab_at(superslab).message_next[slice as usize]
    }

    fn entry(&self, ordinal: u32) -> &Entry {
        let (page, index) = (ordinal as usize / ENTRIES_PER_PAGE, ordinal as usize % ENTRIES_PER_PAGE);
        let entries = self.table[page].get_or_init(|| {
            let at = self.layout.entry_of((page * ENTRIES_PER_PAGE) as u32);
            self.touch(at, 1, Touch::Write, Cause::Metadata);
            Box::new(std::array::from_fn(|_| Entry::default()))
        });
        self.accessed_table(MetaItem::Entry(ordinal));
        &entries[index]
    }

    fn pool(&self) -> &PoolMeta {
        self.accessed_table(MetaItem::Pool);
        &self.pool
    }

    fn lock(&self) {}

    fn init_heap(&self, heap: u32) {
        use hksim_policy::Word;
        self.message_queues[heap as usize].store(0);
        self.note_fill(HEAP_BYTES);
        self.touch(self.layout.heap_of(heap), HEAP_BYTES, Touch::WriteZero, Cause::Metadata);
    }

    fn message_queue(&self, heap: u32) -> &SimWord {
        self.accessed_table(MetaItem::MessageQueue(heap));
        &self.message_queues[heap as usize]
    }

    fn front_cache_entry(&self, heap: u32, index: u32) -> &Field<u64> {
        self.front_entry(heap, index)
    }

    fn begin_slab(&self, superslab: u32, slices: Range<u32>, stride: u32) {
        let superslab_at = self.layout.superslab_of(superslab);
        let links = self.links.begin_slab(superslab_at, self.bytes_of(superslab, &slices), stride);
        self.superslab_at(superslab).begin_slab(slices, links);
    }

    fn end_span(&self, superslab: u32, slices: Range<u32>) {
        let bytes = self.bytes_of(superslab, &slices);
        if let Some(links) = self.superslab_at(superslab).end_span(slices) {
            self.links.end_slab(links, bytes);
        }
    }

    #[inline(always)]
    fn link_place(&self, superslab: u32, slice: u32) -> LinkPlace {
        self.superslab_at(superslab).slices[slice as usize].links.get()
    }

    #[inline(always)]
    fn read_link(&self, superslab: u32, at: u32) -> Link {
        let (place, at) = self.find_link(superslab, at);
        self.accessed(at, LINK_BYTES, Cause::FreeList);
        self.links.read(place, at)
    }

    #[inline(always)]
    fn write_link(&self, superslab: u32, at: u32, link: Link) {
        let touch = if link == Link::NONE { Touch::WriteZero } else { Touch::Write };
        self.touch(self.layout.superslab_of(superslab) + u64::from(at), LINK_BYTES, touch, Cause::FreeList);
        let (place, from_start) = self.find_link(superslab, at);
        self.links.write(place, from_start, link);
        self.written_number(from_start, link.to_bits());
    }

    /// Only touches the key. Keys are not stored, because a trace contains no double frees.
    #[inline(always)]
    fn read_key(&self, superslab: u32, at: u32) -> u32 {
        self.touch(self.key_at(superslab, at), KEY_BYTES, Touch::Read, Cause::FreeList);
        0
    }

    #[inline(always)]
    fn write_key(&self, superslab: u32, at: u32, key: u32) {
        let touch = if key == 0 { Touch::WriteZero } else { Touch::Write };
        self.touch(self.key_at(superslab, at), KEY_BYTES, touch, Cause::FreeList);
        self.written_number(self.key_at(superslab, at), key);
    }

    #[inline(always)]
    fn push_link(&self, place: LinkPlace, superslab: u32, at: u32, link: Link, key: u32) -> bool {
        // Link and key are eight aligned bytes of one page. Once it is written, no access changes it.
        let from_start = place.at(at);
        if self.is_settled(from_start) {
            self.links.write(place, from_start, link);
            self.accessed_link(from_start, 2);
        } else {
            self.push_link_slowly(superslab, at, link, key);
        }
        true
    }

    #[inline(always)]
    fn expect_link(&self, place: LinkPlace, at: u32) {
        self.links.prefetch(place, place.at(at));
    }

    fn expect_refill(&self, superslab: u32, slice: u32) {
        // Not by `slice_meta`, which reports an access.
        let slice_of = |superslab: u32, slice: u32| &self.superslab_at(superslab).slices[slice as usize];
        let slice = slice_of(superslab, slice);
        // A link is near its block's offset, which is close enough.
        self.expect_link(slice.links.get(), slice.meta.local_free.get().to_bits());
        if let Some((superslab, after)) = slice.meta.next.get().get() {
            prefetch(slice_of(superslab, after));
        }
    }

    #[inline(always)]
    fn take_link(&self, place: LinkPlace, superslab: u32, at: u32) -> Link {
        let from_start = place.at(at);
        if self.is_settled(from_start) {
            self.accessed_link(from_start, 1);
            return self.links.read(place, from_start);
        }
        self.take_link_slowly(place, superslab, at)
    }

    fn exchange(&self, superslab: u32, at: u32, link: Link, key: u32) -> (Link, u32) {
        self.write_link(superslab, at, link);
        self.write_key(superslab, at, key);
        (Link::NONE, 0)
    }

    fn invalid_free(&self, block: Block<u32>, what: InvalidFree) {
        unreachable!("a trace event caused an invalid free: {what:?} of {block:?}")
    }

    fn read_header(&self, superslab: u32, at: u32) -> u8 {
        let first = self.layout.superslab_of(superslab) + u64::from(at);
        self.touch(first, 1, Touch::Read, Cause::Header);
        let contents = self.contents.as_ref().and_then(|contents| contents.byte_at(first - self.layout.arena));
        contents.expect("contents are stored if headers are read")
    }

    fn write_header(&self, superslab: u32, at: u32, bytes: u32, tag: u8) {
        let first = self.layout.superslab_of(superslab) + u64::from(at);
        self.note_fill(u64::from(bytes));
        self.touch(first, u64::from(bytes), Touch::Write, Cause::Header);
        self.written(first, u64::from(bytes), tag);
    }

    fn zero(&self, superslab: u32, at: u64, bytes: u64) {
        self.note_fill(bytes);
        if bytes > 0 {
            self.touch(self.layout.superslab_of(superslab) + at, bytes, Touch::WriteZero, Cause::Zeroing);
            self.written(self.layout.superslab_of(superslab) + at, bytes, 0);
        }
    }

    fn copy(&self, to: Block<u32>, from: Block<u32>, bytes: u64) {
        // Page by page, each read before its write, as in the native memory.
        let at = |block: Block<u32>| self.layout.superslab_of(block.superslab) + u64::from(block.offset);
        let mut done = 0;
        while done < bytes {
            let (source, target) = (at(from) + done, at(to) + done);
            let to_page_end = |at: u64| PAGE_BYTES - at % PAGE_BYTES;
            let step = to_page_end(source).min(to_page_end(target)).min(bytes - done);
            self.note_copy_step(step);
            self.touch(source, step, Touch::Read, Cause::Copy);
            self.touch(target, step, Touch::Write, Cause::Copy);
            done += step;
        }
        if let Some(contents) = &self.contents {
            let (to, from) = (at(to) - self.layout.arena, at(from) - self.layout.arena);
            self.take_over_meta(contents, to, bytes);
            // A huge block that was never written holds the former contents of its memory.
            self.take_over_meta(contents, from, bytes);
            contents.copy(to, from, bytes);
        }
    }

    fn perform<A: PartialEq>(&self, own: &Paging, operation: impl Fn(&Paging, &dyn PageOps) -> A) -> A {
        self.perform_for_all(own, operation)
    }

    fn bind(&self, first: u32, count: u32, address: u64) {
        let superslab_pages = (1 << self.layout.superslab_shift) / PAGE_BYTES as usize;
        let pages = (address / PAGE_BYTES..).step_by(superslab_pages);
        for (ordinal, page) in (first..first + count).zip(pages) {
            self.bindings.iter().for_each(|bindings| bindings.bind(ordinal, page));
        }
    }

    fn unbind(&self, first: u32, count: u32) {
        let shift = self.layout.superslab_shift;
        let pages = self.pages(ArenaRange { start: u64::from(first) << shift, bytes: u64::from(count) << shift });
        self.forget(pages.clone());
        self.wiped(&pages);
        for ordinal in first..first + count {
            self.bindings.iter().for_each(|bindings| bindings.unbind(ordinal));
        }
    }

    fn address_of(&self, ordinal: u32) -> u64 {
        self.address_of(Block { superslab: ordinal, offset: 0 })
    }

    fn lock_process(&self, lock: MemoryLock) -> Result<(), Errno> {
        self.each_observer(|observer| observer.lock_process(lock));
        self.locks_future.set(lock.future.then(|| lock.locking()));
        Ok(())
    }

    fn locks_future(&self) -> Option<Locking> {
        self.locks_future.get()
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    #[inline(always)]
    fn path(&self, path: Path, times: u64) {
        if Self::COUNTS_PATHS {
            self.paths.add(path, times);
        }
    }
}
