//! A memory without a kernel. It enforces the contract of [`Memory`] literally.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;

use hksim_policy::Paging;
use hksim_policy::field::Field;
use hksim_policy::layout::{FRONT_ENTRY_BYTES, HEAPS_MAX, Layout};
use hksim_policy::memory::{Advice, ArenaRange, Block, Link, Mapping, Memory, PageOps, World};
use hksim_policy::meta::{Entry, Pages, PoolMeta, SpanMeta, SuperSlabMeta};
use hksim_policy::vocabulary::{Align, MetaPlace};
use hksim_policy::{Errno, Geometry, HUGE_PAGE_BYTES, InvalidFree, PAGE_BYTES, Policy, Word};

use crate::Random;
use crate::advised::Advised;
use crate::bytes::{Backing, Bytes};
use crate::mappings::Mappings;
use crate::superslab::{PlainSuperSlab, PlainWord};

const ENOMEM: Errno = Errno(12);
const EINVAL: Errno = Errno(22);
const APPLICATION_BYTE: u8 = 0xA5;

/// The OS calls that fail. Populating mappings of the arena never fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// None.
    Nothing,
    /// Only one call, after this number of other calls (0: the next call).
    Call(u64),
    /// This number of calls in a thousand, at random.
    PerMille(u64),
}

/// A memory on plain vectors. It panics on every violation of the contract of [`Memory`]: reading a link that was not
/// written or was overwritten, touching an unmapped page, using metadata that was purged or overwritten.
///
/// By default its words are single-threaded.
pub struct PlainMemory<W = PlainWord> {
    layout: Layout,
    ordinals: u32,
    bytes: RefCell<Bytes>,
    advised: Advised,
    superslabs: Vec<PlainSuperSlab<W>>,
    table: Vec<Entry>,
    pool: PoolMeta,
    /// Each queue is created when its heap is first opened.
    message_queues: Vec<OnceCell<W>>,
    front_caches: Vec<Field<u64>>,
    locked: Cell<bool>,
    random: RefCell<Random>,
    failing: Cell<Failing>,
    failed_calls: Cell<u64>,
    links_read: Cell<u64>,
    hugetlb_pages_left: Cell<u64>,
    now_ns: Cell<u64>,
    /// The addresses of separately mapped SuperSlabs.
    mappings: Option<Mappings>,
}

/// Holds the pool's lock. Locking it twice panics.
pub struct PlainGuard<'a>(&'a Cell<bool>);

impl Drop for PlainGuard<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<W: Word + Default> PlainMemory<W> {
    /// A memory with an arena of `ordinals` SuperSlabs. The layout may have more.
    ///
    /// # Panics
    /// If the layout has fewer SuperSlabs.
    pub fn new(layout: Layout, geometry: &impl Geometry, ordinals: u32, seed: u64) -> PlainMemory<W> {
        assert!(ordinals <= layout.ordinals(), "the layout has {} SuperSlabs only", layout.ordinals());
        PlainMemory {
            ordinals,
            bytes: RefCell::new(Bytes::new(layout.arena_bytes)),
            advised: Advised::new(layout.arena_bytes),
            superslabs: (0..ordinals).map(|_| PlainSuperSlab::new(geometry.slices())).collect(),
            table: (0..ordinals).map(|_| Entry::default()).collect(),
            pool: PoolMeta::new(),
            message_queues: (0..HEAPS_MAX).map(|_| OnceCell::new()).collect(),
            front_caches: (0..(layout.table - layout.front_caches) / FRONT_ENTRY_BYTES)
                .map(|_| Field::new(0))
                .collect(),
            locked: Cell::new(false),
            random: RefCell::new(Random::new(seed)),
            failing: Cell::new(Failing::Nothing),
            failed_calls: Cell::new(0),
            links_read: Cell::new(0),
            hugetlb_pages_left: Cell::new(u64::MAX),
            now_ns: Cell::new(0),
            mappings: (layout.align != Align::Arena).then(|| Mappings::new(ordinals, layout.superslab_shift)),
            layout,
        }
        .without_mappings()
    }

    /// If SuperSlabs have separate mappings, starts without any.
    fn without_mappings(self) -> PlainMemory<W> {
        if self.mappings.is_some() {
            self.bytes.borrow_mut().set_backing(0..self.layout.arena_bytes / PAGE_BYTES, Backing::Hole);
        }
        self
    }

