//! Counts that prediction and measurement both make, in one form, so that they can be subtracted.

use hksim_policy::meta::PoolMeta;
use serde::{Deserialize, Serialize};

/// Page-table entries made present or upgraded, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByKind<N = u64> {
    /// Single 4 KiB pages.
    pub base_4k: N,
    /// Folios between a page and a huge page.
    pub mthp: N,
    /// Transparent huge pages; also the write that turns a huge zero page into one.
    pub thp: N,
    /// Pages of the hugetlb pool.
    pub hugetlb: N,
    /// Zero pages and huge zero pages.
    pub zero: N,
    /// Pages in place of zero pages, by a write.
    pub cow: N,
}

impl<N: Copy> ByKind<N> {
    /// The counts, in the order of the fields.
    pub fn values(&self) -> [N; 6] {
        [self.base_4k, self.mthp, self.thp, self.hugetlb, self.zero, self.cow]
    }

    /// Combines two by field.
    pub fn with<T: Copy, U>(self, other: ByKind<T>, combine: impl Fn(N, T) -> U) -> ByKind<U> {
        ByKind {
            base_4k: combine(self.base_4k, other.base_4k),
            mthp: combine(self.mthp, other.mthp),
            thp: combine(self.thp, other.thp),
            hugetlb: combine(self.hugetlb, other.hugetlb),
            zero: combine(self.zero, other.zero),
            cow: combine(self.cow, other.cow),
        }
    }
}

impl ByKind {
    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.values().iter().sum()
    }
}

/// Steps that were taken instead of what was asked for: SuperSlabs that the hugetlb pool refused, maps that the kernel did not
/// align.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallbacks<N = u64> {
    /// Huge-page advice.
    pub thp: N,
    /// A plain map: 4K pages.
    pub plain: N,
    /// A larger map whose ends are unmapped.
    pub trim: N,
}

impl<N: Copy> Fallbacks<N> {
    /// The counts, in the order of the fields.
    pub fn values(&self) -> [N; 3] {
        [self.thp, self.plain, self.trim]
    }

    /// Combines two by field.
    pub fn with<T: Copy, U>(self, other: Fallbacks<T>, combine: impl Fn(N, T) -> U) -> Fallbacks<U> {
        Fallbacks {
            thp: combine(self.thp, other.thp),
            plain: combine(self.plain, other.plain),
            trim: combine(self.trim, other.trim),
        }
    }
}

impl Fallbacks {
    /// As an allocator's pool counted them.
    pub fn of(pool: &PoolMeta) -> Fallbacks {
        Fallbacks {
            thp: u64::from(pool.fell_back_thp.get()),
            plain: u64::from(pool.fell_back_plain.get()),
            trim: u64::from(pool.fell_back_trim.get()),
        }
    }
}

/// OS calls of an allocator. The map of its reservation is one `mmap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsCalls<N = u64> {
    /// `mmap`.
    pub mmap: N,
    /// `munmap`.
    pub munmap: N,
    /// `madvise`.
    pub madvise: N,
    /// `mremap`.
    pub mremap: N,
}

impl<N: Copy> OsCalls<N> {
    /// The counts, in the order of the fields.
    pub fn values(&self) -> [N; 4] {
        [self.mmap, self.munmap, self.madvise, self.mremap]
    }

    /// Combines two by field.
    pub fn with<T: Copy, U>(self, other: OsCalls<T>, combine: impl Fn(N, T) -> U) -> OsCalls<U> {
        OsCalls {
            mmap: combine(self.mmap, other.mmap),
            munmap: combine(self.munmap, other.munmap),
            madvise: combine(self.madvise, other.madvise),
            mremap: combine(self.mremap, other.mremap),
        }
    }
}
