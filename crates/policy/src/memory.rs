//! The seam between the allocator and the world it runs in.
//!
//! The cut lies above memory access, not at mmap level, because an allocator's own metadata, headers and
//! links cause many of its page faults. A world supplies typed access to the allocator's memory and single
//! OS calls on ranges of the arena; *which* calls, and in which order, is the policy's business (`os.rs`).
//!
//! Contract, for every method that takes a SuperSlab: it was obtained from [`Memory::superslab`] with an
//! ordinal below the arena's capacity, and the policy has initialised its metadata. Offsets lie inside it. Where
//! SuperSlabs have maps of their own ([`Align`](crate::vocabulary::Align)) it is bound to an address, and a range of the
//! arena lies on SuperSlabs that are bound side by side.

pub use crate::link::Link;
use crate::meta::{Entry, PoolMeta, SlabMeta, SuperSlabMeta};
use crate::misuse::Misuse;
use crate::vocabulary::MetaPlace;
use crate::word::Word;

/// What applications write in both worlds. Never zero, since the kernel looks at zero-filled pages (KSM, splits), and one
/// value, since header modes light and off read what a program left.
pub const APPLICATION_BYTE: u8 = 0xA5;

/// An errno value as the kernel returns it (positive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The address of a block: a SuperSlab and an offset in bytes inside it.
///
/// Offsets are 32-bit, so placements of two worlds compare directly. A huge block starts at offset 0 of the
/// first SuperSlab of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<S> {
    /// The SuperSlab the block starts in.
    pub superslab: S,
    /// Bytes from the start of that SuperSlab.
    pub offset: u32,
}

/// A byte range of the arena: both numbers are multiples of the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaRange {
    /// First byte, from the start of the arena.
    pub start: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// How a fixed range of the arena is mapped anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Private anonymous, `MAP_NORESERVE`.
    Plain,
    /// The same with `MAP_POPULATE`.
    Populated,
    /// Reserved huge pages, `MAP_HUGETLB | MAP_HUGE_2MB`.
    Hugetlb,
    /// The same with `MAP_POPULATE`.
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
    /// `MADV_COLLAPSE`: huge pages are made of what is there, now.
    Collapse,
}

/// How memory is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// `mlock`: it is made present at once.
    Present,
    /// `mlock2(MLOCK_ONFAULT)`: pages are locked when they are touched.
    OnFault,
}

/// The flags of an `mlockall`; without any, it is `munlockall`.
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
    /// How it locks.
    pub fn locking(self) -> Locking {
        if self.on_fault { Locking::OnFault } else { Locking::Present }
    }
}

/// The world an allocator lives in. An instance, never static state.
pub trait Memory {
    /// Names a SuperSlab: natively its address, in the simulator its ordinal.
    type SuperSlab: Copy + Eq + core::fmt::Debug;
    /// A word that other threads may change: `AtomicU64` natively, a `Cell` in the simulator.
    type Word: Word;
    /// Holds the pool's lock while it lives.
    type Guard<'a>
    where
        Self: 'a;

    /// SuperSlabs in the arena.
    fn ordinals(&self) -> u32;
    /// The SuperSlab with this ordinal.
    fn superslab(&self, ordinal: u32) -> Self::SuperSlab;
    /// The ordinal of a SuperSlab.
    fn ordinal(&self, superslab: Self::SuperSlab) -> u32;

    /// Writes (zeroes) every metadata page of a SuperSlab. Comes before any of the four below.
    fn init_meta(&self, superslab: Self::SuperSlab);
    /// The SuperSlab's own metadata.
    fn meta(&self, superslab: Self::SuperSlab) -> &SuperSlabMeta<Self::Word>;
    /// The metadata of one unit; that of a span stands at its first unit.
    /// Told where metadata lies, so that a fast path that knows it need not ask.
    fn slab(&self, place: MetaPlace, superslab: Self::SuperSlab, unit: u32) -> &SlabMeta;
    /// The remote-free word of a slab.
    fn remote(&self, superslab: Self::SuperSlab, unit: u32) -> &Self::Word;
    /// The link of a slab in its owner's mail.
    fn mail_next(&self, superslab: Self::SuperSlab, unit: u32) -> &Self::Word;

    /// The arena table's entry of an ordinal (out of band). The first access to an entry is a write.
    fn entry(&self, ordinal: u32) -> &Entry;
    /// The pool's control block (out of band).
    fn pool(&self) -> &PoolMeta;
    /// Thread heaps that the memory has room for, [`HEAPS_MAX`](crate::layout::HEAPS_MAX) at most.
    fn heaps(&self) -> u32 {
        crate::layout::HEAPS_MAX
    }
    /// Takes the pool's lock: held whenever `pool` or an entry is changed.
    fn lock(&self) -> Self::Guard<'_>;
    /// Writes (zeroes) every page of a thread heap's map, the mail word included.
    fn init_heap(&self, heap: u32);
    /// The mail word of a thread heap.
    fn mail(&self, heap: u32) -> &Self::Word;

