//! The memory backend on mmap: typed access by pointer.
//!
//! All pointers are into one [`Reservation`], which the [`Layout`] divides, or into separate mappings of SuperSlabs.
//! Metadata types are valid when zeroed (see the policy's `meta.rs`), and fresh anonymous memory is zero, so every
//! reference below is to a valid value.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use hksim_policy::field::Field;
use hksim_policy::layout::{HEAP_BYTES, Layout, SPANS_AT};
use hksim_policy::memory::{
    APPLICATION_BYTE, Advice, ArenaRange, Block, Link, Locking, Mapping, Memory, MemoryLock, PageOps, World,
};
use hksim_policy::meta::{Entry, PoolMeta, SpanMeta, SuperSlabMeta};
use hksim_policy::vocabulary::{Align, MetaPlace};
use hksim_policy::{Errno, InvalidFree, PAGE_BYTES, Paging};

use crate::addresses::Addresses;
use crate::lock::ForkLock;
use crate::mapped_parts::{Pages, lock_mapped_parts};
use crate::os::Os;
use crate::reservation::{Reservation, ReserveError};
use crate::word::AtomicWord;

/// Bytes of a link; the key follows it.
const LINK_BYTES: usize = size_of::<u32>();
/// Bytes of a metadata word.
const WORD_BYTES: u64 = 8;
/// Offset of the message queue in a heap's slot. The queue has the slot's last cache line to itself.
const QUEUE_AT: u64 = HEAP_BYTES - 64;

/// Offset of the mark in a heap's slot. The mark is on the cache line before the message queue.
const MARK_AT: u64 = QUEUE_AT - 64;

/// The memory backend on mmap.
pub struct MmapMemory<O: Os> {
    base: NonNull<u8>,
    /// First byte of the arena.
    arena: NonNull<u8>,
    /// Mask of the address bits that are the offset in a SuperSlab. The arena starts at a multiple of the SuperSlab
    /// size.
    offset_mask: usize,
    layout: Layout,
    os: O,
    lock: ForkLock<()>,
    /// Addresses of SuperSlabs, if they have separate mappings.
    addresses: Option<Addresses>,
    /// Whether and how the program locks future memory: [`UNLOCKED`], [`LOCKED`] or [`LOCKED_ON_FAULT`].
    locks_future: AtomicU8,
    _reservation: Reservation,
}

const UNLOCKED: u8 = 0;
const LOCKED: u8 = 1;
const LOCKED_ON_FAULT: u8 = 2;

// SAFETY: threads share atomic words, the pool and the table under the lock, and blocks, each of which has one
// owner at a time; `Cell` metadata belongs to the owning heap's thread (contract of policy's `meta.rs`).
unsafe impl<O: Os + Sync> Sync for MmapMemory<O> {}
// SAFETY: no field is tied to a thread.
unsafe impl<O: Os + Send> Send for MmapMemory<O> {}

impl<O: Os> MmapMemory<O> {
    /// Reserves a layout's address range and writes its control page.
    ///
    /// # Errors
    /// The address space cannot be reserved.
    pub fn new(layout: Layout, os: O) -> Result<MmapMemory<O>, ReserveError> {
        let addresses = (layout.align != Align::Arena).then(|| Addresses::new(&layout));
        MmapMemory::with_addresses(layout, os, addresses)
    }

