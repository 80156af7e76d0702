//! The memory backend: the interface between the allocator and the memory it manages.
//!
//! The interface covers individual memory accesses, not only mmap calls, because the allocator's own metadata, headers
//! and links cause many of its page faults. A backend provides typed access to the allocator's memory ([`Memory`]), and
//! single page operations on ranges of the arena ([`PageOps`]). The policy decides which operations are made, when
//! (`os.rs`), and in which order (`paging.rs`).
//!
//! Contract of every method that takes a SuperSlab: the SuperSlab comes from [`Memory::superslab`] with an ordinal
//! below [`Memory::ordinals`], the policy has initialised its metadata, and offsets are inside it. If SuperSlabs have
//! separate mappings ([`Align`](crate::policy::vocabulary::Align)), the SuperSlab is bound to an address. An
//! [`ArenaRange`] then covers only SuperSlabs with adjacent addresses.

use core::ops::Range;

use crate::heap::invalid_free::InvalidFree;
pub use crate::heap::link::Link;
use crate::metadata::field::Field;
use crate::metadata::meta::{Entry, PoolMeta, SpanMeta, SuperSlabMeta};
use crate::metadata::shared_word::Word;
use crate::path::Path;
use crate::policy::split::Paging;
use crate::policy::vocabulary::MetaPlace;

/// The byte that applications write, in every backend. Not zero, because the kernel treats zero-filled pages
/// differently (KSM, splits). Always the same value, because the header modes `light` and `off` read bytes that the
/// program has written.
pub const APPLICATION_BYTE: u8 = 0xA5;

/// An errno value as the kernel returns it (positive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The address of a block: a SuperSlab and an offset in bytes inside it.
///
/// An offset does not depend on the backend, so placements in two backends can be compared directly. A huge block
/// starts at offset 0 of the first SuperSlab of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<S> {
    /// The SuperSlab the block starts in.
    pub superslab: S,
    /// Bytes from the start of that SuperSlab.
    pub offset: u32,
}

/// A byte range of the arena. Both numbers are multiples of the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaRange {
    /// Offset of the first byte from the start of the arena.
    pub start: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// How a fixed range of the arena is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Private anonymous, `MAP_NORESERVE`.
    Plain,
    /// As `Plain`, with `MAP_POPULATE`.
    Populated,
    /// Reserved huge pages, `MAP_HUGETLB | MAP_HUGE_2MB`.
    Hugetlb,
    /// As `Hugetlb`, with `MAP_POPULATE`.
    HugetlbPopulated,
}

/// The `madvise` calls an allocator makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_HUGEPAGE`.
    HugePage,
    /// `MADV_NOHUGEPAGE`.
    NoHugePage,
    /// `MADV_DONTNEED`: private pages are dropped and read as zeros.
    DontNeed,
    /// `MADV_FREE`: pages may be dropped later; contents are undefined until written.
    Free,
    /// `MADV_POPULATE_READ`.
    PopulateRead,
    /// `MADV_POPULATE_WRITE`.
    PopulateWrite,
    /// `MADV_COLLAPSE`: collapses present pages into huge pages, synchronously.
    Collapse,
}

/// How memory is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// `mlock`: pages are made present and locked immediately.
    Present,
    /// `mlock2(MLOCK_ONFAULT)`: pages are locked when they are touched.
    OnFault,
}

/// The flags of an `mlockall` call. If no flag is set, the call is `munlockall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLock {
    /// `MCL_CURRENT`.
    pub current: bool,
    /// `MCL_FUTURE`.
    pub future: bool,
    /// `MCL_ONFAULT`.
    pub on_fault: bool,
}

impl MemoryLock {
    /// Whether pages are locked immediately or when they are touched.
    pub fn locking(self) -> Locking {
        if self.on_fault { Locking::OnFault } else { Locking::Present }
    }
}

/// The page operations that a paging policy makes: system calls and prefaulting touches.
pub trait PageOps {
    /// One `mmap(MAP_FIXED)` over a range of the arena.
    fn map(&self, range: ArenaRange, mapping: Mapping) -> Result<(), Errno>;
    /// One `munmap` of a range of the arena.
    fn unmap(&self, range: ArenaRange) -> Result<(), Errno>;
    /// One `madvise` on a range of the arena.
    fn advise(&self, range: ArenaRange, advice: Advice) -> Result<(), Errno>;
    /// One `mremap(MREMAP_MAYMOVE | MREMAP_FIXED)` of equal length inside the arena; the source is left unmapped.
    fn remap(&self, from: ArenaRange, to_start: u64) -> Result<(), Errno>;
    /// One `mmap` without a hint; returns the address. This and the next method are used only if SuperSlabs have
    /// separate mappings.
    fn map_anywhere(&self, bytes: u64, mapping: Mapping) -> Result<u64, Errno>;
    /// One `munmap` of addresses that [`map_anywhere`](PageOps::map_anywhere) mapped.
    fn unmap_at(&self, address: u64, bytes: u64) -> Result<(), Errno>;
    /// Prefaults by writing one zero byte to every page of a range.
    fn touch_pages(&self, range: ArenaRange);
    /// Prefaults by writing zeros to a whole range.
    fn fill_pages(&self, range: ArenaRange);

