//! Why a page faulted.

/// Why a page faulted, in the words of a simulation where it has them. A fault has the first reason that applies, in
/// this order: start_up; populated; refault_after_split; refault_after_purge; mapping_per_block; refault_after_unmap;
/// refault_after_trim; write_after_zero_page; otherwise what the access was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The library took the page before the first event.
    StartUp,
    /// The program used its block.
    Application,
    /// The allocator used bytes within 64 bytes of the block or of its size rounded up to a power of two, or on a page of
    /// their own before it.
    Header,
    /// The allocator linked free blocks, or used a block that was free, or memory that became a block later.
    FreeList,
    /// The allocator used memory that holds no block.
    Metadata,
    /// The allocator filled the block that it returned.
    Zeroing,
    /// The allocator filled a block that it took back.
    Clearing,
    /// realloc copied the block.
    Copy,
    /// The allocator touched several pages before they were needed.
    Prefault,
    /// The allocator used a block that the program holds.
    LiveBlock,
    /// The page is in a mapping that was made for its block alone.
    MappingPerBlock,
    /// A system call populated the page.
    Populated,
    /// The page had been purged: `madvise`, while its mapping stayed.
    RefaultAfterPurge,
    /// A page that had been part of a huge page which a purge split.
    RefaultAfterSplit,
    /// Its mapping was unmapped, and its address mapped again.
    RefaultAfterUnmap,
    /// The heap had been trimmed: `brk` below it.
    RefaultAfterTrim,
    /// A second fault on a page that was present: the first access had read it.
    WriteAfterZeroPage,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 17] = [
        Reason::StartUp,
        Reason::Application,
        Reason::Header,
        Reason::FreeList,
        Reason::Metadata,
        Reason::Zeroing,
        Reason::Clearing,
        Reason::Copy,
        Reason::Prefault,
        Reason::LiveBlock,
        Reason::MappingPerBlock,
        Reason::Populated,
        Reason::RefaultAfterPurge,
        Reason::RefaultAfterSplit,
        Reason::RefaultAfterUnmap,
        Reason::RefaultAfterTrim,
        Reason::WriteAfterZeroPage,
    ];

    /// Its name in results.
    pub fn word(self) -> &'static str {
        match self {
            Reason::StartUp => "start_up",
            Reason::Application => "application",
            Reason::Header => "header",
            Reason::FreeList => "free_list",
            Reason::Metadata => "metadata",
            Reason::Zeroing => "zeroing",
            Reason::Clearing => "clearing",
            Reason::Copy => "copy",
            Reason::Prefault => "prefault",
            Reason::LiveBlock => "live_block",
            Reason::MappingPerBlock => "mapping_per_block",
            Reason::Populated => "populated",
            Reason::RefaultAfterPurge => "refault_after_purge",
            Reason::RefaultAfterSplit => "refault_after_split",
            Reason::RefaultAfterUnmap => "refault_after_unmap",
            Reason::RefaultAfterTrim => "refault_after_trim",
            Reason::WriteAfterZeroPage => "write_after_zero_page",
        }
    }
}
