//! The page-table tree, with one struct per level, so that its memory can be counted (R15, R21).

use std::collections::BTreeSet;
use std::ops::Range;

use super::entry::{FolioPage, PmdEntry, Pte, PteKind, PteTable, TableOrigin};
use super::flush::Flush;
use super::span::{PAGE_BYTES, PMD_PAGES, index_of, pages_of, pmd_of, pmds_touching};

/// Entries of one table of any level.
const FANOUT: u64 = 512;

/// Pages mapped below one PMD table: 1 GiB.
const PMD_TABLE_REACH: u64 = PMD_PAGES * FANOUT;

/// Pages mapped below one PUD table: 512 GiB.
const PUD_TABLE_REACH: u64 = PMD_TABLE_REACH * FANOUT;

static NO_ENTRY: PmdEntry = PmdEntry::None;

/// A PMD table: the entries of 1 GiB.
#[derive(Clone, Debug)]
struct PmdTable {
    /// First page divided by [`PMD_TABLE_REACH`].
    region: u64,
    entries: Box<[PmdEntry]>,
}

/// The tree. Every entry that is not `None` has a PMD table and a PUD table above it.
#[derive(Clone, Debug, Default)]
pub(super) struct PageTables {
    /// Sorted by region.
    pmd_tables: Vec<PmdTable>,
    /// First page divided by [`PUD_TABLE_REACH`].
    pud_tables: BTreeSet<u64>,
    /// The index in `pmd_tables` that was used last.
    hint: usize,
    pte_tables: u64,
    pub rss_pages: u64,
    pub huge_pages: u64,
    pub hugetlb_pages: u64,
}

impl PageTables {
    /// Bytes of PTE, PMD and PUD tables (VmPTE, R21).
    pub fn bytes(&self) -> u64 {
        (self.pte_tables + self.pmd_tables.len() as u64 + self.pud_tables.len() as u64) * PAGE_BYTES
    }

    #[inline]
    pub fn entry(&self, pmd: u64) -> &PmdEntry {
        let (region, index) = (pmd / FANOUT, (pmd % FANOUT) as usize);
        match self.pmd_tables.get(self.hint) {
            Some(table) if table.region == region => &table.entries[index],
            _ => self.position_of(region).map_or(&NO_ENTRY, |at| &self.pmd_tables[at].entries[index]),
        }
    }

    /// The PMD entry, or `None` if its PMD table does not exist.
    #[inline]
    pub fn entry_mut(&mut self, pmd: u64) -> Option<&mut PmdEntry> {
        let region = pmd / FANOUT;
        if self.pmd_tables.get(self.hint).is_none_or(|page| page.region != region) {
            self.hint = self.position_of(region).ok()?;
        }
        Some(&mut self.pmd_tables[self.hint].entries[(pmd % FANOUT) as usize])
    }

    /// Stores a PMD entry, allocating the levels above it, and returns the old entry. Updates page totals but not the
    /// folio store, so a replaced PTE table must be empty or be stored again.
    pub fn replace(&mut self, pmd: u64, new: PmdEntry) -> PmdEntry {
        self.make_upper_levels(pmd);
        self.count(&new, true);
        let slot = self.entry_mut(pmd).map(|slot| std::mem::replace(slot, new));
        let old = slot.unwrap_or_default();
        self.count(&old, false);
        old
    }

    /// Removes and returns a PMD entry. No level is allocated or freed.
    pub fn take(&mut self, pmd: u64) -> PmdEntry {
        let old = self.entry_mut(pmd).map(std::mem::take).unwrap_or_default();
        self.count(&old, false);
        old
    }

    /// The PTE table of a PMD entry without a huge page, allocated for a small page if there is none.
    pub fn table_for(&mut self, pmd: u64) -> &mut PteTable {
        self.table_because_of(TableOrigin::SmallPage, pmd)
    }

