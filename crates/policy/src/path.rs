//! The paths of the allocator's code, for counting how often each runs.
//!
//! A path is a piece of code that takes a fixed number of instructions: what one call does, or one round of a loop. The
//! allocator announces each path that it runs to its memory backend ([`Memory::path`](crate::Memory::path)). Instructions
//! of a run are then the sum of counts times the instructions of each path in the compiled allocator. What every call
//! does is a path of its own; a path below it counts only what it adds.

/// Defines [`Path`] from one list: the meaning of each path, its variant and its name.
macro_rules! paths {
    ($($(#[$meaning:meta])* $variant:ident $name:literal,)*) => {
        /// A path of the allocator's code. See the module.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Path {
            $($(#[$meaning])* $variant,)*
        }

        impl Path {
            /// All paths, in the order of their numbers.
            pub const ALL: &[Path] = &[$(Path::$variant),*];

            /// The path's name in tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Path::$variant => $name,)*
                }
            }
        }
    };
}

paths! {
    // Calls of the program.
    /// A call of `malloc`.
    Malloc "malloc",
    /// One that left the fast path, which had no block.
    MallocUnready "malloc-unready",
    /// One that left the fast path, as the size is not looked up in the table of classes.
    MallocAboveTable "malloc-above-table",
    /// A call of `calloc`.
    Calloc "calloc",
    /// A call of `realloc` or `reallocarray` without a block.
    AllocateByRealloc "allocate-by-realloc",
    /// A call of `posix_memalign`, `aligned_alloc`, `memalign`, `valloc` or `pvalloc`.
    Memalign "memalign",
    /// A call of `realloc` or `reallocarray` for a block, unless it frees the block.
    Realloc "realloc",
    /// A call of `realloc` that frees its block; counts as [`Free`](Path::Free), too.
    FreeByRealloc "free-by-realloc",
    /// A free, also of a block whose contents were copied by `realloc`.
    Free "free",
    /// A free by the program that the fast path did not complete.
    FreeUnfinished "free-unfinished",
    /// A call of `malloc_usable_size`.
    UsableSize "usable-size",
    /// The first call of a thread: its heap is opened.
    HeapOpened "heap-opened",
    /// The end of a thread with a heap.
    HeapClosed "heap-closed",

    // Allocation.
    /// A block from a bin's list.
    Ready "ready",
    /// The same in a design with headers, whose free blocks have no keys.
    ReadyWithoutKey "ready-without-key",
    /// A request for a size that is not looked up in the table of classes.
    AboveTable "above-table",
    /// A class above the table that was searched, as the scheme has no formula for it.
    ClassSearched "class-searched",
    /// A request with a larger alignment than every block has.
    Aligned "aligned",
    /// A class that such a request tried.
    AlignedClass "aligned-class",
    /// `calloc` of a block that may hold anything.
    Zeroed "zeroed",
    /// `calloc` of a block that is zero but for its link.
    LinkZeroed "link-zeroed",
    /// A header read before it is handed out.
    HeaderRead "header-read",
    /// A header written.
    HeaderWritten "header-written",

    // Refill of a bin.
    /// A request that found its bin empty.
    Refill "refill",
    /// The active slab gave its locally freed blocks.
    RefillLocal "refill-local",
    /// The active slab gave its remotely freed blocks.
    RefillRemote "refill-remote",
    /// Fresh blocks were carved from the active slab.
    Carve "carve",
    /// A block that was linked when fresh blocks were carved.
    CarvedBlock "carved-block",
    /// The active slab had no blocks.
    ActiveExhausted "active-exhausted",
    /// A slab was marked full by an atomic operation.
    MarkedFull "marked-full",
    /// A partial slab became the active one.
    PartialTaken "partial-taken",
    /// A partial slab that `fullest` compared.
    SlabCompared "slab-compared",
    /// A partial slab that `lowest` compared.
    AddressCompared "address-compared",
    /// A slab became the active one.
    Activated "activated",
    /// A new slab was made.
    SlabTaken "slab-taken",
    /// A list of free blocks was put into another order than that of frees.
    Reordered "reordered",
    /// A block that was counted for this.
    BlockCounted "block-counted",
    /// A block of a reversed list.
    BlockReversed "block-reversed",
    /// A part of a list that was sorted.
    PartSorted "part-sorted",
    /// A block that was merged into a sorted list.
    BlockMerged "block-merged",

    // Free.
    /// A block pushed onto a list of its slab in a design with headers.
    PushedWithoutKey "pushed-without-key",
    /// A free that made a slab empty.
    Emptied "emptied",
    /// A free that was not completed by the fast path.
    FreeSlow "free-slow",
    /// A slow free of a block of the heap's own slab.
    FreeSlowOwn "free-slow-own",
    /// A slab's place in lists was reconsidered after a free.
    SlabReconsidered "slab-reconsidered",
    /// A full slab has free blocks again.
    SlabListed "slab-listed",
    /// An empty slab was kept.
    SlabKept "slab-kept",
    /// An empty slab was returned.
    SlabReturned "slab-returned",
    /// A free of a large block.
    FreeLarge "free-large",

    // Front cache.
    /// An allocation from the front cache.
    FrontHit "front-hit",
    /// An allocation that found the front cache of its class empty.
    FrontMiss "front-miss",
    /// A block put into the front cache on the fast path.
    FrontPut "front-put",
    /// A block in the front cache that was marked by a link and a key.
    FrontMarked "front-marked",
    /// A block put into the front cache on the slow path.
    FrontPutSlow "front-put-slow",
    /// The older blocks of a front cache returned to their slabs.
    FrontFlush "front-flush",
    /// A block that returned to a slab of the own heap.
    FrontReturned "front-returned",
    /// A block that returned to a slab of another heap.
    FrontReturnedRemote "front-returned-remote",
    /// A younger block that was moved to the front of the cache.
    FrontMoved "front-moved",
    /// An entry that became empty.
    FrontCleared "front-cleared",

    // Frees by other threads.
    /// A block pushed onto the remote list of another heap's slab.
    RemoteFree "remote-free",
    /// A free of another heap's block that did not come from the front cache.
    FreeToOther "free-to-other",
    /// A message that a full slab has free blocks.
    MessageSent "message-sent",
    /// Messages were taken.
    MessagesTaken "messages-taken",
    /// A message was handled.
    MessageHandled "message-handled",
    /// Remotely freed blocks of a slab were taken.
    RemoteTaken "remote-taken",
    /// Blocks of a slab that is not active were added to its list.
    Collected "collected",
    /// A block of such a list.
    BlockCollected "block-collected",
    /// A slab's `FULL` was cleared by an atomic operation.
    MarkedListed "marked-listed",

    // Spans.
    /// A span was taken.
    SpanTaken "span-taken",
    /// A SuperSlab in which a span was searched.
    SpanSearched "span-searched",
    /// A word of 64 slices that was passed in a search for a free slice or for its end.
    WordPassed "word-passed",
    /// A run of free slices that was examined.
    RunExamined "run-examined",
    /// A slice at which a large block was tried.
    SliceTried "slice-tried",
    /// A slice of a span that was taken.
    SliceTaken "slice-taken",
    /// A slice of a span whose slices were clean.
    SliceClean "slice-clean",
    /// A slice of a span whose slices read as zeros.
    SliceZero "slice-zero",
    /// A span whose slices were clean.
    SpanClean "span-clean",
    /// The last free slice of a SuperSlab was taken.
    SuperSlabFilled "superslab-filled",
    /// A span grew in place.
    SpanGrown "span-grown",
    /// A slice by which a span grew.
    SliceGrown "slice-grown",
    /// A span was returned.
    SpanReturned "span-returned",
    /// A slice of a span that was returned.
    SliceReturned "slice-returned",
    /// A SuperSlab was inserted into the list of those with free slices.
    Listed "listed",
    /// The hints of that list were searched.
    HintsSearched "hints-searched",
    /// A SuperSlab of that list that was passed.
    ListPassed "list-passed",
    /// A SuperSlab was removed from that list.
    Unlisted "unlisted",
    /// A large block was allocated.
    LargeTaken "large-taken",

    // SuperSlabs.
    /// A heap took a SuperSlab.
    SuperSlabTaken "superslab-taken",
    /// Its metadata was initialised.
    SuperSlabInitialised "superslab-initialised",
    /// A slice of a SuperSlab whose metadata was initialised.
    SliceInitialised "slice-initialised",
    /// A slice of a span whose owner was set.
    SliceOwned "slice-owned",
    /// A heap returned a SuperSlab.
    SuperSlabReturned "superslab-returned",
    /// A place at which free SuperSlabs were searched.
    PlaceTried "place-tried",
    /// An entry of the arena table that was examined in a search for free SuperSlabs.
    EntryExamined "entry-examined",
    /// An entry of the arena table that was used for the first time.
    EntryClaimed "entry-claimed",
    /// A SuperSlab or huge block was taken that was not cached.
    FreeSearched "free-searched",
    /// A span that was visited when a heap closed or a SuperSlab was adopted.
    SpanVisited "span-visited",
    /// A free slice that was passed for this.
    SlicePassed "slice-passed",
    /// A SuperSlab was left to other heaps.
    Abandoned "abandoned",
    /// A SuperSlab of an ended heap was adopted.
    Adopted "adopted",
    /// A search for SuperSlabs of ended heaps.
    AdoptionTried "adoption-tried",
    /// An entry of the arena table that was examined in it.
    AbandonedSearched "abandoned-searched",
    /// An access to metadata outside its SuperSlab.
    SidecarAccess "sidecar-access",

    // Huge blocks and resizing.
    /// A request for a large or huge block.
    Beyond "beyond",
    /// A huge block was allocated.
    HugeTaken "huge-taken",
    /// A cached run that was examined.
    CachedRunExamined "cached-run-examined",
    /// A cached run was taken, whole or in part.
    CachedRunTaken "cached-run-taken",
    /// A SuperSlab of a new huge block.
    RunPartJoined "run-part-joined",
    /// A huge block was freed.
    HugeFreed "huge-freed",
    /// A cached run was purged and freed.
    RunEvicted "run-evicted",
    /// A SuperSlab of such a run.
    RunPartEvicted "run-part-evicted",
    /// A block that `realloc` tried to grow in place.
    GrowthTried "growth-tried",
    /// A huge block that grew in place.
    HugeGrown "huge-grown",
    /// A huge block that moved by `mremap`.
    HugeMoved "huge-moved",
    /// A block whose contents were copied by `realloc`.
    Copied "copied",
    /// A part of such a block inside one page: a call of `memcpy`.
    CopyStep "copy-step",

    // Purging and page operations.
    /// What is due for a purge was looked for.
    PurgeConsidered "purge-considered",
    /// A SuperSlab was queued for the purge of its spans.
    PurgeQueued "purge-queued",
    /// It left the queue.
    PurgeUnqueued "purge-unqueued",
    /// The free spans of a SuperSlab were purged.
    SpansPurged "spans-purged",
    /// A run of free slices that was passed for this.
    RunPassed "run-passed",
    /// A range of free slices that was purged.
    RangePurged "range-purged",
    /// A slice of such a range.
    SlicePurged "slice-purged",
    /// A cached SuperSlab that was examined.
    IdleExamined "idle-examined",
    /// A cached SuperSlab that was purged.
    IdlePurged "idle-purged",
    /// A cached SuperSlab that was freed.
    IdleEvicted "idle-evicted",
    /// A cached SuperSlab that was counted.
    IdleCounted "idle-counted",
    /// A SuperSlab that was counted in the queue for purges.
    QueueCounted "queue-counted",
    /// Whether an epoch of a decay curve has ended was looked at.
    CurveEvaluated "curve-evaluated",
    /// It had, and the curve said how much may stay.
    EpochEnded "epoch-ended",
    /// A system call for pages.
    PageOperation "page-operation",
    /// A page that was prefaulted by a write.
    PageTouched "page-touched",

    // Functions of the C library.
    /// A call of `memset`.
    Fill "fill",
    /// A byte that `memset` wrote.
    ByteFilled "byte-filled",
    /// A byte that `memcpy` copied.
    ByteCopied "byte-copied",
}

impl Path {
    /// Number of paths.
    pub const COUNT: usize = Path::ALL.len();

    /// The path with this name.
    pub fn named(name: &str) -> Option<Path> {
        Path::ALL.iter().copied().find(|path| path.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn numbers_and_names_identify_paths() {
        for (number, &path) in Path::ALL.iter().enumerate() {
            assert_eq!(path as usize, number);
            assert_eq!(Path::named(path.name()), Some(path), "two paths share a name");
        }
        assert_eq!(Path::named("no such path"), None);
    }
}
