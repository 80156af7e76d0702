//! The page-table tree, one level per struct the kernel would allocate, so that its memory can be counted (R15, R21).

use std::collections::BTreeSet;
use std::ops::Range;

use super::entry::{BlockEntry, Piece, Pte, PteKind, PteTable};
use super::span::{BLOCK_PAGES, PAGE_BYTES, block_of, blocks_touching, index_of, pages_of};

/// Entries of one table page of any level.
const FANOUT: u64 = 512;

/// Pages under one PMD page: 1 GiB.
const PMD_PAGE_REACH: u64 = BLOCK_PAGES * FANOUT;

/// Pages under one PUD page: 512 GiB.
const PUD_PAGE_REACH: u64 = PMD_PAGE_REACH * FANOUT;

static NO_ENTRY: BlockEntry = BlockEntry::None;

/// A PMD page: the entries of 1 GiB.
#[derive(Debug)]
struct PmdPage {
    /// First page divided by [`PMD_PAGE_REACH`].
    region: u64,
    entries: Box<[BlockEntry]>,
}

/// The tree. Every entry that is not none stands below a PMD and a PUD page.
#[derive(Debug, Default)]
pub(super) struct PageTables {
    /// By region.
    pmd_pages: Vec<PmdPage>,
    /// First page divided by [`PUD_PAGE_REACH`].
    pud_pages: BTreeSet<u64>,
    /// The place in `pmd_pages` used last.
    hint: usize,
    pte_tables: u64,
    pub rss_pages: u64,
    pub huge_pages: u64,
    pub hugetlb_pages: u64,
}

impl PageTables {
    /// Bytes of page tables: PTE, PMD and PUD pages (VmPTE, R21).
    pub fn bytes(&self) -> u64 {
        (self.pte_tables + self.pmd_pages.len() as u64 + self.pud_pages.len() as u64) * PAGE_BYTES
    }

    pub fn entry(&self, block: u64) -> &BlockEntry {
        match self.place_of(block / FANOUT) {
            Ok(at) => &self.pmd_pages[at].entries[(block % FANOUT) as usize],
            Err(_) => &NO_ENTRY,
        }
    }

    /// The entry of a block, or nothing if there is no PMD page above it.
    #[inline]
    pub fn entry_mut(&mut self, block: u64) -> Option<&mut BlockEntry> {
        let region = block / FANOUT;
        if self.pmd_pages.get(self.hint).is_none_or(|page| page.region != region) {
            self.hint = self.place_of(region).ok()?;
        }
        Some(&mut self.pmd_pages[self.hint].entries[(block % FANOUT) as usize])
    }

    /// Puts `new` into a block's entry, allocating the levels above it, and returns what was there.
    /// Counts pages, not folios: a PTE table taken out must be empty or be put back.
    pub fn replace(&mut self, block: u64, new: BlockEntry) -> BlockEntry {
        self.make_upper_levels(block);
        self.count(&new, true);
        let slot = self.entry_mut(block).map(|slot| std::mem::replace(slot, new));
        let old = slot.unwrap_or_default();
        self.count(&old, false);
        old
    }

    /// Takes a block's entry out; no level is allocated or freed.
    pub fn take(&mut self, block: u64) -> BlockEntry {
        let old = self.entry_mut(block).map(std::mem::take).unwrap_or_default();
        self.count(&old, false);
        old
    }

    /// The PTE table of a block that holds no huge page, new if it has none.
    pub fn table_for(&mut self, block: u64) -> &mut PteTable {
        if matches!(self.entry(block), BlockEntry::None) {
            self.replace(block, BlockEntry::Table(PteTable::filled_with(Pte::NONE)));
        }
        match self.entry_mut(block) {
            Some(BlockEntry::Table(table)) => table,
            _ => unreachable!("a block without huge page has a table by now"),
        }
    }

