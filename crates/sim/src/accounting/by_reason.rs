//! Installs by reason.

use serde::{Deserialize, Serialize};

use crate::observer::Cause;

/// Installs by reason. An install has the first reason that applies, in this order: populated (alignment_excess if the
/// pages were unmapped again) or collapsed; cow_after_fork; write_after_zero_page; refault_after_split;
/// refault_after_purge; otherwise the cause of the touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByReason {
    /// The application used its block.
    pub application: u64,
    /// A header was read or written.
    pub header: u64,
    /// A free-list link was written.
    pub free_list: u64,
    /// Metadata was written.
    pub metadata: u64,
    /// calloc zeroed a block.
    pub zeroing: u64,
    /// realloc copied a block.
    pub copy: u64,
    /// The allocator prefaulted the page.
    pub prefault: u64,
    /// `MAP_POPULATE`, `MADV_POPULATE_*`, or locking by the program.
    pub populated: u64,
    /// `MAP_POPULATE` of the excess pages of an aligned mapping, which the allocator unmaps immediately.
    pub alignment_excess: u64,
    /// `MADV_COLLAPSE`.
    pub collapsed: u64,
    /// The page had been written before and was purged.
    pub refault_after_purge: u64,
    /// A page or folio smaller than 2M, in a PMD range that was once a huge page.
    pub refault_after_split: u64,
    /// A write to a zero page that a read had installed.
    pub write_after_zero_page: u64,
    /// A write to a page shared with a forked child.
    pub cow_after_fork: u64,
}

impl ByReason {
    pub(super) fn of(&mut self, cause: Cause) -> &mut u64 {
        match cause {
            Cause::Application => &mut self.application,
            Cause::Header => &mut self.header,
            Cause::FreeList => &mut self.free_list,
            Cause::Metadata => &mut self.metadata,
            Cause::Zeroing => &mut self.zeroing,
            Cause::Copy => &mut self.copy,
            Cause::Prefault => &mut self.prefault,
        }
    }

    /// The sum of all reasons.
    pub fn total(&self) -> u64 {
        let ByReason { application, header, free_list, metadata, zeroing, copy, prefault, populated, .. } = *self;
        let ByReason {
            alignment_excess,
            collapsed,
            refault_after_purge,
            refault_after_split,
            write_after_zero_page,
            ..
        } = *self;
        let copied = self.cow_after_fork;
        let touched = application + header + free_list + metadata + zeroing + copy + prefault;
        let called = populated + alignment_excess + collapsed;
        touched + called + refault_after_purge + refault_after_split + write_after_zero_page + copied
    }
}
