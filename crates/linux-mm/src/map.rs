//! mmap, munmap and the splitting of mappings (R6, R14, R21).

use std::ops::Range;

use super::Kernel;
use super::config::{KernelConfig, Overcommit, ThpAdvice};
use super::lock::Locked;
use super::outcome::{Errno, Outcome};
use super::rules::{HeapMerge, MapStack, MmapFixedHugetlbErrno, NewVmaMerge, Rules};
use super::span::{ADDRESS_SPACE_PAGES, PMD_PAGES, is_pmd_aligned};
use super::vma::{Protection, Vma, VmaFlags};
use super::vma_advice::OtherAdvice;
use super::zap::ZapReason;

/// What a mapping of private anonymous memory is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// Nothing: `MAP_ANONYMOUS`.
    #[default]
    Anonymous,
    /// `/dev/zero`, mapped `MAP_PRIVATE`: its pages are anonymous memory, but the mapping has a file (R34). The model
    /// takes each call's file as another one.
    ZeroDevice,
    /// Nothing, with `MAP_DROPPABLE` (Linux 6.11): not charged, wiped on fork, never locked (R34).
    Droppable,
}

/// Arguments of mmap for a private anonymous mapping: protection and `MAP_*` flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapFlags {
    /// `PROT_*`.
    pub protection: Protection,
    /// `MAP_NORESERVE`.
    pub noreserve: bool,
    /// `MAP_POPULATE`: best effort, errors are not reported.
    pub populate: bool,
    /// `MAP_HUGETLB | MAP_HUGE_2MB`.
    pub hugetlb: bool,
    /// `MAP_STACK`: no huge pages from Linux 6.7 on (R30).
    pub stack: bool,
    /// What is mapped.
    pub backing: Backing,
}

impl MapFlags {
    /// Readable and writable, charged to the commit limit, not populated.
    pub const READ_WRITE: Self = Self {
        protection: Protection::ReadWrite,
        noreserve: false,
        populate: false,
        hugetlb: false,
        stack: false,
        backing: Backing::Anonymous,
    };

    pub(super) fn vma_flags(self, config: &KernelConfig) -> VmaFlags {
        let is_droppable = self.backing == Backing::Droppable;
        let noreserve = self.noreserve && (self.hugetlb || config.overcommit == Overcommit::Allowed) || is_droppable;
        // Writable private memory is charged except with NORESERVE; hugetlb has its own reservations (R18).
        let account = self.protection.is_writable() && !noreserve && !self.hugetlb;
        let thp = if self.is_stack(&config.rules) { ThpAdvice::NoHuge } else { ThpAdvice::None };
        let other = if is_droppable { OtherAdvice::DROPPABLE } else { OtherAdvice::default() };
        VmaFlags { thp, noreserve, account, hugetlb: self.hugetlb, other, ..VmaFlags::new(self.protection) }
    }

    /// Whether `MAP_STACK` has an effect.
    fn is_stack(self, rules: &Rules) -> bool {
        self.stack && rules.map_stack == MapStack::NoHugePage
    }
}

impl Kernel {
    /// mmap at a fixed address (`MAP_FIXED`): replaces existing mappings. For hugetlb the start must be 2 MiB-aligned,
    /// and the length is rounded up to 2 MiB.
    ///
    /// Errors: EINVAL for an empty range, or (ENOMEM before Linux 6.12) if the range would split a hugetlb mapping
    /// inside a 2 MiB page. ENOMEM beyond the address space or `max_map_count` (R14), or if the hugetlb pool has too
    /// few free pages (R13).
    pub fn map(&mut self, range: Range<u64>, flags: MapFlags) -> Outcome {
        let made = self.make_mapping(range, flags, None);
        self.populate_new(made, flags)
    }

    /// brk: adds `range` to the heap, which starts at page `heap_start`. What is mapped in the range is replaced; the
    /// kernel refuses such a call before.
    ///
    /// # Errors
    /// As for [`Kernel::map`].
    pub fn grow_heap(&mut self, range: Range<u64>, heap_start: u64) -> Outcome {
        let made = self.make_mapping(range, MapFlags::READ_WRITE, Some(heap_start));
        self.populate_new(made, MapFlags::READ_WRITE)
    }

    fn populate_new(&mut self, made: Result<Range<u64>, Errno>, flags: MapFlags) -> Outcome {
        let range = match made {
            Ok(range) if flags.populate || self.lock_future != Locked::No => range,
            made => return Outcome::of(made.map(|_| ())),
        };
        Outcome { result: Ok(()), ..self.populate_locked(&range) }
    }

    /// munmap: removes pages, mappings, and page tables that no mapping needs any more (R21). Unmapped parts of the
    /// range are no error.
    ///
    /// EINVAL for an empty or invalid range, or a boundary inside a hugetlb page. ENOMEM if splitting one mapping into
    /// three would exceed `max_map_count` (R14).
    pub fn unmap(&mut self, range: Range<u64>) -> Result<(), Errno> {
        if range.is_empty() || range.end > ADDRESS_SPACE_PAGES {
            return Err(Errno::Invalid);
        }
        self.unmap_range(&range)
    }

