//! The plain memory with loom's words, lock and links. At each access, loom chooses the thread that runs next, and
//! which of the allowed values a read returns.

use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use hksim_policy::Paging;
use hksim_policy::field::Field;
use hksim_policy::layout::Layout;
use hksim_policy::memory::{Advice, ArenaRange, Block, Link, Mapping, Memory, PageOps};
use hksim_policy::meta::{Entry, PoolMeta, SpanMeta, SuperSlabMeta};
use hksim_policy::vocabulary::MetaPlace;
use hksim_policy::{Errno, InvalidFree, Policy, RunGeometry, Word, order};
use hksim_testkit::PlainMemory;
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use loom::sync::{Mutex, MutexGuard};

/// A deliberate flaw of the words, to check that the tests detect such a flaw.
pub trait Flaw: 'static {
    /// The ordering that replaces `sound`.
    fn ordering(sound: Ordering) -> Ordering {
        sound
    }
    /// Whether a swap consists of a separate load and store.
    const TORN_SWAP: bool = false;
}

/// No flaw.
pub struct Sound;
impl Flaw for Sound {}

/// All orderings are relaxed.
pub struct Unordered;
impl Flaw for Unordered {
    fn ordering(_: Ordering) -> Ordering {
        Ordering::Relaxed
    }
}

/// Swaps are not atomic, and can lose another thread's write.
pub struct TornSwap;
impl Flaw for TornSwap {
    const TORN_SWAP: bool = true;
}

/// A loom atomic with the orderings of the contract.
pub struct LoomWord<F>(AtomicU64, PhantomData<F>);

impl<F> Default for LoomWord<F> {
    fn default() -> LoomWord<F> {
        LoomWord(AtomicU64::new(0), PhantomData)
    }
}

impl<F: Flaw> Word for LoomWord<F> {
    fn load(&self) -> u64 {
        self.0.load(F::ordering(order::LOAD))
    }

    fn store(&self, value: u64) {
        self.0.store(value, F::ordering(order::STORE));
    }

    fn swap(&self, value: u64) -> u64 {
        if F::TORN_SWAP {
            let found = self.load();
            self.store(value);
            return found;
        }
        self.0.swap(value, F::ordering(order::SWAP))
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        let (done, failed) = (F::ordering(order::EXCHANGE), F::ordering(order::FAILED_EXCHANGE));
        self.0.compare_exchange(current, new, done, failed)
    }
}

/// The memory backend.
pub struct LoomMemory<F> {
    plain: PlainMemory<LoomWord<F>>,
    lock: Mutex<()>,
    /// The first bytes of every block, by offset in the arena. loom checks that accesses to them are ordered.
    starts: RefCell<HashMap<u64, Rc<UnsafeCell<()>>>>,
}

/// The pool's lock.
pub struct Guard<'a> {
    /// Released first, so that the plain lock is free whenever loom's lock is free.
    _plain: hksim_testkit::PlainGuard<'a>,
    _loom: MutexGuard<'a, ()>,
}

impl<F: Flaw> LoomMemory<F> {
    /// An arena of a few SuperSlabs.
    pub fn new(policy: &Policy, ordinals: u32) -> (LoomMemory<F>, RunGeometry, Layout) {
        let geometry = RunGeometry::new(policy).expect("a valid geometry");
        let layout = Layout::new(&geometry, u64::from(ordinals) * policy.superslab_bytes);
        let plain = PlainMemory::new(layout, &geometry, ordinals, 1);
        (LoomMemory { plain, lock: Mutex::new(()), starts: RefCell::default() }, geometry, layout)
    }

    /// Offset of a block's first byte from the start of the arena.
    pub fn place(&self, block: Block<u32>) -> u64 {
        self.plain.arena_offset(block)
    }

    /// The program writes to a block that it holds.
    pub fn use_block(&self, block: Block<u32>) {
        self.start(self.place(block)).with_mut(|_| ());
        self.plain.store(self.place(block), &[0xA5; 4]);
    }

    fn start(&self, at: u64) -> Rc<UnsafeCell<()>> {
        self.starts.borrow_mut().entry(at).or_insert_with(|| Rc::new(UnsafeCell::new(()))).clone()
    }

    fn start_in(&self, superslab: u32, at: u32) -> Rc<UnsafeCell<()>> {
        self.start(self.place(Block { superslab, offset: at }))
    }
}

impl<F: Flaw> Memory for LoomMemory<F> {
    type SuperSlab = u32;
    type Word = LoomWord<F>;
    type Guard<'a> = Guard<'a>;
    type LinkPlace = ();
    const NO_LINKS: () = ();

    fn ordinals(&self) -> u32 {
        self.plain.ordinals()
    }

    fn superslab(&self, ordinal: u32) -> u32 {
        self.plain.superslab(ordinal)
    }

