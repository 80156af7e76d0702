//! The values of the policy's enumerated settings.

use crate::policy::keywords::words;
pub use crate::policy::size_classes::{ClassList, ClassListError, PerDoubling, SizeClasses};

words! {
    /// Whether blocks have a header, and when it is written. The three modes with a header have the same placement.
    Header {
        /// No header.
        None = "none",
        /// Written at every allocation.
        Full = "full",
        /// Read first, and written if it differs.
        Light = "light",
        /// Read first, and written only if it is not a valid header.
        Off = "off",
    }
}

words! {
    /// How fresh blocks of a slab are handed out.
    Carve {
        /// The rest of the current page is carved and linked, so that no page is touched early.
        Page = "page",
        /// Blocks are carved one at a time and never linked.
        Bump = "bump",
        /// All blocks of the slab are linked when it is created.
        Eager = "eager",
    }
}

words! {
    /// In which order the free blocks of a slab are reused. The order is made whenever a bin takes all free blocks of its
    /// slab; blocks that are freed meanwhile wait until these are used up.
    FreeOrder {
        /// The last freed first.
        Lifo = "lifo",
        /// The first freed first.
        Fifo = "fifo",
        /// The lowest address first.
        Address = "address",
    }
}

words! {
    /// Which partial slab a bin takes next, when its slab has no free block left.
    SlabChoice {
        /// The one that has been partial longest.
        Oldest = "oldest",
        /// The one that became partial last.
        Newest = "newest",
        /// The one with the most blocks in use, so that others become empty.
        Fullest = "fullest",
        /// The one at the lowest address.
        Lowest = "lowest",
    }
}

words! {
    /// Where the metadata of SuperSlabs and slabs is stored.
    MetaPlace {
        /// In the first pages of the SuperSlab.
        InBand = "inband",
        /// In a separate dense mapping.
        Sidecar = "sidecar",
    }
}

words! {
    /// Which huge pages the allocator requests.
    Huge {
        /// `MADV_HUGEPAGE` on the whole arena.
        Thp = "thp",
        /// None.
        Never = "never",
        /// No advice: the kernel's own mode decides. Memory is purged as if huge pages had been requested.
        System = "system",
        /// `MADV_COLLAPSE` of a SuperSlab when its last slice is taken. It is repeated only after some of the memory
        /// was purged.
        Collapse = "collapse",
        /// `MAP_HUGETLB`; if the pool is empty, `MADV_HUGEPAGE`; if that fails, 4 KiB pages. Each fallback is counted.
        Hugetlb = "hugetlb",
        /// `MAP_HUGETLB`; if the pool is empty, 4 KiB pages (HAKMEM).
        HugetlbPlain = "hugetlb-plain",
    }
}

impl Huge {
    /// Whether pages of the hugetlb pool are requested.
    #[inline]
    pub const fn is_hugetlb(self) -> bool {
        matches!(self, Huge::Hugetlb | Huge::HugetlbPlain)
    }
}

words! {
    /// How memory is made present before its first use.
    Prefault {
        /// Not at all.
        Off = "off",
        /// `mmap(MAP_POPULATE)`; huge-page advice can only follow it.
        Populate = "populate",
        /// `MADV_POPULATE_WRITE`, after the advice.
        PopulateWrite = "populate-write",
        /// `MADV_POPULATE_READ`, after the advice.
        PopulateRead = "populate-read",
        /// One byte written per page.
        Touch = "touch",
        /// Zeros written over the whole range.
        Memset = "memset",
    }
}

words! {
    /// When prefaulting happens.
    PrefaultScope {
        /// When a SuperSlab is first used, and again after it was purged.
        SuperSlab = "superslab",
        /// When a span is taken and its memory may not be present.
        Slab = "slab",
        /// At start, for the prewarmed SuperSlabs only.
        Init = "init",
    }
}

words! {
    /// How unused memory is returned to the kernel.
    Purge {
        /// `MADV_DONTNEED`.
        DontNeed = "dontneed",
        /// Never.
        None = "none",
        /// `MADV_FREE`.
        Free = "free",
        /// `munmap`; the addresses are reserved again.
        Unmap = "unmap",
    }
}

words! {
    /// How unused memory is purged over the purge delay.
    PurgeCurve {
        /// Each entry at once, when its delay is over.
        Step = "step",
        /// Along a curve, the oldest entries first: `1 - 3x^2 + 2x^3` of them may stay after a part `x` of the delay.
        Smoothstep = "smoothstep",
    }
}

words! {
    /// How SuperSlabs are mapped and aligned.
    Align {
        /// At multiples of their size in one reservation.
        Arena = "arena",
        /// Each in its own mapping, at an address that the kernel chooses: the mapping is oversized by the alignment,
        /// and the excess at both ends is unmapped.
        Trim = "trim",
        /// Each in its own mapping of exactly its size. If the kernel does not align it, it is mapped again as with
        /// `Trim`.
        Kernel = "kernel",
    }
}