    /// Locks the allocator's tables, on fault.
    fn lock_tables(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Locks a range of the arena.
    fn lock_range(&self, _range: ArenaRange, _locking: Locking) -> Result<(), Errno> {
        Ok(())
    }
}

/// The memory backend of an allocator. All of its state is in the instance, none in statics.
pub trait Memory {
    /// Identifies a SuperSlab: by address on mmap, by ordinal in the simulator.
    type SuperSlab: Copy + Eq + core::fmt::Debug;
    /// A word that other threads may change: an `AtomicU64` on mmap, a `Cell` in the simulator.
    type Word: Word;
    /// Holds the pool's lock until dropped.
    type Guard<'a>
    where
        Self: 'a;
    /// Where a slab's links are, for backends that keep links apart from blocks; `()` for others. A heap keeps that of
    /// each active slab.
    type LinkPlace: Copy;
    /// The place of no links.
    const NO_LINKS: Self::LinkPlace;

    /// Number of SuperSlabs in the arena.
    fn ordinals(&self) -> u32;
    /// The SuperSlab with this ordinal.
    fn superslab(&self, ordinal: u32) -> Self::SuperSlab;
    /// The ordinal of a SuperSlab.
    fn ordinal(&self, superslab: Self::SuperSlab) -> u32;

    /// Zeroes every metadata page of a SuperSlab. Must be called before the next four methods.
    fn init_meta(&self, superslab: Self::SuperSlab);
    /// The SuperSlab's own metadata.
    fn meta(&self, superslab: Self::SuperSlab) -> &SuperSlabMeta<Self::Word>;
    /// The metadata of one slice. A span's metadata is that of its first slice. `place` says where metadata is stored;
    /// fast paths that know this at compile time pass a constant.
    fn slice_meta(&self, place: MetaPlace, superslab: Self::SuperSlab, slice: u32) -> &SpanMeta;
    /// The remote-free word of a slab.
    fn remote(&self, superslab: Self::SuperSlab, slice: u32) -> &Self::Word;
    /// The link of a slab in its owner's message queue.
    fn message_next(&self, superslab: Self::SuperSlab, slice: u32) -> &Self::Word;

    /// The arena table's entry for an ordinal (out of band). The first access to an entry is a write.
    fn entry(&self, ordinal: u32) -> &Entry;
    /// The pool's control block (out of band).
    fn pool(&self) -> &PoolMeta;
    /// Number of thread heap slots, at most [`HEAPS_MAX`](crate::arena::layout::HEAPS_MAX).
    fn heaps(&self) -> u32 {
        crate::arena::layout::HEAPS_MAX
    }
    /// Takes the pool's lock, which is held whenever `pool` or an entry is changed.
    fn lock(&self) -> Self::Guard<'_>;
    /// Zeroes every page of a thread heap's slot, including the message queue.
    fn init_heap(&self, heap: u32);
    /// The head of a thread heap's message queue.
    fn message_queue(&self, heap: u32) -> &Self::Word;
    /// An entry of a thread heap's front cache (out of band). The first access to an entry is a write. Only used if the
    /// policy has front caches.
    fn front_cache_entry(&self, heap: u32, index: u32) -> &Field<u64>;

    /// Announces that these slices now have a slab whose blocks are `stride` bytes apart. For backends that keep links
    /// apart from blocks.
    fn begin_slab(&self, _superslab: Self::SuperSlab, _slices: Range<u32>, _stride: u32) {}
    /// Announces that these slices no longer have a span: a slab, or a large block.
    fn end_span(&self, _superslab: Self::SuperSlab, _slices: Range<u32>) {}
    /// Where the links of the slab are that has this slice. Stays the same until the slab ends.
    #[inline(always)]
    fn link_place(&self, _superslab: Self::SuperSlab, _slice: u32) -> Self::LinkPlace {
        Self::NO_LINKS
    }

