//! What one scan of khugepaged makes of a 2 MiB range: a huge page, or smaller folios (R11 to R11f).

use std::ops::Range;

use super::Kernel;
use super::config::PMD_ORDER;
use super::entry::{PteKind, PteTable};
use super::rules::{KhugepagedLazyFree, KhugepagedSharedTest, KhugepagedSizes};
use super::span::{PMD_PAGES, pages_of};
use super::vma::Vma;

/// `khugepaged/max_ptes_swap`, to which guard pages count. Its default; the setting is not modelled.
const MAX_PTES_SWAP: usize = PMD_PAGES as usize / 8;

/// With pages in swap, at least so many pages must have been accessed.
const REFERENCED_MIN_WITH_SWAP: usize = PMD_PAGES as usize / 2;

/// A folio that a scan makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedFolio {
    pub pmd: u64,
    /// Where it begins in the range.
    pub at: usize,
    pub order: usize,
}

impl PlannedFolio {
    pub fn is_huge(&self) -> bool {
        self.order == PMD_ORDER
    }

    /// Its entries in the range's table.
    pub fn entries(&self) -> Range<usize> {
        self.at..self.at + (1 << self.order)
    }

    pub fn pages(&self) -> Range<u64> {
        let first = pages_of(self.pmd).start + self.at as u64;
        first..first + (1 << self.order)
    }
}

/// How an attempt at one folio ends. `collapse_huge_page` in mm/khugepaged.c.
enum Attempt {
    Succeeds,
    /// Smaller folios may still be possible there.
    Fails,
    /// A folio of at least this size is mapped there. Its pages are left alone.
    IsLargeAlready,
    /// The rest of the range is left alone.
    EndsScan,
}

/// What the first look at a range finds.
#[derive(Default)]
struct Counted {
    absent: usize,
    guards: usize,
    shared: usize,
    referenced: usize,
    has_lazily_freed: bool,
}

impl Kernel {
    /// The folio orders that khugepaged may make in a mapping, as a bit set.
    pub(super) fn orders_by_scan(&self, vma: &Vma) -> u16 {
        if vma.is_unmodelled() || vma.flags.hugetlb {
            return 0;
        }
        let made = match self.config.rules.khugepaged_sizes {
            KhugepagedSizes::Pmd => 1 << PMD_ORDER,
            KhugepagedSizes::AllEnabled => u16::MAX,
        };
        self.orders(vma.flags.thp) & made
    }

    /// Whether khugepaged may make any folio in a mapping.
    #[inline]
    pub(super) fn may_be_scanned(&self, vma: &Vma) -> bool {
        self.orders_by_scan(vma) != 0
    }

    /// The folios that a scan makes of the range of this table, all of which is in one mapping, in ascending order.
    pub(super) fn planned_by_scan(&self, pmd: u64, vma: &Vma, table: &PteTable) -> Vec<PlannedFolio> {
        let orders = self.orders_by_scan(vma);
        let counted = self.count_by_scan(vma, table);
        let mut planned = Vec::new();
        if orders == 0 || !self.is_worth_a_try(&counted, orders) || !self.may_collapse(vma, table) {
            return planned;
        }
        let smallest = orders.trailing_zeros() as usize;
        let mut at = 0;
        while at < table.ptes.len() {
            let largest = if at == 0 { PMD_ORDER } else { at.trailing_zeros() as usize };
            let mut next = at + (1 << smallest);
            for order in (smallest..=largest).rev().filter(|order| orders & (1 << order) != 0) {
                let folio = PlannedFolio { pmd, at, order };
                match self.attempt(&folio, table, &counted) {
                    Attempt::Succeeds => planned.push(folio),
                    Attempt::IsLargeAlready => {}
                    Attempt::Fails => continue,
                    Attempt::EndsScan => return planned,
                }
                next = folio.entries().end;
                break;
            }
            at = next;
        }
        planned
    }