    /// As [`new`](Self::new), with address tables that were created before. `addresses` must be those of this layout if
    /// SuperSlabs have separate mappings, and `None` otherwise.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// If `addresses` is `Some` but `O` does not support separate mappings ([`Os::OWN_MAPPINGS`]).
    pub fn with_addresses(layout: Layout, os: O, addresses: Option<Addresses>) -> Result<MmapMemory<O>, ReserveError> {
        assert!(
            O::OWN_MAPPINGS || addresses.is_none(),
            "these system calls do not support SuperSlabs with separate mappings"
        );
        let reservation = Reservation::map(&layout)?;
        let base = reservation.base();
        // SAFETY: the arena is a part of the reservation.
        let arena = unsafe { base.add(layout.arena as usize) };
        let offset_mask = (1 << layout.superslab_shift) - 1;
        let memory = MmapMemory {
            base,
            arena,
            offset_mask,
            layout,
            os,
            lock: ForkLock::new(()),
            addresses,
            locks_future: AtomicU8::new(UNLOCKED),
            _reservation: reservation,
        };
        // SAFETY: the control page is the first of the reservation.
        unsafe { memory.base.as_ptr().write_bytes(0, PAGE_BYTES as usize) };
        Ok(memory)
    }

    /// Resets the pool's lock after a fork. Returns whether a thread of the parent held it.
    ///
    /// # Safety
    /// Called in the child of a fork, while it has one thread, which does not hold the lock.
    pub unsafe fn renew_lock(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.lock.renew() }
    }

    /// Forgets that memory is locked. For the child of a fork, which inherits no locks.
    pub fn forget_locks(&self) {
        self.locks_future.store(UNLOCKED, Ordering::Relaxed);
    }

    /// The system calls.
    pub fn os(&self) -> &O {
        &self.os
    }

    /// Bytes of the reservation.
    pub fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    /// First byte of the reservation.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// First byte of the arena.
    pub fn arena(&self) -> NonNull<u8> {
        self.arena
    }

    /// Length of the arena.
    pub fn arena_bytes(&self) -> usize {
        self.layout.arena_bytes as usize
    }

    /// The address of a block.
    #[inline(always)]
    pub fn address(&self, block: Block<NonNull<u8>>) -> NonNull<u8> {
        // SAFETY: a block's offset is inside its SuperSlab.
        unsafe { block.superslab.add(block.offset as usize) }
    }

    /// The block at an address inside the arena that [`address`](Self::address) returned.
    #[inline(always)]
    pub fn block_at(&self, address: NonNull<u8>) -> Block<NonNull<u8>> {
        let offset = address.as_ptr() as usize & self.offset_mask;
        // SAFETY: the SuperSlab starts `offset` bytes before the address, inside the arena.
        Block { superslab: unsafe { address.sub(offset) }, offset: offset as u32 }
    }

    /// Whether an address is in the arena.
    #[inline(always)]
    pub fn holds(&self, address: NonNull<u8>) -> bool {
        (address.as_ptr() as usize).wrapping_sub(self.arena.as_ptr() as usize) < self.layout.arena_bytes as usize
    }

    /// The addresses of SuperSlabs, if they have separate mappings.
    #[inline(always)]
    pub fn addresses(&self) -> Option<&Addresses> {
        if O::OWN_MAPPINGS { self.addresses.as_ref() } else { None }
    }

    /// All ranges that have page numbers, in ascending order. Each item is the first page number (relative to the base
    /// of the layout) and the range of pages in the address space. Only the thread that drives the allocator may call
    /// this.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, Range<u64>)> + '_ {
        let superslab_pages = (1 << self.layout.superslab_shift) / PAGE_BYTES;
        let base = self.base.as_ptr() as u64 / PAGE_BYTES;
        let bound = self.addresses.iter().flat_map(move |addresses| {
            (0..self.pool().high_water.get()).filter_map(move |ordinal| {
                let first = addresses.address_of(ordinal)? / PAGE_BYTES;
                Some((self.layout.superslab_of(ordinal) / PAGE_BYTES, first..first + superslab_pages))
            })
        });
        std::iter::once((0, base..base + self.layout.bytes() / PAGE_BYTES)).chain(bound)
    }

    /// The storage of a heap slot's `ThreadHeap`.
    pub fn heap_storage(&self, heap: u32) -> NonNull<u8> {
        self.at(self.layout.heap_of(heap))
    }

    /// A heap slot's mark, which the policy does not use. It is zero when a heap is opened; then the heap's owner
    /// writes it.
    pub fn heap_mark(&self, heap: u32) -> &AtomicU32 {
        // SAFETY: inside the slot, after the `ThreadHeap` (whose size assert ensures this) and before the message
        // queue.
        unsafe { self.at(self.layout.heap_of(heap) + MARK_AT).cast().as_ref() }
    }

    #[inline(always)]
    fn at(&self, offset: u64) -> NonNull<u8> {
        // SAFETY: layout offsets are inside the reservation.
        unsafe { self.base.add(offset as usize) }
    }

    #[inline(always)]
    fn meta_base(&self, superslab: NonNull<u8>) -> NonNull<u8> {
        match self.layout.meta_place {
            MetaPlace::InBand => superslab,
            MetaPlace::Sidecar => self.at(self.layout.meta_of(self.ordinal(superslab))),
        }
    }

    fn arena_at(&self, start: u64) -> NonNull<u8> {
        match self.addresses() {
            None => self.at(self.layout.arena + start),
            Some(addresses) => {
                let superslab = addresses.superslab((start >> self.layout.superslab_shift) as u32);
                // SAFETY: the range covers SuperSlabs bound to adjacent addresses (contract of policy's `memory.rs`).
                unsafe { superslab.add(start as usize & self.offset_mask) }
            }
        }
    }

    #[inline(always)]
    fn word(&self, superslab: NonNull<u8>, words: u32, slice: u32) -> &AtomicWord {
        // SAFETY: the word arrays are inside the initialised metadata; slice indices are below the SuperSlab's count.
        unsafe {
            self.meta_base(superslab).add((words as u64 + WORD_BYTES * u64::from(slice)) as usize).cast().as_ref()
        }
    }
}