    /// The address of a block, which determines its alignment.
    pub fn address(&self, block: Block<u32>) -> u64 {
        match &self.mappings {
            None => self.arena_offset(block),
            Some(mappings) => mappings.address_of(block.superslab) + u64::from(block.offset),
        }
    }

    /// Number of mapped bytes that contain no SuperSlab, because unmapping them failed.
    pub fn unbound_bytes(&self) -> u64 {
        self.mappings.as_ref().map_or(0, Mappings::unbound_bytes)
    }

    /// Chooses which OS calls fail from now on.
    pub fn set_failing(&self, failing: Failing) {
        self.failing.set(failing);
    }

    /// Number of OS calls that failed so far.
    pub fn failed_calls(&self) -> u64 {
        self.failed_calls.get()
    }

    /// Number of links read so far.
    pub fn links_read(&self) -> u64 {
        self.links_read.get()
    }

    /// Checks that the advice for SuperSlabs in use agrees with the arena table. Returns the number of SuperSlabs with
    /// small pages. Meaningless once a call has failed.
    ///
    /// # Errors
    /// Describes the first SuperSlab that disagrees.
    pub(crate) fn check_advice(&self, policy: &Policy) -> Result<u64, String> {
        self.advised.check(self, policy, self.layout.superslab_shift)
    }

    /// Sets the number of free reserved huge pages.
    pub fn set_hugetlb_pages(&self, pages: u64) {
        self.hugetlb_pages_left.set(pages);
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Offset of a block's first byte from the start of the arena.
    pub fn arena_offset(&self, block: Block<u32>) -> u64 {
        (u64::from(block.superslab) << self.layout.superslab_shift) + u64::from(block.offset)
    }

    /// The arena range of a SuperSlab's intact metadata; empty if the metadata is not in the arena.
    pub fn metadata_range(&self, ordinal: u32) -> Range<u64> {
        let start = u64::from(ordinal) << self.layout.superslab_shift;
        let in_band =
            self.layout.meta_place == MetaPlace::InBand && self.superslabs[ordinal as usize].has_metadata.get();
        start..start + if in_band { u64::from(self.layout.meta_bytes) } else { 0 }
    }

    /// The application stores bytes at an offset of the arena.
    #[track_caller]
    pub fn store(&self, at: u64, data: &[u8]) {
        self.overwritten(at, data.len() as u64);
        self.bytes.borrow_mut().write(at, data);
    }

    /// The application loads bytes from an offset of the arena.
    #[track_caller]
    pub fn load(&self, at: u64, into: &mut [u8]) {
        self.bytes.borrow().read(at, into);
    }

    /// Whether the application would load these bytes from an offset of the arena.
    #[track_caller]
    pub fn holds(&self, at: u64, data: &[u8]) -> bool {
        self.bytes.borrow().holds(at, data)
    }

    /// Whether a range of the arena reads as zeros.
    #[track_caller]
    pub fn is_zero(&self, at: u64, bytes: u64) -> bool {
        self.bytes.borrow().is_zero(at, bytes)
    }

    fn superslab_range(&self, ordinal: u32) -> ArenaRange {
        ArenaRange { start: self.offset_in(ordinal, 0), bytes: 1 << self.layout.superslab_shift }
    }

    fn offset_in(&self, superslab: u32, at: u64) -> u64 {
        (u64::from(superslab) << self.layout.superslab_shift) + at
    }

    fn read_number(&self, superslab: u32, at: u32) -> u32 {
        let mut number = [0; 4];
        self.load(self.offset_in(superslab, u64::from(at)), &mut number);
        u32::from_le_bytes(number)
    }

    /// Invalidates in-band metadata in a range that is overwritten or purged.
    fn overwritten(&self, at: u64, bytes: u64) {
        if self.layout.meta_place == MetaPlace::Sidecar || bytes == 0 {
            return;
        }
        let (first, last) = (at >> self.layout.superslab_shift, (at + bytes - 1) >> self.layout.superslab_shift);
        for ordinal in first..=last.min(u64::from(self.ordinals) - 1) {
            let meta_end = (ordinal << self.layout.superslab_shift) + u64::from(self.layout.meta_bytes);
            if at < meta_end {
                self.superslabs[ordinal as usize].has_metadata.set(false);
            }
        }
    }

    #[track_caller]
    fn with_metadata(&self, ordinal: u32) -> &PlainSuperSlab<W> {
        let superslab = &self.superslabs[ordinal as usize];
        assert!(
            superslab.has_metadata.get(),
            "use of metadata of SuperSlab {ordinal}, which was purged, overwritten or never initialised"
        );
        superslab
    }

    /// The pages of an OS call.
    #[track_caller]
    fn called_on(&self, range: ArenaRange) -> Range<u64> {
        if let Some(mappings) = &self.mappings {
            mappings.expect_side_by_side(range.start, range.bytes);
        }
        Self::pages(range)
    }

    fn pages(range: ArenaRange) -> Range<u64> {
        assert!(
            range.start.is_multiple_of(PAGE_BYTES) && range.bytes.is_multiple_of(PAGE_BYTES),
            "an OS call on {range:?}, which is not a range of pages"
        );
        range.start / PAGE_BYTES..(range.start + range.bytes) / PAGE_BYTES
    }

    fn fails(&self) -> bool {
        let fails = match self.failing.get() {
            Failing::Nothing => false,
            Failing::Call(0) => {
                self.failing.set(Failing::Nothing);
                true
            }
            Failing::Call(left) => {
                self.failing.set(Failing::Call(left - 1));
                false
            }
            Failing::PerMille(of_1000) => self.random.borrow_mut().per_mille(of_1000),
        };
        self.failed_calls.set(self.failed_calls.get() + u64::from(fails));
        fails
    }

    /// Whether a range begins or ends inside a hugetlb page, which the kernel cannot split.
    fn splits_hugetlb(&self, range: ArenaRange) -> bool {
        let pages = self.called_on(range);
        let bytes = self.bytes.borrow();
        let backing = bytes.backing(pages);
        let cuts =
            |at: u64, page: Option<&Backing>| !at.is_multiple_of(HUGE_PAGE_BYTES) && page == Some(&Backing::Hugetlb);
        cuts(range.start, backing.first()) || cuts(range.start + range.bytes, backing.last())
    }

    fn change(&self, range: ArenaRange, backing: Backing) {
        self.overwritten(range.start, range.bytes);
        self.bytes.borrow_mut().set_backing(Self::pages(range), backing);
        self.advised.set(Self::pages(range), None);
    }
}

impl<W: Word + Default> Memory for PlainMemory<W> {
    type SuperSlab = u32;
    type Word = W;
    type Guard<'a>
        = PlainGuard<'a>
    where
        W: 'a;
    type LinkPlace = ();
    const NO_LINKS: () = ();

