//! Pages of the hugetlb pool: reserved by the map, taken by the first touch (R13).

use std::collections::BTreeSet;
use std::ops::Range;

use super::Kernel;
use super::entry::{Access, BlockEntry};
use super::outcome::{Errno, InstallKind, Signal};
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
    /// Blocks whose promise was kept and is not renewed.
    spent: BTreeSet<u64>,
}

impl HugetlbPool {
    pub fn new(total: Option<u64>) -> Self {
        Self { total, used: 0, reserved: 0, spent: BTreeSet::new() }
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
        if matches!(self.tables.entry(block), BlockEntry::None) {
            let reserves = vma.reserves() && !self.pool.spent.contains(&block);
            self.pool.take(reserves)?;
        }
        self.tables.replace(block, BlockEntry::Hugetlb { writable: access.writes() });
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
            if matches!(self.tables.take(block), BlockEntry::Hugetlb { .. }) {
                self.pool.give_back(vma.reserves() && renews);
                if vma.reserves() && !renews {
                    self.pool.spent.insert(block);
                }
            }
        }
        Ok(())
    }

    /// Takes a part out of the address space: its pages and its promises go back to the pool.
    pub(super) fn release_hugetlb(&mut self, vma: &Vma, part: &Range<u64>) {
        for block in blocks_touching(part) {
            let spent = self.pool.spent.remove(&block);
            if matches!(self.tables.take(block), BlockEntry::Hugetlb { .. }) {
                self.pool.give_back(false);
            } else if vma.reserves() && !spent {
                self.pool.reserved -= 1;
            }
        }
    }

    /// A change of protection takes the write permission from every entry; the next write takes a fault to get it
    /// back.
    pub(super) fn write_protect_hugetlb(&mut self, part: &Range<u64>) {
        for block in blocks_touching(part) {
            if let Some(BlockEntry::Hugetlb { writable }) = self.tables.entry_mut(block) {
                *writable = false;
            }
        }
    }
}