/// The ordinal of a SuperSlab with a separate mapping. Out of line, because in an arena the ordinal is computed from
/// the offset.
#[cold]
fn bound_ordinal(addresses: &Addresses, superslab: NonNull<u8>) -> u32 {
    match addresses.ordinal_at(superslab.as_ptr() as u64) {
        Some(ordinal) => ordinal,
        None => unreachable!("no SuperSlab is bound at {superslab:p}"),
    }
}

impl<O: Os> Memory for MmapMemory<O> {
    type SuperSlab = NonNull<u8>;
    type Word = AtomicWord;
    type Guard<'a>
        = MutexGuard<'a, ()>
    where
        O: 'a;
    type LinkPlace = ();
    const NO_LINKS: () = ();

    fn ordinals(&self) -> u32 {
        self.layout.ordinals()
    }

    #[inline(always)]
    fn superslab(&self, ordinal: u32) -> NonNull<u8> {
        match self.addresses() {
            None => self.at(self.layout.superslab_of(ordinal)),
            Some(addresses) => addresses.superslab(ordinal),
        }
    }

    #[inline(always)]
    fn ordinal(&self, superslab: NonNull<u8>) -> u32 {
        if let Some(addresses) = self.addresses() {
            return bound_ordinal(addresses, superslab);
        }
        let from_arena = superslab.as_ptr() as usize - self.arena.as_ptr() as usize;
        (from_arena >> self.layout.superslab_shift) as u32
    }

    fn init_meta(&self, superslab: NonNull<u8>) {
        // SAFETY: the metadata pages belong to the SuperSlab, which is not in use yet.
        unsafe { self.meta_base(superslab).as_ptr().write_bytes(0, self.layout.meta_bytes as usize) };
    }

    #[inline(always)]
    fn meta(&self, superslab: NonNull<u8>) -> &SuperSlabMeta<AtomicWord> {
        // SAFETY: initialised metadata starts at this address, which is page-aligned.
        unsafe { self.meta_base(superslab).cast().as_ref() }
    }