    fn ordinals(&self) -> u32 {
        self.ordinals
    }

    fn superslab(&self, ordinal: u32) -> u32 {
        ordinal
    }

    fn ordinal(&self, superslab: u32) -> u32 {
        superslab
    }

    fn init_meta(&self, superslab: u32) {
        let at = self.offset_in(superslab, 0);
        if self.layout.meta_place == MetaPlace::InBand {
            self.bytes.borrow_mut().fill(at, u64::from(self.layout.meta_bytes), 0);
        }
        self.superslabs[superslab as usize].clear();
    }

    #[track_caller]
    fn meta(&self, superslab: u32) -> &SuperSlabMeta<W> {
        &self.with_metadata(superslab).meta
    }

    #[track_caller]
    fn slice_meta(&self, _place: MetaPlace, superslab: u32, slice: u32) -> &SpanMeta {
        &self.with_metadata(superslab).slabs[slice as usize]
    }

    #[track_caller]
    fn remote(&self, superslab: u32, slice: u32) -> &W {
        &self.with_metadata(superslab).remote[slice as usize]
    }

    #[track_caller]
    fn message_next(&self, superslab: u32, slice: u32) -> &W {
        &self.with_metadata(superslab).message_next[slice as usize]
    }

    fn entry(&self, ordinal: u32) -> &Entry {
        &self.table[ordinal as usize]
    }

    fn pool(&self) -> &PoolMeta {
        &self.pool
    }

    fn lock(&self) -> PlainGuard<'_> {
        assert!(!self.locked.replace(true), "the pool's lock is taken while it is held");
        PlainGuard(&self.locked)
    }

    fn init_heap(&self, heap: u32) {
        self.message_queues[heap as usize].get_or_init(W::default).store(0);
    }

    fn message_queue(&self, heap: u32) -> &W {
        let queue = self.message_queues[heap as usize].get();
        queue.unwrap_or_else(|| panic!("the message queue of heap {heap} is used before init_heap"))
    }

    fn front_cache_entry(&self, heap: u32, index: u32) -> &Field<u64> {
        let at = self.layout.front_entry_of(heap, index) - self.layout.front_caches;
        &self.front_caches[(at / FRONT_ENTRY_BYTES) as usize]
    }