    /// `heap_start` for memory added by brk.
    fn make_mapping(
        &mut self,
        range: Range<u64>,
        flags: MapFlags,
        heap_start: Option<u64>,
    ) -> Result<Range<u64>, Errno> {
        let mut range = range;
        if flags.hugetlb {
            if !is_pmd_aligned(range.start) {
                return Err(Errno::Invalid);
            }
            range.end = range.end.checked_next_multiple_of(PMD_PAGES).ok_or(Errno::NoMemory)?;
        }
        self.make_room(&range)?;
        if flags.hugetlb && !flags.noreserve {
            self.memory.get().pool.reserve((range.end - range.start) / PMD_PAGES)?;
        }
        let is_locked = !flags.hugetlb && flags.backing != Backing::Droppable;
        let device = (flags.backing == Backing::ZeroDevice).then(|| self.vmas.new_file_id());
        let vma = Vma {
            start: range.start,
            end: range.end,
            flags: VmaFlags {
                locked: if is_locked { self.lock_future } else { Locked::No },
                device,
                ..flags.vma_flags(&self.config)
            },
            displacement: 0,
            anon: None,
            inherited: false,
            is_stack: flags.is_stack(&self.config.rules),
        };
        match (self.config.rules.new_vma_merge, self.config.rules.heap_merge, heap_start) {
            (_, HeapMerge::HeapOnly, Some(heap_start)) => self.vmas.insert_heap(vma, heap_start),
            (NewVmaMerge::BothOrPrev, ..) => self.vmas.insert(vma),
            (NewVmaMerge::NextFirst, ..) => self.vmas.insert_next_first(vma),
        };
        Ok(range)
    }

    /// Unmaps what a new mapping replaces.
    pub(super) fn make_room(&mut self, range: &Range<u64>) -> Result<(), Errno> {
        if range.is_empty() {
            return Err(Errno::Invalid);
        }
        if range.end > ADDRESS_SPACE_PAGES || self.map_count() > self.config.max_map_count {
            return Err(Errno::NoMemory);
        }
        self.unmap_range(range).map_err(|errno| match self.config.rules.mmap_fixed_hugetlb_errno {
            MmapFixedHugetlbErrno::Enomem => Errno::NoMemory,
            MmapFixedHugetlbErrno::Einval => errno,
        })
    }

    pub(super) fn unmap_range(&mut self, range: &Range<u64>) -> Result<(), Errno> {
        let found = self.vmas.overlapping(range);
        let (Some(first), Some(last)) = (found.first(), found.last()) else { return Ok(()) };
        let splits_in_three = first.has_inside(range.start) && first.has_inside(range.end);
        if splits_in_three && !self.may_add_vma() {
            return Err(Errno::NoMemory);
        }
        if !first.may_split_at(range.start) {
            return Err(Errno::Invalid);
        }
        self.split_at(first, range.start);
        // After this error the split at the start remains.
        if !last.may_split_at(range.end) {
            return Err(Errno::Invalid);
        }
        self.split_at(last, range.end);
        for vma in self.vmas.overlapping(range) {
            if vma.flags.hugetlb {
                self.release_hugetlb(&vma, &vma.pages());
            } else {
                self.zap(&vma.pages(), ZapReason::Unmap);
            }
            self.vmas.take(vma.start);
        }
        let gap = self.vmas.gap_around(range);
        self.tables.free_tables_in(range, &gap, &mut self.flush);
        self.end_flush();
        Ok(())
    }

    /// Mappings of the whole process, as `max_map_count` counts them.
    pub(super) fn map_count(&self) -> u64 {
        self.vmas.len() + self.config.vmas_outside_heap
    }

    pub(super) fn may_add_vma(&self) -> bool {
        self.map_count() < self.config.max_map_count
    }

    /// Changes the flags of part `range` of `vma`: merges it with a neighbour if possible, otherwise splits the mapping
    /// (R14, R18-R20). ENOMEM beyond `max_map_count`; the first of two splits may stay.
    pub(super) fn change_flags(&mut self, vma: &Vma, range: &Range<u64>, flags: VmaFlags) -> Result<(), Errno> {
        if flags == vma.flags {
            return Ok(());
        }
        let boundaries = [range.start, range.end];
        if !self.vmas.would_merge(vma, range, flags) {
            for at in boundaries {
                if vma.has_inside(at) {
                    self.split_vma(vma, at)?;
                }
            }
        }
        for at in boundaries.into_iter().filter(|&at| vma.has_inside(at)) {
            self.split_entry_across(at);
        }
        if let Some(part) = self.vmas.covering(range.start) {
            self.vmas.set_flags(&part, range, flags);
        }
        Ok(())
    }

    fn split_vma(&mut self, vma: &Vma, at: u64) -> Result<(), Errno> {
        if !self.may_add_vma() {
            return Err(Errno::NoMemory);
        }
        if !vma.may_split_at(at) {
            return Err(Errno::Invalid);
        }
        self.split_at(vma, at);
        Ok(())
    }

    /// Splits a mapping at page `at` if that page is inside it, and any huge PMD entry that spans `at` (R23).
    fn split_at(&mut self, vma: &Vma, at: u64) {
        if vma.has_inside(at) {
            self.vmas.split(at);
            self.split_entry_across(at);
        }
    }
}