    #[inline(always)]
    fn slice_meta(&self, place: MetaPlace, superslab: NonNull<u8>, slice: u32) -> &SpanMeta {
        let meta = match place {
            MetaPlace::InBand => superslab,
            MetaPlace::Sidecar => self.meta_base(superslab),
        };
        let at = SPANS_AT as usize + slice as usize * size_of::<SpanMeta>();
        // SAFETY: the array of span metadata is inside the initialised metadata; slice indices are below the
        // SuperSlab's count.
        unsafe { meta.add(at).cast().as_ref() }
    }

    #[inline(always)]
    fn remote(&self, superslab: NonNull<u8>, slice: u32) -> &AtomicWord {
        self.word(superslab, self.layout.remote_words, slice)
    }

    #[inline(always)]
    fn message_next(&self, superslab: NonNull<u8>, slice: u32) -> &AtomicWord {
        self.word(superslab, self.layout.message_links, slice)
    }

    fn entry(&self, ordinal: u32) -> &Entry {
        // SAFETY: the table has an entry for every ordinal; fresh ones are zero, which is valid.
        unsafe { self.at(self.layout.entry_of(ordinal)).cast().as_ref() }
    }

    fn pool(&self) -> &PoolMeta {
        // SAFETY: the control page, written in `new`.
        unsafe { self.base.cast().as_ref() }
    }

    fn heaps(&self) -> u32 {
        self.layout.heaps_max
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }

    fn init_heap(&self, heap: u32) {
        // SAFETY: the slot belongs to the heap that is being opened.
        unsafe { self.at(self.layout.heap_of(heap)).as_ptr().write_bytes(0, HEAP_BYTES as usize) };
    }

    fn message_queue(&self, heap: u32) -> &AtomicWord {
        // SAFETY: the slot's last cache line; zero is a valid word.
        unsafe { self.at(self.layout.heap_of(heap) + QUEUE_AT).cast().as_ref() }
    }

    fn front_cache_entry(&self, heap: u32, index: u32) -> &Field<u64> {
        // SAFETY: the layout has an entry for every index of a heap; fresh ones are zero, which is valid.
        unsafe { self.at(self.layout.front_entry_of(heap, index)).cast().as_ref() }
    }

    #[inline(always)]
    fn read_link(&self, superslab: NonNull<u8>, at: u32) -> Link {
        // SAFETY: a link was written there, inside the SuperSlab.
        Link::from_bits(unsafe { superslab.add(at as usize).cast::<u32>().read_unaligned() })
    }

    #[inline(always)]
    fn write_link(&self, superslab: NonNull<u8>, at: u32, link: Link) {
        // SAFETY: a free block of at least 8 bytes contains the link.
        unsafe { superslab.add(at as usize).cast::<u32>().write_unaligned(link.to_bits()) };
    }

    #[inline(always)]
    fn read_key(&self, superslab: NonNull<u8>, at: u32) -> u32 {
        // SAFETY: after a link, in a block of at least 8 bytes; anonymous memory is always initialised.
        unsafe { superslab.add(at as usize + LINK_BYTES).cast::<u32>().read() }
    }

    #[inline(always)]
    fn write_key(&self, superslab: NonNull<u8>, at: u32, key: u32) {
        // SAFETY: as for `read_key`; the block is free, or is being allocated.
        unsafe { superslab.add(at as usize + LINK_BYTES).cast::<u32>().write(key) };
    }

    /// In this order also after optimisation, hence volatile: on a page that was never written, a write is one fault, and a
    /// read before it another.
    #[inline(always)]
    fn push_link(&self, _place: (), superslab: NonNull<u8>, at: u32, link: Link, key: u32) -> bool {
        // SAFETY: as for `write_link` and `read_key`; `at` is a multiple of 8.
        unsafe {
            let [link_at, key_at] =
                [0, LINK_BYTES].map(|from_link| superslab.add(at as usize + from_link).cast::<u32>());
            link_at.write_volatile(link.to_bits());
            if key_at.read_volatile() == key {
                return false;
            }
            key_at.write(key);
        }
        true
    }

