//! What a process had when a recording of it began in the middle: its mappings and its pages. These are no events of the
//! program; they precede its first event.

use std::ops::Range;

use crate::event::MapOp;

/// A mapping that was there when the recording began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingAtStart {
    /// The mapping, as if one call of mmap or brk had made it.
    pub map: MapOp,
    /// What later calls did to it.
    pub traits: MappingTraits,
}

/// What calls did to a mapping before the recording began, as a bit set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingTraits(pub u32);

impl MappingTraits {
    /// `MADV_HUGEPAGE`.
    pub const HUGE_PAGE: Self = Self(1);
    /// `MADV_NOHUGEPAGE`, or `MAP_STACK` from Linux 6.7 on.
    pub const NO_HUGE_PAGE: Self = Self(1 << 1);
    /// mlock, mlockall or `MAP_LOCKED`.
    pub const LOCKED: Self = Self(1 << 2);
    /// In addition to [`MappingTraits::LOCKED`]: `MLOCK_ONFAULT`.
    pub const LOCKED_ON_FAULT: Self = Self(1 << 3);
    /// `MADV_DONTFORK`.
    pub const DONT_FORK: Self = Self(1 << 4);
    /// `MADV_WIPEONFORK`.
    pub const WIPE_ON_FORK: Self = Self(1 << 5);
    /// `MADV_DONTDUMP`.
    pub const DONT_DUMP: Self = Self(1 << 6);
    /// `MADV_RANDOM`.
    pub const RANDOM: Self = Self(1 << 7);
    /// `MADV_SEQUENTIAL`.
    pub const SEQUENTIAL: Self = Self(1 << 8);
    /// `MADV_MERGEABLE`.
    pub const MERGEABLE: Self = Self(1 << 9);
    /// Charged to the commit limit: it is or was writable.
    pub const ACCOUNTED: Self = Self(1 << 10);

    /// Whether all of these traits are set.
    pub const fn has(self, traits: Self) -> bool {
        self.0 & traits.0 == traits.0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, traits: Self) -> Self {
        Self(self.0 | traits.0)
    }
}

/// Pages that were not absent when the recording began, all in one mapping and in the same state. They follow their
/// mapping. Of memory other than anonymous memory and stacks, only a page in each 2 MiB range with anonymous memory is
/// told: it shows that the range has a page table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagesAtStart {
    /// The pages.
    pub pages: Range<u64>,
    /// Their state.
    pub state: PageAtStart,
}

/// The state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageAtStart {
    /// In memory, mapped by an entry of 4 KiB.
    Small,
    /// The same, and another process maps it, too: the first write copies it.
    SmallShared,
    /// The same as [`PageAtStart::Small`], given up with `MADV_FREE` and not written since.
    SmallLazy,
    /// In memory, mapped by an entry of 2 MiB: a huge page, or one of the hugetlb pool.
    Huge,
    /// The same, and another process maps it, too.
    HugeShared,
    /// The same as [`PageAtStart::Huge`], given up with `MADV_FREE` and not written since.
    HugeLazy,
    /// The shared zero page.
    Zero,
    /// The shared huge zero page, mapped by an entry of 2 MiB.
    HugeZero,
    /// Swapped out.
    Swapped,
    /// A guard: `MADV_GUARD_INSTALL`.
    Guard,
}

impl PageAtStart {
    /// Every state, in the order of the codes in a file.
    pub const ALL: [Self; 10] = [
        Self::Small,
        Self::SmallShared,
        Self::SmallLazy,
        Self::Huge,
        Self::HugeShared,
        Self::HugeLazy,
        Self::Zero,
        Self::HugeZero,
        Self::Swapped,
        Self::Guard,
    ];

    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::SmallShared => "small_shared",
            Self::SmallLazy => "small_lazy",
            Self::Huge => "huge",
            Self::HugeShared => "huge_shared",
            Self::HugeLazy => "huge_lazy",
            Self::Zero => "zero",
            Self::HugeZero => "huge_zero",
            Self::Swapped => "swapped",
            Self::Guard => "guard",
        }
    }

    /// Whether it counts as resident memory.
    pub const fn is_resident(self) -> bool {
        !matches!(self, Self::Zero | Self::HugeZero | Self::Swapped | Self::Guard)
    }

    /// Whether an entry of 2 MiB maps it.
    pub const fn is_huge(self) -> bool {
        matches!(self, Self::Huge | Self::HugeShared | Self::HugeLazy | Self::HugeZero)
    }
}