    fn read_link(&self, superslab: u32, at: u32) -> Link {
        self.links_read.set(self.links_read.get() + 1);
        Link::from_bits(self.bytes.borrow().read_link(self.offset_in(superslab, u64::from(at))))
    }

    fn write_link(&self, superslab: u32, at: u32, link: Link) {
        let at = self.offset_in(superslab, u64::from(at));
        self.overwritten(at, 4);
        self.bytes.borrow_mut().write_link(at, link.to_bits());
    }

    fn read_key(&self, superslab: u32, at: u32) -> u32 {
        self.read_number(superslab, at + 4)
    }

    fn write_key(&self, superslab: u32, at: u32, key: u32) {
        self.store(self.offset_in(superslab, u64::from(at) + 4), &key.to_le_bytes());
    }

    fn exchange(&self, superslab: u32, at: u32, link: Link, key: u32) -> (Link, u32) {
        let before = (Link::from_bits(self.read_number(superslab, at)), self.read_key(superslab, at));
        self.write_link(superslab, at, link);
        self.write_key(superslab, at, key);
        before
    }

    fn invalid_free(&self, block: Block<u32>, what: InvalidFree) {
        panic!("{what:?} of {block:?}, but the test frees only live blocks");
    }

    fn read_header(&self, superslab: u32, at: u32) -> u8 {
        let mut tag = [0];
        self.load(self.offset_in(superslab, u64::from(at)), &mut tag);
        tag[0]
    }

    fn write_header(&self, superslab: u32, at: u32, bytes: u32, tag: u8) {
        let at = self.offset_in(superslab, u64::from(at));
        self.overwritten(at, u64::from(bytes));
        self.bytes.borrow_mut().fill(at, u64::from(bytes), tag);
    }

    fn zero(&self, superslab: u32, at: u64, bytes: u64) {
        let at = self.offset_in(superslab, at);
        self.overwritten(at, bytes);
        self.bytes.borrow_mut().fill(at, bytes, 0);
    }

    fn copy(&self, to: Block<u32>, from: Block<u32>, bytes: u64) {
        let (to, from) = (self.arena_offset(to), self.arena_offset(from));
        assert!(to + bytes <= from || from + bytes <= to, "a copy of {bytes} bytes overlaps: {from:#x} to {to:#x}");
        self.overwritten(to, bytes);
        self.bytes.borrow_mut().copy(to, from, bytes);
    }

    fn perform<A: PartialEq>(&self, own: &Paging, operation: impl Fn(&Paging, &dyn PageOps) -> A) -> A {
        operation(own, self)
    }

    fn bind(&self, first: u32, count: u32, address: u64) {
        for (ordinal, address) in (first..first + count).zip((address..).step_by(1 << self.layout.superslab_shift)) {
            if let Some(mappings) = &self.mappings {
                mappings.bind(ordinal, address);
            }
            self.change(self.superslab_range(ordinal), Backing::Mapped);
        }
    }

    fn unbind(&self, first: u32, count: u32) {
        for ordinal in first..first + count {
            if let Some(mappings) = &self.mappings {
                mappings.unbind(ordinal);
            }
            self.change(self.superslab_range(ordinal), Backing::Hole);
        }
    }

    fn address_of(&self, ordinal: u32) -> u64 {
        self.address(Block { superslab: ordinal, offset: 0 })
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }
}

impl<W: Word + Default> PageOps for PlainMemory<W> {
    fn map(&self, range: ArenaRange, mapping: Mapping) -> Result<(), Errno> {
        let whole = range.start.is_multiple_of(HUGE_PAGE_BYTES) && range.bytes.is_multiple_of(HUGE_PAGE_BYTES);
        if self.splits_hugetlb(range) {
            return Err(EINVAL);
        }
        match mapping {
            // Too many mappings: the kernel refuses before it removes anything.
            Mapping::Plain if self.fails() => return Err(ENOMEM),
            Mapping::Plain | Mapping::Populated => self.change(range, Backing::Mapped),
            Mapping::Hugetlb | Mapping::HugetlbPopulated if !whole => return Err(EINVAL),
            Mapping::Hugetlb | Mapping::HugetlbPopulated => {
                let pages = range.bytes / HUGE_PAGE_BYTES;
                if self.fails() || pages > self.hugetlb_pages_left.get() {
                    // The kernel removes the old mapping before it finds that no page is free.
                    self.change(range, Backing::Hole);
                    return Err(ENOMEM);
                }
                self.hugetlb_pages_left.set(self.hugetlb_pages_left.get() - pages);
                self.change(range, Backing::Hugetlb);
            }
        }
        Ok(())
    }