    /// The PTE table of a PMD entry without a huge page, allocated if there is none.
    pub fn table_because_of(&mut self, origin: TableOrigin, pmd: u64) -> &mut PteTable {
        // Sets the hint, unlike `entry`.
        if matches!(self.entry_mut(pmd), None | Some(PmdEntry::None)) {
            self.replace(pmd, PmdEntry::Table(PteTable::new(origin, Pte::NONE)));
        }
        match self.entry_mut(pmd) {
            Some(PmdEntry::Table(table)) => table,
            _ => unreachable!("the PMD entry holds a huge page, not a PTE table"),
        }
    }

    /// The PTE table below a PMD entry, if there is one.
    pub fn table_mut(&mut self, pmd: u64) -> Option<&mut PteTable> {
        match self.entry_mut(pmd)? {
            PmdEntry::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The PTE of a page; `NONE` without a page table.
    pub fn pte(&self, page: u64) -> Pte {
        match self.entry(pmd_of(page)) {
            PmdEntry::Table(table) => table.ptes[index_of(page)],
            _ => Pte::NONE,
        }
    }

    /// Sets the PTE of a page to anything but a page of a large folio. The PMD entry must not hold a huge page.
    pub fn set_pte(&mut self, page: u64, pte: Pte) {
        debug_assert_ne!(pte.kind(), PteKind::FolioPage);
        let old = self.table_for(pmd_of(page)).set(index_of(page), pte);
        self.rss_pages += u64::from(pte.is_anon());
        self.rss_pages -= u64::from(old.is_anon());
    }

    /// Maps the first pages of a range inside one 2 MiB range, as far as they are absent and have a PTE table. Returns
    /// their number.
    pub fn fill_absent(&mut self, pages: &Range<u64>, pte: Pte) -> u64 {
        let Some(table) = self.table_mut(pmd_of(pages.start)) else { return 0 };
        let filled = table.fill_absent(index_of(pages.start), (pages.end - pages.start) as usize, pte);
        self.rss_pages += filled;
        filled
    }

    /// Makes the entry of a page mapped by a PTE old or young.
    pub fn set_old(&mut self, page: u64, old: bool) {
        if let Some(table) = self.table_mut(pmd_of(page)) {
            table.set_old(index_of(page), old);
        }
    }

    /// Whether the entry of a page mapped by a PTE is old.
    pub fn is_old(&self, page: u64) -> bool {
        matches!(self.entry(pmd_of(page)), PmdEntry::Table(table) if table.is_old(index_of(page)))
    }

    /// Maps a page whose frame has a number. The PMD entry must not hold a huge page.
    pub fn set_numbered(&mut self, page: u64, pte: Pte, frame: u32) {
        self.set_pte(page, pte);
        self.table_for(pmd_of(page)).set_frame(index_of(page), frame);
    }

    /// Maps one page of a large folio. The PMD entry must not hold a huge page.
    pub fn set_folio_page(&mut self, page: u64, pte: Pte, folio_page: FolioPage) {
        let table = self.table_for(pmd_of(page));
        let old = table.ptes[index_of(page)];
        table.set_folio_page(index_of(page), pte, folio_page);
        self.rss_pages += 1;
        self.rss_pages -= u64::from(old.is_anon());
    }

    /// The first PMD entry at or after `from`, below `end`, that is not `None`.
    pub fn next_present(&self, from: u64, end: u64) -> Option<u64> {
        let first = self.pmd_tables.partition_point(|page| page.region < from / FANOUT);
        for page in &self.pmd_tables[first..] {
            let base = page.region * FANOUT;
            if base >= end {
                return None;
            }
            let start = from.saturating_sub(base) as usize;
            let found = page.entries[start..].iter().position(|entry| !matches!(entry, PmdEntry::None));
            if let Some(offset) = found {
                let pmd = base + (start + offset) as u64;
                return (pmd < end).then_some(pmd);
            }
        }
        None
    }

    /// Whether the PUD entry above a PMD entry is set, that is, whether its 1 GiB has a PMD table.
    pub fn has_pmd_table(&self, pmd: u64) -> bool {
        self.position_of(pmd / FANOUT).is_ok()
    }

    /// Allocates those PMD and PUD tables for `pages` that `parent` has.
    pub fn copy_upper_levels(&mut self, parent: &Self, pages: &Range<u64>) {
        let reaches = |index: u64, reach: u64| index * reach < pages.end && pages.start < (index + 1) * reach;
        self.pud_tables.extend(parent.pud_tables.iter().filter(|&&index| reaches(index, PUD_TABLE_REACH)));
        for page in parent.pmd_tables.iter().filter(|page| reaches(page.region, PMD_TABLE_REACH)) {
            self.make_upper_levels(page.region * FANOUT);
        }
    }

    /// Allocates the PUD table above a PMD entry.
    pub fn make_pud_table(&mut self, pmd: u64) {
        self.pud_tables.insert(pmd / FANOUT / FANOUT);
    }

    /// Allocates the PMD table that holds a PMD entry, and the PUD table above it.
    pub fn make_upper_levels(&mut self, pmd: u64) {
        let region = pmd / FANOUT;
        if let Err(at) = self.position_of(region) {
            let entries = (0..FANOUT).map(|_| PmdEntry::None).collect();
            self.pmd_tables.insert(at, PmdTable { region, entries });
            self.make_pud_table(pmd);
        }
    }

    /// Frees the tables of every level around `unmapped` that map only pages inside `gap`, which holds no mapping
    /// (R21). The caller has already emptied these tables.
    pub fn free_tables_in(&mut self, unmapped: &Range<u64>, gap: &Range<u64>, flush: &mut Flush) {
        let pmds = pmds_touching(unmapped);
        let mut from = pmds.start;
        while let Some(pmd) = self.next_present(from, pmds.end) {
            let pages = pages_of(pmd);
            if gap.start <= pages.start && pages.end <= gap.end {
                self.take(pmd);
                flush.table(pmd);
            }
            from = pmd + 1;
        }
        let free = |index: u64, reach: u64| {
            let start = index * reach;
            start < unmapped.end && unmapped.start < start + reach && gap.start <= start && start + reach <= gap.end
        };
        self.pmd_tables.retain(|page| !free(page.region, PMD_TABLE_REACH));
        self.pud_tables.retain(|&index| !free(index, PUD_TABLE_REACH));
    }

    /// Tables above the PMD entry, and the PTE table below it if one is wanted, that do not exist yet.
    pub fn missing_tables(&self, pmd: u64, wants_pte_table: bool) -> u64 {
        let (has_pmd_table, has_pud_table) =
            (self.has_pmd_table(pmd), self.pud_tables.contains(&(pmd / FANOUT / FANOUT)));
        let has_pte_table = !wants_pte_table || !matches!(self.entry(pmd), PmdEntry::None);
        [has_pte_table, has_pmd_table, has_pud_table].iter().map(|&has| u64::from(!has)).sum()
    }

    fn position_of(&self, region: u64) -> Result<usize, usize> {
        self.pmd_tables.binary_search_by_key(&region, |page| page.region)
    }

    /// Adds an entry's contribution to the totals, or subtracts it.
    fn count(&mut self, entry: &PmdEntry, add: bool) {
        let anon = match entry {
            PmdEntry::Table(table) => table.ptes.iter().filter(|pte| pte.is_anon()).count() as u64,
            PmdEntry::Huge(_) => PMD_PAGES,
            _ => 0,
        };
        let amounts = [
            (&mut self.pte_tables, entry.table_count()),
            (&mut self.rss_pages, anon),
            (&mut self.huge_pages, u64::from(matches!(entry, PmdEntry::Huge(_)))),
            (&mut self.hugetlb_pages, u64::from(matches!(entry, PmdEntry::Hugetlb { .. }))),
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
