//! Pages of the hugetlb pool: reserved by the map, taken by the first touch (R13).

use std::ops::Range;

use super::Kernel;
use super::entry::{Access, BlockEntry};
use super::outcome::{Errno, InstallKind, Signal};
use super::remap::RemapSource;
use super::rules::HugetlbDontneed;
use super::span::{BLOCK_PAGES, block_of, blocks_touching, is_block_aligned};
use super::vma::Vma;

/// The pool of 2 MiB pages.
#[derive(Debug)]
pub(super) struct HugetlbPool {
    /// Pages in the pool, `None` for as many as asked for.
    total: Option<u64>,
    /// Pages mapped somewhere.
    used: u64,
    /// Pages promised to mappings that have not touched them.
    reserved: u64,
}

impl HugetlbPool {
    pub fn new(total: Option<u64>) -> Self {
        Self { total, used: 0, reserved: 0 }
    }

    fn has_unreserved(&self, pages: u64) -> bool {
        self.total.is_none_or(|total| total - self.used - self.reserved >= pages)
    }

    /// Promises `pages` to a mapping; ENOMEM if the pool is short.
    pub fn reserve(&mut self, pages: u64) -> Result<(), Errno> {
        if !self.has_unreserved(pages) {
            return Err(Errno::NoMemory);
        }
        self.reserved += pages;
        Ok(())
    }

    fn take(&mut self, reserves: bool) -> Result<(), Signal> {
        if reserves {
            self.reserved -= 1;
        } else if !self.has_unreserved(1) {
            return Err(Signal::Bus);
        }
        self.used += 1;
        Ok(())
    }

    /// A page comes back; a mapping that stays may keep its promise of one (HugePages_Rsvd rises again).
    fn give_back(&mut self, still_reserves: bool) {
        self.used -= 1;
        self.reserved += u64::from(still_reserves);
    }
}

impl Vma {
    /// Whether this hugetlb mapping holds pool pages in reserve for what it has not touched.
    fn reserves(&self) -> bool {
        !self.flags.noreserve
    }

    /// Whether a border at `at` is allowed: hugetlb mappings are cut at 2 MiB boundaries only.
    pub(super) fn may_split_at(&self, at: u64) -> bool {
        !self.has_inside(at) || !self.flags.hugetlb || is_block_aligned(at)
    }
}

impl Kernel {
    /// Serves an access to a hugetlb mapping: a page from the pool, or write permission for one that was read first
    /// or reprotected since.
    pub(super) fn hugetlb_fault(&mut self, vma: &Vma, page: u64, access: Access) -> Result<InstallKind, Signal> {
        let block = block_of(page);
        // The way to the entry is made first, and stays where the pool is empty.
        self.tables.make_upper_levels(block);
        let mut memory = self.memory.get();
        match self.tables.entry(block) {
            // A write to a page that another process maps, too: a copy, which is promised to nobody.
            BlockEntry::Hugetlb { frame: Some(frame), .. } => {
                let copied = if memory.frames.is_shared(*frame) { memory.pool.take(false) } else { Ok(()) };
                match copied {
                    Ok(()) => _ = memory.frames.leave(*frame),
                    // Whom pages were promised keeps this one, and it is unmapped from its children (`unmap_ref_private`): when they
                    // leave, it does not go to the pool.
                    Err(_) if vma.reserves() => self.counters.pages_kept_from_children += 1,
                    Err(signal) => return Err(signal),
                }
            }
            BlockEntry::Hugetlb { frame: None, .. } => {}
            _ => memory.pool.take(vma.reserves() && !self.promises_spent.contains(&block))?,
        }
        drop(memory);
        self.tables.replace(block, BlockEntry::Hugetlb { writable: access.writes(), frame: None });
        Ok(InstallKind::Hugetlb)
    }

    /// DONTNEED: the length is rounded down to 2 MiB silently, the start must be aligned.
    pub(super) fn dontneed_hugetlb(&mut self, vma: &Vma, part: &Range<u64>) -> Result<(), Errno> {
        let rule = self.config.rules.hugetlb_dontneed;
        if rule == HugetlbDontneed::Refused || !is_block_aligned(part.start) {
            return Err(Errno::Invalid);
        }
        let renews = rule == HugetlbDontneed::ToReserve;
        for block in block_of(part.start)..part.end / BLOCK_PAGES {
            if let BlockEntry::Hugetlb { frame, .. } = self.tables.take(block) {
                let is_promised = vma.reserves() && renews;
                let was_last = self.leave_hugetlb(frame, is_promised);
                if vma.reserves() && !(is_promised && was_last) {
                    self.promises_spent.insert(block);
                }
            }
        }
        Ok(())
    }

    /// A page of the pool is no longer mapped here; whether it went back to the pool, no other process having it.
    fn leave_hugetlb(&mut self, frame: Option<u32>, still_promised: bool) -> bool {
        let mut memory = self.memory.get();
        let was_last = frame.is_none_or(|frame| memory.frames.leave(frame));
        if was_last {
            memory.pool.give_back(still_promised);
        }
        was_last
    }

    /// Takes a part out of the address space: its pages and its promises go back to the pool.
    pub(super) fn release_hugetlb(&mut self, vma: &Vma, part: &Range<u64>) {
        for block in blocks_touching(part) {
            let is_spent = self.promises_spent.remove(&block);
            if let BlockEntry::Hugetlb { frame, .. } = self.tables.take(block) {
                self.leave_hugetlb(frame, false);
            } else if vma.reserves() && !is_spent {
                self.memory.get().pool.reserved -= 1;
            }
        }
    }

    /// mremap of part of a hugetlb mapping: rounded up to 2 MiB, and refused before the target is unmapped.
    pub(super) fn move_hugetlb(&mut self, part: Range<u64>, target: u64, source: RemapSource) -> Result<(), Errno> {
        if source == RemapSource::Kept || !is_block_aligned(part.start) || !is_block_aligned(target) {
            return Err(Errno::Invalid);
        }
        let part = part.start..part.end.next_multiple_of(BLOCK_PAGES);
        self.unmap_range(&(target..target + (part.end - part.start)))?;
        let vma = self.vmas.covering(part.start).ok_or(Errno::Fault)?;
        if self.map_count() >= self.config.max_map_count.saturating_sub(3) {
            return Err(Errno::NoMemory);
        }
        self.vmas.insert(Vma { start: target, end: target + (part.end - part.start), ..vma });
        for block in blocks_touching(&part) {
            let to = block - block_of(part.start) + block_of(target);
            if self.promises_spent.remove(&block) {
                self.promises_spent.insert(to);
            }
            if let entry @ BlockEntry::Hugetlb { .. } = self.tables.take(block) {
                self.tables.replace(to, entry);
            }
        }
        for at in [part.start, part.end] {
            if self.vmas.covering(at).is_some_and(|vma| vma.has_inside(at)) {
                self.vmas.split(at);
            }
        }
        self.vmas.take(part.start);
        let gap = self.vmas.gap_around(&part);
        self.tables.free_tables_in(&part, &gap);
        Ok(())
    }

    /// A change of protection takes the write permission from every entry; the next write takes a fault to get it
    /// back.
    pub(super) fn write_protect_hugetlb(&mut self, part: &Range<u64>) {
        for block in blocks_touching(part) {
            if let Some(BlockEntry::Hugetlb { writable, .. }) = self.tables.entry_mut(block) {
                *writable = false;
            }
        }
    }
}
