//! The native memory with random yields: at random, a thread yields directly before it reads or changes a shared word.
//! This widens race windows of a few instructions, so that the tests hit them. A thread can also vanish at such an
//! access, or at an access to metadata, a free block or the kernel, as threads do in the child of a fork.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hksim_native::slots::SlotMemory;
use hksim_native::{AtomicWord, MmapMemory};
use hksim_policy::Paging;
use hksim_policy::field::Field;
use hksim_policy::layout::HEAP_BYTES;
use hksim_policy::memory::{Advice, ArenaRange, Block, Link, Mapping, Memory, PageOps};
use hksim_policy::meta::{Entry, PoolMeta, SpanMeta, SuperSlabMeta};
use hksim_policy::vocabulary::MetaPlace;
use hksim_policy::{Errno, InvalidFree, Word};

use crate::kernel::Kernel;

type Native = MmapMemory<Kernel>;

thread_local! {
    static STUMBLES: Cell<u64> = const { Cell::new(0) };
    static ACCESSES_LEFT: Cell<u64> = const { Cell::new(STAYS) };
}

/// The value for a thread that does not vanish. Its accesses are not counted.
const STAYS: u64 = u64::MAX;

/// The panic payload that unwinds a vanishing thread.
pub struct Vanished;

/// Makes the calling thread vanish after this many accesses: it unwinds, changes nothing more, and keeps its locks
/// locked.
pub fn vanish_at(access: u64) {
    ACCESSES_LEFT.set(access);
}

/// Cancels [`vanish_at`]. Returns the number of accesses so far.
pub fn accesses_until_now(vanish_at: u64) -> u64 {
    vanish_at - ACCESSES_LEFT.replace(STAYS)
}

fn perhaps_vanish() {
    match ACCESSES_LEFT.get() {
        STAYS => {}
        0 => std::panic::resume_unwind(Box::new(Vanished)),
        left => ACCESSES_LEFT.set(left - 1),
    }
}

/// Makes a thread that can vanish do so when it would wait for another thread. Only one thread runs at a time, so it
/// would wait until the fork.
fn perhaps_vanish_waiting() {
    if ACCESSES_LEFT.get() != STAYS {
        std::panic::resume_unwind(Box::new(Vanished));
    }
}

/// Sets the random yields of this thread: none if `seed` is 0, else about one in 32 accesses.
pub fn stumble(seed: u64) {
    STUMBLES.set(seed);
}

fn perhaps_stumble() {
    perhaps_vanish();
    let mut state = STUMBLES.get();
    if state == 0 {
        return;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STUMBLES.set(state);
    if state.is_multiple_of(32) {
        std::thread::yield_now();
    }
}

/// A word with random yields before each access.
#[repr(transparent)]
pub struct JitterWord(AtomicWord);

impl Word for JitterWord {
    fn load(&self) -> u64 {
        perhaps_stumble();
        self.0.load()
    }

    fn store(&self, value: u64) {
        perhaps_stumble();
        self.0.store(value);
    }

    fn swap(&self, value: u64) -> u64 {
        perhaps_stumble();
        self.0.swap(value)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        perhaps_stumble();
        self.0.compare_exchange(current, new)
    }
}

fn jittery(word: &AtomicWord) -> &JitterWord {
    // SAFETY: `repr(transparent)`.
    unsafe { &*std::ptr::from_ref(word).cast() }
}

/// Holds the pool's lock, and never releases it if its thread vanishes.
pub struct Guard<'a> {
    lock: ManuallyDrop<<Native as Memory>::Guard<'a>>,
    is_stuck: &'a AtomicBool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.is_stuck.store(true, Ordering::Release);
        } else {
            // SAFETY: dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.lock) };
        }
    }
}

/// The memory, and whether a thread vanished while it held the lock.
pub struct Jitter(pub Native, AtomicBool);

impl Jitter {
    /// Wraps native memory.
    pub fn new(memory: Native) -> Jitter {
        Jitter(memory, AtomicBool::new(false))
    }
}

impl SlotMemory for Jitter {
    fn heap_storage(&self, heap: u32) -> NonNull<u8> {
        perhaps_vanish();
        self.0.heap_storage(heap)
    }

    fn heap_mark(&self, heap: u32) -> &AtomicU32 {
        perhaps_vanish();
        self.0.heap_mark(heap)
    }

    unsafe fn renew_lock(&self) -> bool {
        self.1.store(false, Ordering::Release);
        // SAFETY: the caller's promise.
        unsafe { self.0.renew_lock() }
    }
}

impl Memory for Jitter {
    type SuperSlab = NonNull<u8>;
    type Word = JitterWord;
    type Guard<'a> = Guard<'a>;
    type LinkPlace = ();
    const NO_LINKS: () = ();

    fn ordinals(&self) -> u32 {
        self.0.ordinals()
    }

    fn superslab(&self, ordinal: u32) -> NonNull<u8> {
        self.0.superslab(ordinal)
    }

    fn ordinal(&self, superslab: NonNull<u8>) -> u32 {
        self.0.ordinal(superslab)
    }

    fn init_meta(&self, superslab: NonNull<u8>) {
        self.0.init_meta(superslab);
    }

    fn meta(&self, superslab: NonNull<u8>) -> &SuperSlabMeta<JitterWord> {
        perhaps_vanish();
        // SAFETY: the struct is `repr(C)` and the word `repr(transparent)`, so both types have the same layout.
        unsafe { &*std::ptr::from_ref(self.0.meta(superslab)).cast() }
    }

