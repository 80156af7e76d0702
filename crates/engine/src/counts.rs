//! Counters in the form that simulation and replay share, so that predictions and measurements can be compared.

use hksim_policy::meta::PoolMeta;
use serde::{Deserialize, Serialize};

/// Fallbacks: SuperSlabs for which the hugetlb pool had no pages, and mappings that the kernel did not align.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallbacks<N = u64> {
    /// Fell back to huge-page advice.
    pub to_thp: N,
    /// Fell back to a plain mapping with 4K pages.
    pub to_4k: N,
    /// Fell back to a larger mapping whose ends were unmapped.
    pub to_trim: N,
}

impl<N: Copy> Fallbacks<N> {
    /// The counts, in the order of the fields.
    pub fn values(&self) -> [N; 3] {
        [self.to_thp, self.to_4k, self.to_trim]
    }

    /// Combines each counter with that of `other`, field by field.
    pub fn with<T: Copy, U>(self, other: Fallbacks<T>, combine: impl Fn(N, T) -> U) -> Fallbacks<U> {
        Fallbacks {
            to_thp: combine(self.to_thp, other.to_thp),
            to_4k: combine(self.to_4k, other.to_4k),
            to_trim: combine(self.to_trim, other.to_trim),
        }
    }
}

impl Fallbacks {
    /// The counters of an allocator's pool.
    pub fn of(pool: &PoolMeta) -> Fallbacks {
        Fallbacks {
            to_thp: u64::from(pool.fallbacks_to_thp.get()),
            to_4k: u64::from(pool.fallbacks_to_4k.get()),
            to_trim: u64::from(pool.fallbacks_to_trim.get()),
        }
    }
}

/// System calls of an allocator. Mapping its reservation counts as one `mmap`.
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

    /// Combines each counter with that of `other`, field by field.
    pub fn with<T: Copy, U>(self, other: OsCalls<T>, combine: impl Fn(N, T) -> U) -> OsCalls<U> {
        OsCalls {
            mmap: combine(self.mmap, other.mmap),
            munmap: combine(self.munmap, other.munmap),
            madvise: combine(self.madvise, other.madvise),
            mremap: combine(self.mremap, other.mremap),
        }
    }
}