    fn count_by_scan(&self, vma: &Vma, table: &PteTable) -> Counted {
        let mut counted = Counted::default();
        for (index, pte) in table.ptes.iter().enumerate() {
            match pte.kind() {
                // For khugepaged a guard page is a page in swap, which it cannot bring in.
                PteKind::Guard => counted.guards += 1,
                PteKind::None | PteKind::Zero => counted.absent += 1,
                PteKind::Base | PteKind::FolioPage => {
                    counted.shared += usize::from(self.counts_as_shared(table, index));
                    counted.referenced += usize::from(!table.is_old(index));
                    counted.has_lazily_freed |= self.is_freed_for_scan(table, index);
                }
            }
        }
        counted.has_lazily_freed &= !vma.flags.other.is_droppable();
        counted
    }

    /// Whether a page was freed lazily and its entry is clean, whatever its folio is.
    fn is_freed_for_scan(&self, table: &PteTable, index: usize) -> bool {
        let pte = table.ptes[index];
        let is_lazy = match table.folio_page(index) {
            Some(page) => self.memory.get().folios.get(page.folio).lazy,
            None => pte.lazy(),
        };
        is_lazy && !pte.entry_dirty()
    }

    /// Whether the range passes the first look, which concerns all of it.
    fn is_worth_a_try(&self, counted: &Counted, orders: u16) -> bool {
        let limits = &self.config.khugepaged;
        let absent_max = if orders == 1 << PMD_ORDER { limits.max_ptes_none } else { PMD_PAGES - 1 };
        let is_lazy_allowed = self.config.rules.khugepaged_lazy_free == KhugepagedLazyFree::Collapsed;
        let referenced_min = if counted.guards > 0 { REFERENCED_MIN_WITH_SWAP } else { 1 };
        counted.absent as u64 <= absent_max
            && counted.shared as u64 <= limits.max_ptes_shared
            && counted.guards <= MAX_PTES_SWAP
            && counted.referenced >= referenced_min
            && (is_lazy_allowed || !counted.has_lazily_freed)
    }

    /// Tries one folio. The order of the checks matters, because only some failures leave smaller folios possible.
    fn attempt(&self, folio: &PlannedFolio, table: &PteTable, counted: &Counted) -> Attempt {
        let entries = folio.entries();
        let present = table.ptes[entries.clone()].iter().filter(|pte| pte.is_anon()).count();
        if (entries.len() - present) as u64 > self.absent_max(folio) {
            return Attempt::Fails;
        }
        if counted.guards > 0 && folio.is_huge() {
            return Attempt::EndsScan;
        }
        if table.ptes[entries.clone()].iter().any(|pte| pte.kind() == PteKind::Guard) {
            return Attempt::Fails;
        }
        if !folio.is_huge() {
            for index in entries.clone().filter(|&index| table.ptes[index].is_anon()) {
                if self.counts_as_shared(table, index) {
                    return Attempt::Fails;
                }
                let len = table.folio_page(index).map_or(1, |page| self.memory.get().folios.get(page.folio).len());
                if len >= entries.len() {
                    return Attempt::IsLargeAlready;
                }
            }
        }
        let is_referenced = entries.into_iter().any(|index| table.ptes[index].is_anon() && !table.is_old(index));
        if is_referenced { Attempt::Succeeds } else { Attempt::Fails }
    }

    /// How many pages of a folio may be absent. Below 2 MiB all but one, if `max_ptes_none` is 511; otherwise none.
    fn absent_max(&self, folio: &PlannedFolio) -> u64 {
        let limit = self.config.khugepaged.max_ptes_none;
        match limit {
            _ if folio.is_huge() => limit,
            limit if limit == PMD_PAGES - 1 => (1 << folio.order) - 1,
            _ => 0,
        }
    }

    /// Whether a present page counts as shared (R11c).
    fn counts_as_shared(&self, table: &PteTable, index: usize) -> bool {
        match table.folio_page(index) {
            Some(page) if self.config.rules.khugepaged_shared_test == KhugepagedSharedTest::Folio => {
                self.memory.get().folios.get(page.folio).is_shared()
            }
            _ => self.is_mapped_by_others(table, index),
        }
    }
}
