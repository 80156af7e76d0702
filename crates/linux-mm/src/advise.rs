//! madvise, which applies its advice mapping by mapping (R24).

use std::ops::Range;

use super::Kernel;
use super::aging::Aging;
use super::config::ThpAdvice;
use super::entry::Access;
use super::lock::Locked;
use super::outcome::{Errno, Outcome};
use super::populate::{POPULATE_WRITE, PopulateCheck};
use super::rules::{Collapse, DontneedLocked, MadvPopulateHoles, MadviseMapCountErrno};
use super::vma::{Vma, VmaFlags};
use super::zap::ZapReason;

/// `MADV_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Allow huge pages.
    HugePage,
    /// Forbid huge pages.
    NoHugePage,
    /// Drop the pages immediately.
    DontNeed,
    /// Let the kernel drop the pages when memory is short (R9).
    Free,
    /// Reclaim these pages first (R25).
    Cold,
    /// Populate for reading.
    PopulateRead,
    /// Populate for writing.
    PopulateWrite,
    /// Collapse into huge pages (R12).
    Collapse,
    /// `DontNeed` that also drops locked pages (R29b).
    DontNeedLocked,
    /// Swap pages in again. No effect on memory that was never swapped out.
    WillNeed,
    /// Cancel `Random` and `Sequential`.
    Normal,
    /// Expect accesses in random order. Affects merging only (R6).
    Random,
    /// Expect accesses in ascending order. Affects merging only (R6).
    Sequential,
    /// Leave the mapping out of children (R31).
    DontFork,
    /// Cancel `DontFork`.
    DoFork,
    /// Give children the mapping without its pages (R31).
    WipeOnFork,
    /// Cancel `WipeOnFork`.
    KeepOnFork,
    /// Leave the mapping out of core dumps. Affects merging only (R6).
    DontDump,
    /// Cancel `DontDump`.
    DoDump,
    /// Let KSM merge equal pages. KSM itself is not modelled: affects the merging of mappings only (R6).
    Mergeable,
    /// Cancel `Mergeable`.
    Unmergeable,
    /// Replace the pages by guard pages, on which every access fails (R32).
    GuardInstall,
    /// Remove guard pages.
    GuardRemove,
}

impl Kernel {
    /// madvise. A hole in the range gives ENOMEM, but only after the advice has been applied to every mapping in the
    /// range. From Linux 6.12 on, a populate stops at the hole (R24).
    ///
    /// Other errors: EINVAL for a reversed range, for advice that the version does not have, or for advice that a
    /// hugetlb mapping (R13f), a locked mapping (R29b) or a mapping of [`Kernel::map_unmodelled`] does not support.
    /// EFAULT for a populate at a guard page (R32) or at an empty hugetlb pool (R13a). EAGAIN (ENOMEM before Linux 6.1)
    /// if a split would exceed `max_map_count` (R14).
    pub fn advise(&mut self, range: Range<u64>, advice: Advice) -> Outcome {
        if range.start > range.end {
            return Outcome::of(Err(Errno::Invalid));
        }
        let outcome = self.advise_mappings(range, advice);
        self.end_flush();
        outcome
    }

    fn advise_mappings(&mut self, range: Range<u64>, advice: Advice) -> Outcome {
        Outcome::of(match advice {
            Advice::PopulateRead => return self.advise_populate(&range, Access::Read),
            Advice::PopulateWrite => return self.advise_populate(&range, POPULATE_WRITE),
            Advice::Collapse if self.config.rules.collapse == Collapse::Unsupported => Err(Errno::Invalid),
            Advice::Collapse => return self.advise_collapse(&range),
            Advice::HugePage => {
                self.for_each_mapping(&range, |kernel, vma, part| kernel.advise_thp(vma, part, ThpAdvice::Huge))
            }
            Advice::NoHugePage => {
                self.for_each_mapping(&range, |kernel, vma, part| kernel.advise_thp(vma, part, ThpAdvice::NoHuge))
            }
            Advice::DontNeed => self.for_each_mapping(&range, |kernel, vma, part| {
                if vma.flags.locked != Locked::No { Err(Errno::Invalid) } else { kernel.dontneed(vma, part) }
            }),
            Advice::DontNeedLocked if self.config.rules.dontneed_locked == DontneedLocked::Unsupported => {
                Err(Errno::Invalid)
            }
            Advice::DontNeedLocked => self.for_each_mapping(&range, Self::dontneed),
            Advice::Free => {
                self.for_each_mapping(&range, |kernel, vma, part| kernel.advise_age(vma, part, Aging::Free))
            }
            Advice::Cold => {
                self.for_each_mapping(&range, |kernel, vma, part| kernel.advise_age(vma, part, Aging::Cold))
            }
            Advice::GuardInstall => self.for_each_mapping(&range, Self::install_guards),
            Advice::GuardRemove => self.for_each_mapping(&range, Self::remove_guards),
            Advice::WillNeed
            | Advice::Normal
            | Advice::Random
            | Advice::Sequential
            | Advice::DontFork
            | Advice::DoFork
            | Advice::WipeOnFork
            | Advice::KeepOnFork
            | Advice::DontDump
            | Advice::DoDump
            | Advice::Mergeable
            | Advice::Unmergeable => {
                self.for_each_mapping(&range, |kernel, vma, part| kernel.advise_flag(vma, part, advice))
            }
        })
    }

