//! The memory that an allocator design lives in.

use hksim_policy::Errno;
pub use hksim_policy::memory::{Advice, Mapping};

/// The cause of an access to memory. In a simulation, the installs that the access causes are attributed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The application used its block.
    Application,
    /// A block header was read or written.
    Header,
    /// A free-list link was written.
    FreeList,
    /// The allocator's own tables were read or written.
    Metadata,
    /// calloc zeroed a block.
    Zeroing,
    /// realloc copied a block.
    Copy,
    /// The allocator prefaulted the page.
    Prefault,
}

/// How memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// A load.
    Read,
    /// A store of zeros.
    WriteZero,
    /// A store of other data.
    Write,
}

/// What [`AddressSpace::remap`] may do to a mapping that has no room to grow where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Nothing: the call fails with ENOMEM.
    InPlace,
    /// Move it (`MREMAP_MAYMOVE`) to an address that is a multiple of `align`, a power of two of at least one page.
    Move {
        /// In bytes.
        align: u64,
    },
}

/// The memory of an allocator: what an operating system provides, and accesses to it. Two implementations exist: one
/// simulates Linux (`SimSpace` of `hksim-sim`), and one makes the system calls and the accesses (in `hksim-replay`).
///
/// # Contract
/// - Addresses and sizes are in bytes. `map`, `unmap`, `advise` and `remap` take whole pages
///   ([`PAGE_BYTES`](crate::PAGE_BYTES)) and fail with EINVAL otherwise, or if a size is 0.
/// - New memory is zero, and so is memory after [`Advice::DontNeed`]. The contents of memory after [`Advice::Free`] are
///   undefined until it is written again.
/// - An allocator accesses only memory that it has mapped; anything else ends the run (SIGSEGV, or a panic in the
///   simulator). It reads only words that it wrote, or that nothing has written since they were mapped.
/// - Each of `map`, `unmap`, `advise` and `remap` is one system call; each failure is the kernel's.
///
/// The addresses of mappings depend only on earlier calls: a mapping is placed at the lowest free address of the region
/// that the address space covers ([`Region`](crate::Region)). So an allocator makes the same decisions in all runs of a
/// trace, also if they depend on addresses.
pub trait AddressSpace {
    /// One `mmap`, private and anonymous, at an address that is a multiple of `align` (a power of two of at least one
    /// page). Returns the address.
    ///
    /// # Errors
    /// EINVAL: invalid size or alignment; for [`Mapping::Hugetlb`], they must be multiples of 2 MiB. ENOMEM: no room, or
    /// the kernel's limits.
    fn map(&mut self, bytes: u64, align: u64, mapping: Mapping) -> Result<u64, Errno>;

    /// One `munmap`.
    ///
    /// # Errors
    /// EINVAL: not whole pages of the region. ENOMEM: too many mappings.
    fn unmap(&mut self, at: u64, bytes: u64) -> Result<(), Errno>;

    /// One `madvise`.
    ///
    /// # Errors
    /// Those of madvise; EINVAL: not whole pages of the region.
    fn advise(&mut self, at: u64, bytes: u64, advice: Advice) -> Result<(), Errno>;

    /// One `mremap`: changes the size of a mapping, and moves it if `growth` allows that and it has no room to grow.
    /// Returns its address. A size that stays the same needs no call.
    ///
    /// # Errors
    /// ENOMEM: no room. EFAULT: the range is not in one mapping of the kernel. EINVAL: not whole pages of the region.
    fn remap(&mut self, at: u64, bytes: u64, new_bytes: u64, growth: Growth) -> Result<u64, Errno>;

    /// Reads a word of the allocator's own, at a multiple of 8.
    fn read(&mut self, at: u64, cause: Cause) -> u64;

    /// Writes a word of the allocator's own, at a multiple of 8.
    fn write(&mut self, at: u64, word: u64, cause: Cause);

    /// Touches a range from its first byte to its last. [`Touch::WriteZero`] zeroes it; [`Touch::Write`] fills it with
    /// the byte that applications write. To prefault a page, write one zero byte to it.
    fn touch(&mut self, at: u64, bytes: u64, touch: Touch, cause: Cause);

    /// Copies bytes of the program between ranges that do not overlap, for a realloc.
    fn copy(&mut self, to: u64, from: u64, bytes: u64);

    /// The trace's clock, in nanoseconds. It never goes back.
    fn now_ns(&self) -> u64;
}