    /// The PTE table of a block, if there is one.
    pub fn table_mut(&mut self, block: u64) -> Option<&mut PteTable> {
        match self.entry_mut(block)? {
            BlockEntry::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The 4 KiB entry of a page; none where the block has no table.
    pub fn pte(&self, page: u64) -> Pte {
        match self.entry(block_of(page)) {
            BlockEntry::Table(table) => table.ptes[index_of(page)],
            _ => Pte::NONE,
        }
    }

    /// Sets the 4 KiB entry of a page to anything but a piece; its block holds no huge page.
    pub fn set_pte(&mut self, page: u64, pte: Pte) {
        debug_assert_ne!(pte.kind(), PteKind::Piece);
        let old = std::mem::replace(&mut self.table_for(block_of(page)).ptes[index_of(page)], pte);
        self.rss_pages += u64::from(pte.is_anon());
        self.rss_pages -= u64::from(old.is_anon());
    }

    /// Maps a page whose frame has a number; the block holds no huge page.
    pub fn set_numbered(&mut self, page: u64, pte: Pte, frame: u32) {
        self.set_pte(page, pte);
        self.table_for(block_of(page)).set_frame(index_of(page), frame);
    }

    /// Maps one page of a large folio; the block holds no huge page.
    pub fn set_piece(&mut self, page: u64, pte: Pte, piece: Piece) {
        let table = self.table_for(block_of(page));
        let old = table.ptes[index_of(page)];
        table.set_piece(index_of(page), pte, piece);
        self.rss_pages += 1;
        self.rss_pages -= u64::from(old.is_anon());
    }

    /// The first block at or after `from`, below `end`, whose entry is not none.
    pub fn next_present(&self, from: u64, end: u64) -> Option<u64> {
        let first = self.pmd_pages.partition_point(|page| page.region < from / FANOUT);
        for page in &self.pmd_pages[first..] {
            let base = page.region * FANOUT;
            if base >= end {
                return None;
            }
            let start = from.saturating_sub(base) as usize;
            let found = page.entries[start..].iter().position(|entry| !matches!(entry, BlockEntry::None));
            if let Some(offset) = found {
                let block = base + (start + offset) as u64;
                return (block < end).then_some(block);
            }
        }
        None
    }

    /// Whether the PUD entry above a block is set, that is, whether the block's 1 GiB has a PMD page.
    pub fn has_pmd_page(&self, block: u64) -> bool {
        self.place_of(block / FANOUT).is_ok()
    }

    /// Allocates the levels above the entries of `pages` where `parent` has them.
    pub fn copy_upper_levels(&mut self, parent: &Self, pages: &Range<u64>) {
        let reaches = |index: u64, reach: u64| index * reach < pages.end && pages.start < (index + 1) * reach;
        self.pud_pages.extend(parent.pud_pages.iter().filter(|&&index| reaches(index, PUD_PAGE_REACH)));
        for page in parent.pmd_pages.iter().filter(|page| reaches(page.region, PMD_PAGE_REACH)) {
            self.make_upper_levels(page.region * FANOUT);
        }
    }

    /// Allocates the PUD page above a block.
    pub fn make_pud_page(&mut self, block: u64) {
        self.pud_pages.insert(block / FANOUT / FANOUT);
    }

    /// Allocates the PMD page above a block, and the PUD page above that.
    pub fn make_upper_levels(&mut self, block: u64) {
        let region = block / FANOUT;
        if let Err(at) = self.place_of(region) {
            let entries = (0..FANOUT).map(|_| BlockEntry::None).collect();
            self.pmd_pages.insert(at, PmdPage { region, entries });
            self.make_pud_page(block);
        }
    }

    /// Frees the tables of every level, around `unmapped`, whose whole reach lies in `gap`, where no mapping is
    /// (R21). Everything in these tables is gone already.
    pub fn free_tables_in(&mut self, unmapped: &Range<u64>, gap: &Range<u64>) {
        let blocks = blocks_touching(unmapped);
        let mut from = blocks.start;
        while let Some(block) = self.next_present(from, blocks.end) {
            let pages = pages_of(block);
            if gap.start <= pages.start && pages.end <= gap.end {
                self.take(block);
            }
            from = block + 1;
        }
        let free = |index: u64, reach: u64| {
            let start = index * reach;
            start < unmapped.end && unmapped.start < start + reach && gap.start <= start && start + reach <= gap.end
        };
        self.pmd_pages.retain(|page| !free(page.region, PMD_PAGE_REACH));
        self.pud_pages.retain(|&index| !free(index, PUD_PAGE_REACH));
    }

    fn place_of(&self, region: u64) -> Result<usize, usize> {
        self.pmd_pages.binary_search_by_key(&region, |page| page.region)
    }

    /// Adds (or takes away) what an entry stands for in the totals.
    fn count(&mut self, entry: &BlockEntry, add: bool) {
        let anon = match entry {
            BlockEntry::Table(table) => table.ptes.iter().filter(|pte| pte.is_anon()).count() as u64,
            BlockEntry::Huge(_) => BLOCK_PAGES,
            _ => 0,
        };
        let amounts = [
            (&mut self.pte_tables, entry.table_count()),
            (&mut self.rss_pages, anon),
            (&mut self.huge_pages, u64::from(matches!(entry, BlockEntry::Huge(_)))),
            (&mut self.hugetlb_pages, u64::from(matches!(entry, BlockEntry::Hugetlb { .. }))),
        ];
        for (total, amount) in amounts {
            if add {
                *total += amount;
            } else {
                *total -= amount;
            }
        }
    }
}