    fn exchange(&self, superslab: NonNull<u8>, at: u32, link: Link, key: u32) -> (Link, u32) {
        let new = u64::from(link.to_bits()) | u64::from(key) << 32;
        // SAFETY: the block starts at a multiple of 8 and has at least 8 bytes. It is being freed. The only possible
        // race is with other threads that also free it, by this function.
        let before =
            unsafe { AtomicU64::from_ptr(superslab.add(at as usize).cast().as_ptr()) }.swap(new, Ordering::Relaxed);
        (Link::from_bits(before as u32), (before >> 32) as u32)
    }

    fn invalid_free(&self, block: Block<NonNull<u8>>, what: InvalidFree) {
        self.os.invalid_free(self.address(block), block.superslab, self.ordinal(block.superslab), what);
    }

    #[inline(always)]
    fn read_header(&self, superslab: NonNull<u8>, at: u32) -> u8 {
        // SAFETY: the start of a block inside the SuperSlab; anonymous memory is always initialised.
        unsafe { superslab.add(at as usize).read_volatile() }
    }

    #[inline(always)]
    fn write_header(&self, superslab: NonNull<u8>, at: u32, bytes: u32, tag: u8) {
        // SAFETY: the header's bytes belong to the block that is being allocated.
        unsafe { superslab.add(at as usize).as_ptr().write_bytes(tag, bytes as usize) };
    }

    /// `calloc(0)` must not reach libc's memset: it may store no byte under an empty mask, and the processor then marks the
    /// page as written (AMD EPYC with AVX-512: the page is no longer `LazyFree` after `MADV_FREE`).
    fn zero(&self, superslab: NonNull<u8>, at: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        // SAFETY: the bytes belong to the block that is being allocated.
        unsafe { superslab.add(at as usize).as_ptr().write_bytes(0, bytes as usize) };
    }

    /// Copies page by page, reading before writing. libc's memcpy may read the end first, and the page that is touched
    /// first in a huge page decides what the kernel installs.
    fn copy(&self, to: Block<NonNull<u8>>, from: Block<NonNull<u8>>, bytes: u64) {
        let (to, from) = (self.address(to), self.address(from));
        let to_page_end = |at: NonNull<u8>| PAGE_BYTES as usize - at.as_ptr() as usize % PAGE_BYTES as usize;
        let mut done = 0;
        while done < bytes as usize {
            // SAFETY: both blocks have `bytes` bytes, `done` of which are copied; live blocks do not overlap.
            unsafe {
                let (source, target) = (from.add(done), to.add(done));
                let step = to_page_end(source).min(to_page_end(target)).min(bytes as usize - done);
                std::ptr::copy_nonoverlapping(source.as_ptr(), target.as_ptr(), step);
                done += step;
            }
        }
    }

    fn perform<A: PartialEq>(&self, own: &Paging, operation: impl Fn(&Paging, &dyn PageOps) -> A) -> A {
        operation(own, self)
    }

    fn bind(&self, first: u32, count: u32, address: u64) {
        if let Some(addresses) = &self.addresses {
            addresses.bind(first, count, address);
        }
    }

    fn unbind(&self, first: u32, count: u32) {
        if let Some(addresses) = &self.addresses {
            addresses.unbind(first, count);
        }
    }

    fn address_of(&self, ordinal: u32) -> u64 {
        self.superslab(ordinal).as_ptr() as u64
    }

    fn lock_process(&self, lock: MemoryLock) -> Result<(), Errno> {
        self.os.lock_process(lock)?;
        let locks_future = match (lock.future, lock.on_fault) {
            (false, _) => UNLOCKED,
            (true, false) => LOCKED,
            (true, true) => LOCKED_ON_FAULT,
        };
        self.locks_future.store(locks_future, Ordering::Relaxed);
        Ok(())
    }

    fn locks_future(&self) -> Option<Locking> {
        match self.locks_future.load(Ordering::Relaxed) {
            LOCKED => Some(Locking::Present),
            LOCKED_ON_FAULT => Some(Locking::OnFault),
            _ => None,
        }
    }