    /// Reads a link that was written before.
    fn read_link(&self, superslab: Self::SuperSlab, at: u32) -> Link;
    /// Writes a link (4 bytes, any alignment).
    fn write_link(&self, superslab: Self::SuperSlab, at: u32, link: Link);
    /// Reads the four bytes behind a link at `at`, written a moment ago. What a world does not keep reads as 0.
    fn read_key(&self, superslab: Self::SuperSlab, at: u32) -> u32;
    /// Writes a key, or 0 in its place, behind a link at `at`, a multiple of 8.
    fn write_key(&self, superslab: Self::SuperSlab, at: u32, key: u32);
    /// Writes a link and a key behind it, and returns what stood there, with one access that writes.
    fn exchange(&self, superslab: Self::SuperSlab, at: u32, link: Link, key: u32) -> (Link, u32);
    /// The program erred. A world that returns has the call ignored.
    fn misuse(&self, block: Block<Self::SuperSlab>, what: Misuse);
    /// Reads a block header's tag; the only read that may meet fresh memory.
    fn read_header(&self, superslab: Self::SuperSlab, at: u32) -> u8;
    /// Writes a block header of `bytes` bytes that starts with `tag`.
    fn write_header(&self, superslab: Self::SuperSlab, at: u32, bytes: u32, tag: u8);
    /// Writes zeros. `at` may lie beyond the first SuperSlab of a huge run.
    fn zero(&self, superslab: Self::SuperSlab, at: u64, bytes: u64);
    /// Copies application bytes; the source may be untouched. The ranges do not overlap.
    fn copy(&self, to: Block<Self::SuperSlab>, from: Block<Self::SuperSlab>, bytes: u64);

    /// One `mmap(MAP_FIXED)` over a range of the arena.
    fn map(&self, range: ArenaRange, mapping: Mapping) -> Result<(), Errno>;
    /// One `munmap` of a range of the arena.
    fn unmap(&self, range: ArenaRange) -> Result<(), Errno>;
    /// One `madvise` on a range of the arena.
    fn advise(&self, range: ArenaRange, advice: Advice) -> Result<(), Errno>;
    /// One `mremap(MREMAP_MAYMOVE | MREMAP_FIXED)` of equal length inside the arena; the source is left unmapped.
    fn remap(&self, from: ArenaRange, to_start: u64) -> Result<(), Errno>;
    /// One `mmap` of so many bytes, at an address that the kernel chooses and that is returned. Only where SuperSlabs have
    /// maps of their own, as the next three.
    fn map_anywhere(&self, bytes: u64, mapping: Mapping) -> Result<u64, Errno>;
    /// One `munmap` at an address, of bytes that no SuperSlab is bound to any more.
    fn unmap_at(&self, address: u64, bytes: u64) -> Result<(), Errno>;
    /// The SuperSlabs from `first` on lie side by side from `address` on: a multiple of their size in a map of ours.
    fn bind(&self, first: u32, count: u32, address: u64);
    /// These SuperSlabs lie nowhere any more. What is mapped there stays as it is.
    fn unbind(&self, first: u32, count: u32);
    /// Where a SuperSlab lies; it is bound.
    fn address_of(&self, ordinal: u32) -> u64;
    /// Prefault by hand: writes one zero byte into every page of a range.
    fn touch_pages(&self, range: ArenaRange);
    /// Prefault by hand: writes zeros over a whole range.
    fn fill_pages(&self, range: ArenaRange);

    /// The program locks its memory, or unlocks it: what of that is not the allocator's own. From then on maps are locked as they are
    /// made, if that is asked for, and [`locks_future`](Memory::locks_future) says so. A lock that is not for the future alone
    /// replaces those that are there. A world without a kernel has nothing to lock.
    fn lock_process(&self, _lock: MemoryLock) -> Result<(), Errno> {
        Ok(())
    }
    /// Whether memory that is taken for the first time is to be locked, and how.
    fn locks_future(&self) -> Option<Locking> {
        None
    }
    /// Locks everything before the arena, on fault.
    fn lock_tables(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Locks a range of the arena.
    fn lock_range(&self, _range: ArenaRange, _locking: Locking) -> Result<(), Errno> {
        Ok(())
    }

    /// Nanoseconds on the clock of the purge delay; asked for on slow paths only.
    fn now_ns(&self) -> u64;

    /// Lets other threads go on, one of which is about to do what the caller waits for.
    fn let_others_go_on(&self) {
        core::hint::spin_loop();
    }
}

/// What a driver needs of a world beside what the allocator needs: the application's side. The policy never calls it.
pub trait World: Memory {
    /// The application reads bytes of a block it holds.
    fn app_read(&self, block: Block<Self::SuperSlab>, offset: u64, bytes: u64);

    /// The application writes bytes of a block it holds; what it writes is [`APPLICATION_BYTE`].
    fn app_write(&self, block: Block<Self::SuperSlab>, offset: u64, bytes: u64);

    /// Sets the clock that [`Memory::now_ns`] shows, where the world's clock can be set.
    fn set_now(&self, now_ns: u64);
}
