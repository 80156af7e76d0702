//! Counts of the allocator's paths, and of what these cost that the allocator does not announce itself.

use hksim_policy::vocabulary::MetaPlace;
use hksim_policy::{Memory, Path};

use super::SimMemory;
use crate::observer::MemoryObserver;
use crate::paths::PathCounts;

impl<H: MemoryObserver> SimMemory<H> {
    /// How often the allocator ran each path of its code, as far as its memory knows; all zeros unless
    /// [`MemoryObserver::COUNTS_PATHS`]. Page operations are counted by observers.
    pub fn path_counts(&self) -> PathCounts {
        self.paths.get()
    }

    /// Counts a call of `memset`.
    #[inline(always)]
    pub(super) fn note_fill(&self, bytes: u64) {
        self.path(Path::Fill, 1);
        self.path(Path::ByteFilled, bytes);
    }

    /// Counts a call of `memcpy` for a part of a block inside one page.
    #[inline(always)]
    pub(super) fn note_copy_step(&self, bytes: u64) {
        self.path(Path::CopyStep, 1);
        self.path(Path::ByteCopied, bytes);
    }

    /// Counts an access to metadata, if the native allocator has to compute where it is.
    #[inline(always)]
    pub(super) fn note_meta_access(&self) {
        if H::COUNTS_PATHS && self.layout.meta_place == MetaPlace::Sidecar {
            self.path(Path::SidecarAccess, 1);
        }
    }
}