    fn now_ns(&self) -> u64 {
        self.os.now_ns()
    }

    /// Yields the core, because the thread that the caller waits for may have been preempted.
    fn yield_now(&self) {
        std::thread::yield_now();
    }
}

impl<O: Os> PageOps for MmapMemory<O> {
    fn map(&self, range: ArenaRange, mapping: Mapping) -> Result<(), Errno> {
        // SAFETY: the policy maps only ranges without live blocks.
        unsafe { self.os.map(self.arena_at(range.start), range.bytes as usize, mapping) }
    }

    fn unmap(&self, range: ArenaRange) -> Result<(), Errno> {
        // SAFETY: as for `map`.
        unsafe { self.os.unmap(self.arena_at(range.start), range.bytes as usize) }
    }

    fn advise(&self, range: ArenaRange, advice: Advice) -> Result<(), Errno> {
        // SAFETY: the policy purges only ranges without live blocks.
        unsafe { self.os.advise(self.arena_at(range.start), range.bytes as usize, advice) }
    }

    fn remap(&self, from: ArenaRange, to_start: u64) -> Result<(), Errno> {
        // SAFETY: the target is a run that was just taken; the policy later maps the source again.
        unsafe { self.os.remap(self.arena_at(from.start), from.bytes as usize, self.arena_at(to_start)) }
    }

    fn map_anywhere(&self, bytes: u64, mapping: Mapping) -> Result<u64, Errno> {
        self.os.map_anywhere(bytes as usize, mapping).map(|at| at.as_ptr().expose_provenance() as u64)
    }

    fn unmap_at(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        let at = NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize)).ok_or(Errno(libc::EINVAL))?;
        // SAFETY: the policy unmaps only ranges that it mapped, without live blocks.
        unsafe { self.os.unmap(at, bytes as usize) }
    }

    fn lock_tables(&self) -> Result<(), Errno> {
        // SAFETY: the tables are at the start of the reservation.
        unsafe { self.os.lock(self.base, self.layout.arena as usize, Locking::OnFault) }
    }

    fn lock_range(&self, range: ArenaRange, locking: Locking) -> Result<(), Errno> {
        let first = self.arena_at(range.start);
        let pages = Pages::of_bytes(first.as_ptr().addr(), range.bytes as usize);
        lock_mapped_parts(pages, locking, &|part, locking| {
            // SAFETY: part of a range of the arena.
            unsafe { self.os.lock(first.add(part.start - pages.start), part.bytes(), locking) }
        })
    }

    fn touch_pages(&self, range: ArenaRange) {
        let base = self.arena_at(range.start);
        for page in 0..range.bytes / PAGE_BYTES {
            // SAFETY: a page of a range without live blocks.
            unsafe { base.add((page * PAGE_BYTES) as usize).write_volatile(0) };
        }
    }

    fn fill_pages(&self, range: ArenaRange) {
        // SAFETY: a range without live blocks.
        unsafe { self.arena_at(range.start).as_ptr().write_bytes(0, range.bytes as usize) };
    }
}

impl<O: Os> World for MmapMemory<O> {
    #[inline]
    fn app_read(&self, block: Block<NonNull<u8>>, offset: u64, bytes: u64) {
        let first = self.address(block);
        for at in offset..offset + bytes {
            // SAFETY: the byte is in the block; anonymous memory is always initialised.
            unsafe { first.add(at as usize).read_volatile() };
        }
    }

    #[inline]
    fn app_write(&self, block: Block<NonNull<u8>>, offset: u64, bytes: u64) {
        // SAFETY: the bytes are in the block.
        unsafe { self.address(block).add(offset as usize).as_ptr().write_bytes(APPLICATION_BYTE, bytes as usize) };
    }

    #[inline(always)]
    fn set_now(&self, now_ns: u64) {
        self.os.set_now(now_ns);
    }
}