    /// Reads a link that was written before.
    fn read_link(&self, superslab: Self::SuperSlab, at: u32) -> Link;
    /// Writes a link (4 bytes, any alignment).
    fn write_link(&self, superslab: Self::SuperSlab, at: u32, link: Link);
    /// Reads the key: the four bytes after the link at `at`. The link was just written. Returns 0 if the backend does
    /// not store contents.
    fn read_key(&self, superslab: Self::SuperSlab, at: u32) -> u32;
    /// Writes a key after the link at `at`, which is a multiple of 8. A key of 0 clears it.
    fn write_key(&self, superslab: Self::SuperSlab, at: u32, key: u32);
    /// Writes a link at a multiple of 8, then reads its key. Unless the key was `key` already, writes it and returns
    /// true. `place` is that of the slab's links.
    #[inline(always)]
    fn push_link(&self, _place: Self::LinkPlace, superslab: Self::SuperSlab, at: u32, link: Link, key: u32) -> bool {
        self.write_link(superslab, at, link);
        if self.read_key(superslab, at) == key {
            return false;
        }
        self.write_key(superslab, at, key);
        true
    }
    /// Announces that the link at `at` may be read soon. A backend that keeps links apart from blocks may bring the
    /// link into the processor's caches, and must not change anything.
    #[inline(always)]
    fn expect_link(&self, _place: Self::LinkPlace, _at: u32) {}
    /// Announces that a bin takes the free blocks of this slab next, and then those of the slab after it in the bin's
    /// list. A backend may bring what this reads into the processor's caches, and must not change anything.
    fn expect_refill(&self, _superslab: Self::SuperSlab, _slice: u32) {}
    /// Reads a link that was written before, then clears its key. `place` is that of the slab's links.
    #[inline(always)]
    fn take_link(&self, _place: Self::LinkPlace, superslab: Self::SuperSlab, at: u32) -> Link {
        let link = self.read_link(superslab, at);
        self.write_key(superslab, at, 0);
        link
    }
    /// Swaps a link and its key with one access; returns the previous values.
    fn exchange(&self, superslab: Self::SuperSlab, at: u32, link: Link, key: u32) -> (Link, u32);
    /// Reports an invalid free or realloc. If this returns, the allocator ignores the call.
    fn invalid_free(&self, block: Block<Self::SuperSlab>, what: InvalidFree);
    /// Reads a block header's tag. The memory may never have been written.
    fn read_header(&self, superslab: Self::SuperSlab, at: u32) -> u8;
    /// Writes a block header of `bytes` bytes that starts with `tag`.
    fn write_header(&self, superslab: Self::SuperSlab, at: u32, bytes: u32, tag: u8);
    /// Writes zeros. `at` may be beyond the first SuperSlab of a huge run.
    fn zero(&self, superslab: Self::SuperSlab, at: u64, bytes: u64);
    /// Copies application bytes between ranges that do not overlap. The source may never have been touched.
    fn copy(&self, to: Block<Self::SuperSlab>, from: Block<Self::SuperSlab>, bytes: u64);

    /// Performs page operations as a paging policy requires, and returns what placement learns of them. `own` is the
    /// policy of the allocator that calls. A backend that runs several paging policies on one placement performs the
    /// operation under each of them.
    fn perform<A: PartialEq>(&self, own: &Paging, operation: impl Fn(&Paging, &dyn PageOps) -> A) -> A;

    /// Binds the `count` SuperSlabs that start at ordinal `first` to adjacent addresses that start at `address`.
    /// `address` is a multiple of the SuperSlab size, inside a mapping from [`map_anywhere`](PageOps::map_anywhere).
    fn bind(&self, first: u32, count: u32, address: u64);
    /// Removes the binding of SuperSlabs. Mappings are not changed.
    fn unbind(&self, first: u32, count: u32);
    /// The address of a bound SuperSlab.
    fn address_of(&self, ordinal: u32) -> u64;
    /// Locks or unlocks the process's memory outside the allocator. If `future` is set, new mappings are locked from
    /// now on, and [`locks_future`](Memory::locks_future) returns how. If only `future` is set, existing locks stay;
    /// otherwise the call replaces them. A backend without a kernel has nothing to lock.
    fn lock_process(&self, _lock: MemoryLock) -> Result<(), Errno> {
        Ok(())
    }
    /// How SuperSlabs must be locked when they are taken for the first time; `None` if they are not locked.
    fn locks_future(&self) -> Option<Locking> {
        None
    }
    /// Nanoseconds on the clock of the purge delay. Only called on slow paths.
    fn now_ns(&self) -> u64;

    /// Whether paths are counted.
    const COUNTS_PATHS: bool = false;
    /// Announces that the allocator runs a path of its code `times` times. For backends that count paths; elsewhere the
    /// call vanishes.
    #[inline(always)]
    fn path(&self, _path: Path, _times: u64) {}

    /// Yields to other threads while the caller waits for one of them.
    fn yield_now(&self) {
        core::hint::spin_loop();
    }
}

/// A backend that also performs the application's accesses. For drivers; the policy never calls these methods.
pub trait World: Memory {
    /// The application reads bytes of a block it holds.
    fn app_read(&self, block: Block<Self::SuperSlab>, offset: u64, bytes: u64);

    /// The application writes bytes of a block it holds, each [`APPLICATION_BYTE`].
    fn app_write(&self, block: Block<Self::SuperSlab>, offset: u64, bytes: u64);

    /// Sets the clock that [`Memory::now_ns`] reads, if the backend's clock can be set.
    fn set_now(&self, now_ns: u64);

    /// Announces that this block may be freed in a while. A backend may bring the metadata of its slice into the
    /// processor's caches, and must not change anything.
    #[inline(always)]
    fn expect_use_of_slab(&self, _block: Block<Self::SuperSlab>) {}

    /// Announces that this block may be freed soon. A backend may bring its own tables for the block into the
    /// processor's caches, and must not change anything.
    #[inline(always)]
    fn expect_free(&self, _block: Block<Self::SuperSlab>) {}
}