    fn slice_meta(&self, place: MetaPlace, superslab: NonNull<u8>, slice: u32) -> &SpanMeta {
        perhaps_vanish();
        self.0.slice_meta(place, superslab, slice)
    }

    fn remote(&self, superslab: NonNull<u8>, slice: u32) -> &JitterWord {
        jittery(self.0.remote(superslab, slice))
    }

    fn message_next(&self, superslab: NonNull<u8>, slice: u32) -> &JitterWord {
        jittery(self.0.message_next(superslab, slice))
    }

    fn entry(&self, ordinal: u32) -> &Entry {
        perhaps_vanish();
        self.0.entry(ordinal)
    }

    fn pool(&self) -> &PoolMeta {
        perhaps_vanish();
        self.0.pool()
    }

    fn lock(&self) -> Self::Guard<'_> {
        perhaps_stumble();
        if self.1.load(Ordering::Acquire) {
            perhaps_vanish_waiting();
        }
        let guard = Guard { lock: ManuallyDrop::new(self.0.lock()), is_stuck: &self.1 };
        perhaps_vanish();
        guard
    }

    fn heaps(&self) -> u32 {
        self.0.heaps()
    }

    fn yield_now(&self) {
        perhaps_vanish_waiting();
        self.0.yield_now();
    }

    fn init_heap(&self, heap: u32) {
        perhaps_vanish();
        // SAFETY: the slot belongs to the heap that is being opened.
        unsafe { self.0.heap_storage(heap).as_ptr().write_bytes(0, HEAP_BYTES as usize / 2) };
        perhaps_vanish();
        self.0.init_heap(heap);
        perhaps_vanish();
    }

    fn message_queue(&self, heap: u32) -> &JitterWord {
        jittery(self.0.message_queue(heap))
    }

    fn front_cache_entry(&self, heap: u32, index: u32) -> &Field<u64> {
        perhaps_vanish();
        self.0.front_cache_entry(heap, index)
    }

    fn read_link(&self, superslab: NonNull<u8>, at: u32) -> Link {
        perhaps_vanish();
        self.0.read_link(superslab, at)
    }

    fn write_link(&self, superslab: NonNull<u8>, at: u32, link: Link) {
        perhaps_vanish();
        self.0.write_link(superslab, at, link);
    }

    fn read_key(&self, superslab: NonNull<u8>, at: u32) -> u32 {
        self.0.read_key(superslab, at)
    }

    fn write_key(&self, superslab: NonNull<u8>, at: u32, key: u32) {
        self.0.write_key(superslab, at, key);
    }

    fn exchange(&self, superslab: NonNull<u8>, at: u32, link: Link, key: u32) -> (Link, u32) {
        perhaps_vanish();
        self.0.exchange(superslab, at, link, key)
    }

    fn invalid_free(&self, block: Block<NonNull<u8>>, what: InvalidFree) {
        self.0.invalid_free(block, what);
    }

    fn read_header(&self, superslab: NonNull<u8>, at: u32) -> u8 {
        self.0.read_header(superslab, at)
    }

    fn write_header(&self, superslab: NonNull<u8>, at: u32, bytes: u32, tag: u8) {
        self.0.write_header(superslab, at, bytes, tag);
    }

    fn zero(&self, superslab: NonNull<u8>, at: u64, bytes: u64) {
        perhaps_vanish();
        self.0.zero(superslab, at, bytes);
    }

    fn copy(&self, to: Block<NonNull<u8>>, from: Block<NonNull<u8>>, bytes: u64) {
        perhaps_vanish();
        self.0.copy(to, from, bytes);
    }

    fn perform<A: PartialEq>(&self, own: &Paging, operation: impl Fn(&Paging, &dyn PageOps) -> A) -> A {
        operation(own, self)
    }

    fn bind(&self, first: u32, count: u32, address: u64) {
        self.0.bind(first, count, address);
    }

    fn unbind(&self, first: u32, count: u32) {
        self.0.unbind(first, count);
    }

    fn address_of(&self, ordinal: u32) -> u64 {
        self.0.address_of(ordinal)
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

impl PageOps for Jitter {
    fn map(&self, range: ArenaRange, mapping: Mapping) -> Result<(), Errno> {
        perhaps_vanish();
        self.0.map(range, mapping)
    }

    fn unmap(&self, range: ArenaRange) -> Result<(), Errno> {
        perhaps_vanish();
        self.0.unmap(range)
    }

    fn advise(&self, range: ArenaRange, advice: Advice) -> Result<(), Errno> {
        perhaps_vanish();
        self.0.advise(range, advice)
    }

    fn remap(&self, from: ArenaRange, to_start: u64) -> Result<(), Errno> {
        perhaps_vanish();
        self.0.remap(from, to_start)
    }

    fn map_anywhere(&self, bytes: u64, mapping: Mapping) -> Result<u64, Errno> {
        self.0.map_anywhere(bytes, mapping)
    }

    fn unmap_at(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        self.0.unmap_at(address, bytes)
    }

    fn touch_pages(&self, range: ArenaRange) {
        self.0.touch_pages(range);
    }

    fn fill_pages(&self, range: ArenaRange) {
        self.0.fill_pages(range);
    }
}