    fn unmap(&self, range: ArenaRange) -> Result<(), Errno> {
        if self.splits_hugetlb(range) {
            return Err(EINVAL);
        }
        if self.fails() {
            return Err(ENOMEM);
        }
        self.change(range, Backing::Hole);
        Ok(())
    }

    fn advise(&self, range: ArenaRange, advice: Advice) -> Result<(), Errno> {
        let pages = self.called_on(range);
        if self.bytes.borrow().backing(pages.clone()).contains(&Backing::Hole) || self.fails() {
            return Err(ENOMEM);
        }
        let hugetlb = self.bytes.borrow().backing(pages.clone()).contains(&Backing::Hugetlb);
        match advice {
            Advice::HugePage => self.advised.set(pages, Some(Pages::Huge)),
            Advice::NoHugePage => self.advised.set(pages, Some(Pages::Small)),
            Advice::PopulateRead | Advice::PopulateWrite | Advice::Collapse => {}
            Advice::Free if hugetlb => return Err(EINVAL),
            Advice::DontNeed if hugetlb && !range.start.is_multiple_of(HUGE_PAGE_BYTES) => return Err(EINVAL),
            Advice::DontNeed => {
                let rounding = if hugetlb { HUGE_PAGE_BYTES } else { PAGE_BYTES };
                let bytes = range.bytes - range.bytes % rounding;
                self.overwritten(range.start, bytes);
                self.bytes.borrow_mut().drop_pages(Self::pages(ArenaRange { bytes, ..range }));
            }
            Advice::Free => {
                self.overwritten(range.start, range.bytes);
                self.bytes.borrow_mut().free_pages(pages, &mut self.random.borrow_mut());
            }
        }
        Ok(())
    }

    fn remap(&self, from: ArenaRange, to_start: u64) -> Result<(), Errno> {
        let to = ArenaRange { start: to_start, ..from };
        self.called_on(from);
        self.called_on(to);
        if self.fails() {
            self.change(to, Backing::Hole);
            return Err(ENOMEM);
        }
        self.overwritten(from.start, from.bytes);
        self.overwritten(to.start, to.bytes);
        self.bytes.borrow_mut().move_pages(Self::pages(from), to_start / PAGE_BYTES);
        self.advised.move_pages(Self::pages(from), to_start / PAGE_BYTES);
        if let Some(mappings) = &self.mappings {
            mappings.unmap(mappings.address_of((from.start >> self.layout.superslab_shift) as u32), from.bytes);
        }
        Ok(())
    }

    fn map_anywhere(&self, bytes: u64, mapping: Mapping) -> Result<u64, Errno> {
        assert!(
            matches!(mapping, Mapping::Plain | Mapping::Populated),
            "reserved huge pages are mapped in the arena only"
        );
        match &self.mappings {
            None => panic!("mmap outside the arena"),
            Some(_) if self.fails() => Err(ENOMEM),
            Some(mappings) => mappings.map(bytes, &mut self.random.borrow_mut()).ok_or(ENOMEM),
        }
    }

    fn unmap_at(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        match &self.mappings {
            None => panic!("munmap outside the arena"),
            Some(_) if self.fails() => Err(ENOMEM),
            Some(mappings) => {
                mappings.unmap(address, bytes);
                Ok(())
            }
        }
    }

    fn touch_pages(&self, range: ArenaRange) {
        for page in Self::pages(range) {
            self.overwritten(page * PAGE_BYTES, 1);
            self.bytes.borrow_mut().fill(page * PAGE_BYTES, 1, 0);
        }
    }

    fn fill_pages(&self, range: ArenaRange) {
        self.overwritten(range.start, range.bytes);
        self.bytes.borrow_mut().fill(range.start, range.bytes, 0);
    }
}

impl<W: Word + Default> World for PlainMemory<W> {
    fn app_read(&self, block: Block<u32>, offset: u64, bytes: u64) {
        let mut read = vec![0; bytes as usize];
        self.load(self.arena_offset(block) + offset, &mut read);
    }

    fn app_write(&self, block: Block<u32>, offset: u64, bytes: u64) {
        let at = self.arena_offset(block) + offset;
        self.overwritten(at, bytes);
        self.bytes.borrow_mut().fill(at, bytes, APPLICATION_BYTE);
    }

    fn set_now(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }
}