    fn ordinal(&self, superslab: u32) -> u32 {
        self.plain.ordinal(superslab)
    }

    fn init_meta(&self, superslab: u32) {
        self.plain.init_meta(superslab);
    }

    fn meta(&self, superslab: u32) -> &SuperSlabMeta<LoomWord<F>> {
        self.plain.meta(superslab)
    }

    fn slice_meta(&self, place: MetaPlace, superslab: u32, slice: u32) -> &SpanMeta {
        self.plain.slice_meta(place, superslab, slice)
    }

    fn remote(&self, superslab: u32, slice: u32) -> &LoomWord<F> {
        self.plain.remote(superslab, slice)
    }

    fn message_next(&self, superslab: u32, slice: u32) -> &LoomWord<F> {
        self.plain.message_next(superslab, slice)
    }

    fn entry(&self, ordinal: u32) -> &Entry {
        self.plain.entry(ordinal)
    }

    fn pool(&self) -> &PoolMeta {
        self.plain.pool()
    }

    fn lock(&self) -> Guard<'_> {
        let loom = self.lock.lock().expect("no thread panics while it holds the lock");
        Guard { _plain: self.plain.lock(), _loom: loom }
    }

    fn init_heap(&self, heap: u32) {
        self.plain.init_heap(heap);
    }

    fn message_queue(&self, heap: u32) -> &LoomWord<F> {
        self.plain.message_queue(heap)
    }

    fn front_cache_entry(&self, heap: u32, index: u32) -> &Field<u64> {
        self.plain.front_cache_entry(heap, index)
    }

    fn read_link(&self, superslab: u32, at: u32) -> Link {
        self.start_in(superslab, at).with(|_| ());
        self.plain.read_link(superslab, at)
    }

    fn write_link(&self, superslab: u32, at: u32, link: Link) {
        self.start_in(superslab, at).with_mut(|_| ());
        self.plain.write_link(superslab, at, link);
    }

    fn read_key(&self, superslab: u32, at: u32) -> u32 {
        self.plain.read_key(superslab, at)
    }

    fn write_key(&self, superslab: u32, at: u32, key: u32) {
        self.plain.write_key(superslab, at, key);
    }

    fn exchange(&self, superslab: u32, at: u32, link: Link, key: u32) -> (Link, u32) {
        self.start_in(superslab, at).with_mut(|_| ());
        self.plain.exchange(superslab, at, link, key)
    }

    fn invalid_free(&self, block: Block<u32>, what: InvalidFree) {
        self.plain.invalid_free(block, what);
    }

    fn read_header(&self, superslab: u32, at: u32) -> u8 {
        self.plain.read_header(superslab, at)
    }

    fn write_header(&self, superslab: u32, at: u32, bytes: u32, tag: u8) {
        self.plain.write_header(superslab, at, bytes, tag);
    }

    fn zero(&self, superslab: u32, at: u64, bytes: u64) {
        self.plain.zero(superslab, at, bytes);
    }

    fn copy(&self, to: Block<u32>, from: Block<u32>, bytes: u64) {
        self.plain.copy(to, from, bytes);
    }

    fn perform<A: PartialEq>(&self, own: &Paging, operation: impl Fn(&Paging, &dyn PageOps) -> A) -> A {
        operation(own, self)
    }

    fn bind(&self, first: u32, count: u32, address: u64) {
        self.plain.bind(first, count, address);
    }

    fn unbind(&self, first: u32, count: u32) {
        self.plain.unbind(first, count);
    }

    fn address_of(&self, ordinal: u32) -> u64 {
        self.plain.address_of(ordinal)
    }

    fn now_ns(&self) -> u64 {
        self.plain.now_ns()
    }

    fn yield_now(&self) {
        loom::thread::yield_now();
    }
}

impl<F: Flaw> PageOps for LoomMemory<F> {
    fn map(&self, range: ArenaRange, mapping: Mapping) -> Result<(), Errno> {
        self.plain.map(range, mapping)
    }

    fn unmap(&self, range: ArenaRange) -> Result<(), Errno> {
        self.plain.unmap(range)
    }

    fn advise(&self, range: ArenaRange, advice: Advice) -> Result<(), Errno> {
        self.plain.advise(range, advice)
    }

    fn remap(&self, from: ArenaRange, to_start: u64) -> Result<(), Errno> {
        self.plain.remap(from, to_start)
    }

    fn map_anywhere(&self, bytes: u64, mapping: Mapping) -> Result<u64, Errno> {
        self.plain.map_anywhere(bytes, mapping)
    }

    fn unmap_at(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        self.plain.unmap_at(address, bytes)
    }

    fn touch_pages(&self, range: ArenaRange) {
        self.plain.touch_pages(range);
    }

    fn fill_pages(&self, range: ArenaRange) {
        self.plain.fill_pages(range);
    }
}
