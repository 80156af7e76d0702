//! Installs by reason.

use serde::{Deserialize, Serialize};

use crate::observer::Cause;

/// Why a page was installed. An install has the first reason that applies, in this order: populated
/// (alignment_excess if the pages were unmapped again) or collapsed; cow_after_fork; write_after_zero_page;
/// refault_after_split; refault_after_purge; otherwise the cause of the touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The application used its block.
    Application,
    /// A header was read or written.
    Header,
    /// A free-list link was written.
    FreeList,
    /// Metadata was written.
    Metadata,
    /// calloc zeroed a block.
    Zeroing,
    /// realloc copied a block.
    Copy,
    /// The allocator prefaulted the page.
    Prefault,
    /// `MAP_POPULATE`, `MADV_POPULATE_*`, or locking by the program.
    Populated,
    /// `MAP_POPULATE` of the excess pages of an aligned mapping, which the allocator unmaps immediately.
    AlignmentExcess,
    /// `MADV_COLLAPSE`.
    Collapsed,
    /// The page had been written before and was purged.
    RefaultAfterPurge,
    /// A page or folio smaller than 2M, in a PMD range that was once a huge page.
    RefaultAfterSplit,
    /// A write to a zero page that a read had installed.
    WriteAfterZeroPage,
    /// A write to a page shared with a forked child.
    CowAfterFork,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 14] = [
        Reason::Application,
        Reason::Header,
        Reason::FreeList,
        Reason::Metadata,
        Reason::Zeroing,
        Reason::Copy,
        Reason::Prefault,
        Reason::Populated,
        Reason::AlignmentExcess,
        Reason::Collapsed,
        Reason::RefaultAfterPurge,
        Reason::RefaultAfterSplit,
        Reason::WriteAfterZeroPage,
        Reason::CowAfterFork,
    ];

    /// Its name in results, which is that of the field in [`ByReason`].
    pub fn word(self) -> &'static str {
        match self {
            Reason::Application => "application",
            Reason::Header => "header",
            Reason::FreeList => "free_list",
            Reason::Metadata => "metadata",
            Reason::Zeroing => "zeroing",
            Reason::Copy => "copy",
            Reason::Prefault => "prefault",
            Reason::Populated => "populated",
            Reason::AlignmentExcess => "alignment_excess",
            Reason::Collapsed => "collapsed",
            Reason::RefaultAfterPurge => "refault_after_purge",
            Reason::RefaultAfterSplit => "refault_after_split",
            Reason::WriteAfterZeroPage => "write_after_zero_page",
            Reason::CowAfterFork => "cow_after_fork",
        }
    }

    /// Whether the page, or the huge page around it, had been resident before.
    pub fn is_refault(self) -> bool {
        matches!(self, Reason::RefaultAfterPurge | Reason::RefaultAfterSplit)
    }
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Reason {
        match cause {
            Cause::Application => Reason::Application,
            Cause::Header => Reason::Header,
            Cause::FreeList => Reason::FreeList,
            Cause::Metadata => Reason::Metadata,
            Cause::Zeroing => Reason::Zeroing,
            Cause::Copy => Reason::Copy,
            Cause::Prefault => Reason::Prefault,
        }
    }
}

/// Installs by [`Reason`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "documented in Reason")]
pub struct ByReason {
    pub application: u64,
    pub header: u64,
    pub free_list: u64,
    pub metadata: u64,
    pub zeroing: u64,
    pub copy: u64,
    pub prefault: u64,
    pub populated: u64,
    pub alignment_excess: u64,
    pub collapsed: u64,
    pub refault_after_purge: u64,
    pub refault_after_split: u64,
    pub write_after_zero_page: u64,
    pub cow_after_fork: u64,
}

impl ByReason {
    pub(super) fn of_mut(&mut self, reason: Reason) -> &mut u64 {
        match reason {
            Reason::Application => &mut self.application,
            Reason::Header => &mut self.header,
            Reason::FreeList => &mut self.free_list,
            Reason::Metadata => &mut self.metadata,
            Reason::Zeroing => &mut self.zeroing,
            Reason::Copy => &mut self.copy,
            Reason::Prefault => &mut self.prefault,
            Reason::Populated => &mut self.populated,
            Reason::AlignmentExcess => &mut self.alignment_excess,
            Reason::Collapsed => &mut self.collapsed,
            Reason::RefaultAfterPurge => &mut self.refault_after_purge,
            Reason::RefaultAfterSplit => &mut self.refault_after_split,
            Reason::WriteAfterZeroPage => &mut self.write_after_zero_page,
            Reason::CowAfterFork => &mut self.cow_after_fork,
        }
    }

    /// Installs for a reason.
    pub fn of(&self, reason: Reason) -> u64 {
        let mut copy = *self;
        *copy.of_mut(reason)
    }

    /// The sum of all reasons.
    pub fn total(&self) -> u64 {
        Reason::ALL.iter().map(|&reason| self.of(reason)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_the_name_of_its_field() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            let mut counts = ByReason::default();
            *counts.of_mut(reason) = number as u64 + 1;
            let fields = serde_json::to_value(counts).expect("counts are JSON");
            assert_eq!(fields[reason.word()], number as u64 + 1);
            assert_eq!(counts.total(), number as u64 + 1);
        }
    }
}