    fn advise_populate(&mut self, range: &Range<u64>, access: Access) -> Outcome {
        if self.config.rules.madv_populate_holes == MadvPopulateHoles::Stop {
            return self.populate(range, access, PopulateCheck::Exact);
        }
        let mut installs = Vec::new();
        let result = self.for_each_mapping(range, |kernel, _, part| {
            let populated = kernel.populate(part, access, PopulateCheck::Exact);
            installs.extend(populated.installs);
            populated.result
        });
        Outcome { result, installs }
    }

    fn advise_collapse(&mut self, range: &Range<u64>) -> Outcome {
        let mut installs = Vec::new();
        let result = self.for_each_mapping(range, |kernel, vma, part| kernel.collapse(vma, part, &mut installs));
        Outcome { result, installs }
    }

    /// Calls `visit` for the part of `range` in each mapping. An error of `visit` stops the walk; holes do not.
    pub(super) fn for_each_mapping(
        &mut self,
        range: &Range<u64>,
        mut visit: impl FnMut(&mut Self, &Vma, &Range<u64>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut result = Ok(());
        let mut at = range.start;
        while at < range.end {
            let Some(vma) = self.vmas.at_or_after(at).filter(|vma| vma.start < range.end) else {
                return Err(Errno::NoMemory);
            };
            if vma.start > at {
                result = Err(Errno::NoMemory);
            }
            let part = at.max(vma.start)..vma.end.min(range.end);
            visit(self, &vma, &part)?;
            at = part.end;
        }
        result
    }

    fn advise_thp(&mut self, vma: &Vma, part: &Range<u64>, thp: ThpAdvice) -> Result<(), Errno> {
        let advised = Vma { flags: VmaFlags { thp, ..vma.flags }, ..*vma };
        if self.may_be_huge(&advised) && !self.may_be_huge(vma) {
            self.counters.collapsible_pages += self.small_pages(part);
        }
        self.advise_flags(vma, part, VmaFlags { thp, ..vma.flags })
    }

    /// Changes the flags of part of a mapping, with the errors of madvise.
    pub(super) fn advise_flags(&mut self, vma: &Vma, part: &Range<u64>, flags: VmaFlags) -> Result<(), Errno> {
        self.change_flags(vma, part, flags).map_err(|errno| match errno {
            // Newer versions report this as a temporary shortage.
            Errno::NoMemory if self.config.rules.madvise_map_count_errno == MadviseMapCountErrno::Eagain => {
                Errno::Again
            }
            other => other,
        })
    }

    fn dontneed(&mut self, vma: &Vma, part: &Range<u64>) -> Result<(), Errno> {
        if vma.flags.hugetlb {
            return self.dontneed_hugetlb(vma, part);
        }
        self.zap(part, ZapReason::DontNeed);
        Ok(())
    }

    fn advise_age(&mut self, vma: &Vma, part: &Range<u64>, aging: Aging) -> Result<(), Errno> {
        if vma.flags.hugetlb || vma.flags.locked != Locked::No {
            return Err(Errno::Invalid);
        }
        if vma.is_unmodelled() {
            // MADV_FREE needs anonymous memory. MADV_COLD has no effect on what is modelled.
            return if aging == Aging::Free { Err(Errno::Invalid) } else { Ok(()) };
        }
        self.age(part, aging);
        Ok(())
    }
}
