//! What a memory control group charges to a process and its children, and what happens at the group's limit (R35).
//!
//! Everything that is charged follows from state that the model has anyway: present pages, page tables, and the pages
//! of large folios that are no longer mapped. So nothing is counted here while memory is mapped and dropped. Only what
//! is requested is compared with the limit: before a huge page or another large folio, which a fault can do without,
//! and after everything else.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Kernel;
use super::config::{Defrag, ThpAdvice};
use super::entry::{PmdEntry, PteKind};
use super::span::{PAGE_BYTES, PMD_PAGES, index_of, pmd_of};
use super::vma::Vma;

/// Pages that the kernel reclaims at least at a time (`SWAP_CLUSTER_MAX`).
const RECLAIM_BATCH_PAGES: u64 = 32;

/// Bytes charged for a mapping: `vm_area_struct` of Linux 6.18 with the charge's own record (R35c).
const MAPPING_BYTES: u64 = 192 + 8;

/// Bytes charged in addition for a mapping with anonymous memory: `anon_vma` and `anon_vma_chain` with their records. A
/// mapping that was split shares its `anon_vma`, so this is at most 112 bytes too much.
const ANON_MAPPING_BYTES: u64 = 104 + 64 + 2 * 8;

/// The first scan takes this part of the list, as a power of two, and each further one twice as much (`DEF_PRIORITY`).
const RECLAIM_PRIORITY_FIRST: u32 = 12;

/// A request that exceeded the limit after everything reclaimable was reclaimed: the kernel kills a process of the
/// group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// The page whose fault requested the memory; `None` for a system call other than one that populates.
    pub page: Option<u64>,
    /// What would have been charged, in bytes.
    pub bytes: u64,
}

/// What a group met at its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPressure {
    /// Highest charge of the group, in bytes. A limit of this size is never reached.
    pub charged_bytes_peak: u64,
    /// Huge pages and other large folios that did not fit. The fault took smaller ones.
    pub folios_refused: u64,
    /// Bytes that `MADV_FREE` had marked and the kernel reclaimed.
    pub lazy_free_bytes_reclaimed: u64,
    /// Large folios that the kernel split because some of their pages were no longer mapped.
    pub folios_split: u64,
    /// The first request that could not be met. From there on, the model continues as if the limit was lifted.
    pub out_of_memory: Option<OutOfMemory>,
}

/// A group: all address spaces of a fork family.
#[derive(Clone, Debug)]
pub(super) struct Group {
    limit_pages: u64,
    /// Pages charged to the address spaces, those that several map more than once.
    charged_pages: u64,
    pressure: GroupPressure,
}

impl Group {
    /// A group with this limit; `None` for no limit.
    pub fn new(limit_bytes: Option<u64>) -> Self {
        let limit_pages = limit_bytes.unwrap_or(u64::MAX) / PAGE_BYTES;
        Self { limit_pages, charged_pages: 0, pressure: GroupPressure::default() }
    }
}

/// An address space in a group with a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupCharge {
    /// This address space's part of [`Group::charged_pages`].
    published_pages: u64,
    /// Pages charged to the process that are not modelled here.
    elsewhere_pages: u64,
    /// Pages that `MADV_FREE` marked, in this order; of a larger folio the first. They may have been written since.
    lazily_freed: VecDeque<u64>,
}

impl GroupCharge {
    /// That of a forked child, in the same group.
    pub fn forked(&self) -> Box<Self> {
        Box::new(Self { published_pages: 0, ..self.clone() })
    }
}

impl Kernel {
    /// What the group of this address space met at its limit. `None` without a limit
    /// ([`KernelConfig::memory_limit_bytes`](super::KernelConfig::memory_limit_bytes)).
    pub fn group_pressure(&self) -> Option<GroupPressure> {
        self.charge.as_ref().map(|_| self.memory.get().group.pressure)
    }

    /// Bytes charged to the group for this address space and those that it forked or was forked by. 0 without a limit.
    ///
    /// Charged are pages, once if several processes map them; all pages of a large folio, until it is freed or split;
    /// page tables; and the kernel's records of mappings. The zero pages and hugetlb are not charged.
    pub fn charged_bytes(&self) -> u64 {
        self.charge.as_ref().map_or(0, |charge| self.charged_pages(charge) * PAGE_BYTES)
    }

    /// Sets the bytes charged to the process that this model does not know, such as stacks that grow or written pages
    /// of private file mappings. No effect without a limit.
    pub fn charge_elsewhere(&mut self, bytes: u64) {
        if let Some(charge) = &mut self.charge {
            charge.elsewhere_pages = bytes.div_ceil(PAGE_BYTES);
        }
    }

    /// Compares with the limit what was charged since the last fault. Call it after each system call and after
    /// [`Kernel::charge_elsewhere`]: faults do it themselves.
    pub fn note_charge(&mut self) {
        self.request(0, None);
    }

    /// The pages charged to the group, those of this address space as they are now.
    fn charged_pages(&self, charge: &GroupCharge) -> u64 {
        let memory = self.memory.get();
        let own = self.own_pages(charge);
        let mapped = memory.group.charged_pages - charge.published_pages + own - memory.frames.extra_owners();
        mapped.saturating_add_signed(memory.folios.unmapped_pages())
    }

    /// Pages that this address space maps, shared or not, with its page tables and the kernel's records of its
    /// mappings.
    fn own_pages(&self, charge: &GroupCharge) -> u64 {
        let mapping_bytes = self.vmas.len() * MAPPING_BYTES + self.vmas.with_anon() * ANON_MAPPING_BYTES;
        let kernel_pages = self.tables.bytes() / PAGE_BYTES + mapping_bytes.div_ceil(PAGE_BYTES);
        self.tables.rss_pages + kernel_pages + charge.elsewhere_pages
    }

    /// Requests pages for this process, which takes place whether they fit or not. `page` is the faulting one.
    #[inline]
    pub(super) fn request(&mut self, pages: u64, page: Option<u64>) {
        if self.charge.is_some() && !self.fits(pages, true) {
            self.kill(pages, page);
        }
    }

    /// Whether a fault gets a folio of `pages` pages, with the page tables that do not exist yet.
    pub(super) fn may_charge_folio(&mut self, vma: &Vma, page: u64, pages: u64) -> bool {
        if self.charge.is_none() {
            return true;
        }
        let tables = self.tables.missing_tables(pmd_of(page), pages < PMD_PAGES);
        let fits = self.fits(tables + pages, self.reclaims_for_folios(vma));
        self.count_pressure(|pressure| pressure.folios_refused += u64::from(!fits));
        fits
    }

    /// Whether MADV_COLLAPSE gets a huge page, in addition to the pages that it replaces.
    pub(super) fn may_charge_collapse(&mut self) -> bool {
        self.charge.is_none() || self.fits(PMD_PAGES, true)
    }

    /// Whether the kernel reclaims memory so that a large folio fits (`vma_thp_gfp_mask`).
    fn reclaims_for_folios(&self, vma: &Vma) -> bool {
        let advised = vma.flags.thp == ThpAdvice::Huge;
        match self.config.defrag {
            Defrag::Always => true,
            Defrag::Defer | Defrag::Never => false,
            Defrag::DeferMadvise | Defrag::Madvise => advised,
        }
    }

    /// `MADV_FREE` marked a page, or the folio whose first page this is.
    pub(super) fn note_lazily_freed(&mut self, page: u64) {
        if let Some(charge) = &mut self.charge {
            charge.lazily_freed.push_back(page);
        }
    }

    /// Whether `pages` more fit in the limit, after memory was reclaimed if that is allowed. Updates the highest
    /// charge.
    fn fits(&mut self, pages: u64, reclaims: bool) -> bool {
        let needed = self.publish() + pages;
        let limit = self.memory.get().group.limit_pages;
        let mut excess = needed.saturating_sub(limit);
        if excess > 0 && reclaims {
            self.reclaim(excess);
            excess = (self.publish() + pages).saturating_sub(limit);
        }
        if excess > 0 {
            return false;
        }
        let bytes = (self.publish() + pages) * PAGE_BYTES;
        self.count_pressure(|pressure| pressure.charged_bytes_peak = pressure.charged_bytes_peak.max(bytes));
        true
    }

    /// Tells the other address spaces of the family what this one has. Returns the group's charge, in pages.
    fn publish(&mut self) -> u64 {
        let Some(charge) = &self.charge else { return 0 };
        let (group, own) = (self.charged_pages(charge), self.own_pages(charge));
        if let Some(charge) = &mut self.charge {
            let mut memory = self.memory.get();
            memory.group.charged_pages = memory.group.charged_pages - charge.published_pages + own;
            charge.published_pages = own;
        }
        group
    }

    /// The process exits.
    pub(super) fn uncharge(&mut self) {
        if let Some(charge) = self.charge.take() {
            self.memory.get().group.charged_pages -= charge.published_pages;
        }
    }

    fn kill(&mut self, pages: u64, page: Option<u64>) {
        let bytes = (self.publish() + pages) * PAGE_BYTES;
        let mut memory = self.memory.get();
        memory.group.pressure.out_of_memory.get_or_insert(OutOfMemory { page, bytes });
        memory.group.limit_pages = u64::MAX / PAGE_BYTES;
    }

    fn count_pressure(&self, count: impl FnOnce(&mut GroupPressure)) {
        count(&mut self.memory.get().group.pressure);
    }

    /// Frees at least `excess` pages if that many can be reclaimed without swap: pages that were freed lazily, the
    /// oldest first, and if they do not suffice, the unmapped pages of large folios, which the kernel splits.
    fn reclaim(&mut self, excess: u64) {
        let wanted = excess.max(RECLAIM_BATCH_PAGES);
        let (mut freed, mut priority) = (0, RECLAIM_PRIORITY_FIRST);
        while freed < wanted {
            let marked = self.charge.as_ref().map_or(0, |charge| charge.lazily_freed.len());
            for _ in 0..marked >> priority {
                let page = self.charge.as_mut().and_then(|charge| charge.lazily_freed.pop_front());
                freed += page.map_or(0, |page| self.reclaim_lazily_freed(page));
            }
            let Some(next) = priority.checked_sub(1) else { break };
            priority = next;
        }
        self.count_pressure(|pressure| pressure.lazy_free_bytes_reclaimed += freed * PAGE_BYTES);
        if freed < excess {
            let partial = self.memory.get().folios.partly_mapped_by(self.space);
            self.count_pressure(|pressure| pressure.folios_split += partial.len() as u64);
            partial.into_iter().for_each(|folio| self.split_folio(folio));
        }
        self.note_resident();
    }

    /// Drops a page if it is still lazily freed, with all pages of its folio. Returns the number of pages freed.
    fn reclaim_lazily_freed(&mut self, page: u64) -> u64 {
        let pmd = pmd_of(page);
        match self.tables.entry(pmd) {
            PmdEntry::Huge(huge) if huge.folio.is_none() && huge.lazy && !huge.dirty && !huge.page_dirty => {
                self.tables.take(pmd);
                PMD_PAGES
            }
            PmdEntry::Table(table) => {
                let pte = table.ptes[index_of(page)];
                let is_shared = self.is_mapped_by_others(table, index_of(page));
                match (pte.kind(), table.folio_page(index_of(page))) {
                    (PteKind::Base, _) if pte.lazy() && !pte.dirty() && !is_shared => {
                        self.drop_page(page);
                        1
                    }
                    (PteKind::FolioPage, Some(folio_page)) => self.reclaim_folio(folio_page.folio),
                    _ => 0,
                }
            }
            _ => 0,
        }
    }

    fn reclaim_folio(&mut self, folio: u32) -> u64 {
        let pages: Vec<u64> = {
            let memory = self.memory.get();
            let folio = memory.folios.get(folio);
            let is_dirty = |page: u64| self.tables.pte(page).dirty();
            if !folio.lazy || folio.dirty || folio.is_shared() || folio.mapped_pages(self.space).any(is_dirty) {
                return 0;
            }
            folio.mapped_pages(self.space).collect()
        };
        pages.iter().for_each(|&page| self.drop_page(page));
        pages.len() as u64
    }
}

/// Finds the least limit at which a program survives, and at which all larger ones that were tried were survived, too.
/// `survives` answers for several limits at a time, in pages and in ascending order. The program must not survive
/// `killed`, and must survive `survived`.
///
/// Without large folios, whether a program survives is monotone in the limit, so the answer is exact. With them it may
/// not be: a huge page that fits leaves less room for what comes later.
///
/// # Errors
/// The first error of `survives`.
pub fn least_limit<E>(
    killed: u64,
    survived: u64,
    at_a_time: u64,
    mut survives: impl FnMut(&[u64]) -> Result<Vec<bool>, E>,
) -> Result<u64, E> {
    let (mut killed, mut survived) = (killed, survived);
    if survived - killed > 1 && survives(&[survived - 1])? == [false] {
        return Ok(survived);
    }
    while survived - killed > 1 {
        let steps = (survived - killed).min(at_a_time + 1);
        let limits: Vec<u64> = (1..steps).map(|step| killed + (survived - killed) * step / steps).collect();
        let answers = survives(&limits)?;
        let above = answers.iter().rposition(|&survives| !survives).map_or(0, |last| last + 1);
        survived = limits.get(above).copied().unwrap_or(survived);
        killed = above.checked_sub(1).map_or(killed, |last| limits[last]);
    }
    Ok(survived)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write;
    use crate::{Advice, Errno, KernelConfig, MapFlags, ThpConfig, ThpMode};

    const START: u64 = 4 * PMD_PAGES;

    /// A mapping of 4 MiB with huge pages under a limit in pages; one page is its record, two are upper page tables.
    fn process(limit_pages: u64, thp: ThpMode) -> Kernel {
        let config = KernelConfig {
            thp: ThpConfig::new(thp),
            memory_limit_bytes: Some(limit_pages * PAGE_BYTES),
            defrag: Defrag::Always,
            ..KernelConfig::default()
        };
        let mut kernel = Kernel::new(config);
        assert!(kernel.map(START..START + 2 * PMD_PAGES, MapFlags::READ_WRITE).result.is_ok());
        kernel
    }

    fn pressure(kernel: &Kernel) -> GroupPressure {
        kernel.group_pressure().expect("there is a limit")
    }

    #[test]
    fn the_page_after_the_last_that_fits_is_fatal() {
        let mut kernel = process(104, ThpMode::Never);
        write(&mut kernel, START..START + 100);
        assert_eq!((pressure(&kernel).out_of_memory, kernel.charged_bytes()), (None, 104 * PAGE_BYTES));
        write(&mut kernel, [START + 100, START + 101]);
        let killed = OutOfMemory { page: Some(START + 100), bytes: 105 * PAGE_BYTES };
        assert_eq!(pressure(&kernel).out_of_memory, Some(killed), "the first one counts");
    }

    #[test]
    fn a_huge_page_that_does_not_fit_is_replaced_by_single_pages() {
        for (limit_pages, huge, refused) in [(516, 1, 0), (514, 0, 1)] {
            let mut kernel = process(limit_pages, ThpMode::Always);
            write(&mut kernel, [START]);
            assert_eq!((kernel.huge_pages(), pressure(&kernel).folios_refused), (huge, refused), "{limit_pages}");
            assert_eq!(pressure(&kernel).out_of_memory, None);
        }
        let mut kernel = process(515, ThpMode::Always);
        write(&mut kernel, [START]);
        assert!(pressure(&kernel).out_of_memory.is_some(), "the table that is deposited with a huge page does not fit");
    }

    #[test]
    fn lazily_freed_pages_are_reclaimed_before_a_kill() {
        let mut kernel = process(104, ThpMode::Never);
        write(&mut kernel, START..START + 100);
        assert!(kernel.advise(START..START + 90, Advice::Free).result.is_ok());
        write(&mut kernel, START..START + 10);
        write(&mut kernel, START + 100..START + 180);
        assert_eq!((pressure(&kernel).out_of_memory, kernel.lazy_free_pages()), (None, 0), "10 were written again");
        assert_eq!(pressure(&kernel).lazy_free_bytes_reclaimed, 80 * PAGE_BYTES);
        write(&mut kernel, [START + 180]);
        assert!(pressure(&kernel).out_of_memory.is_some());
    }

    #[test]
    fn a_large_folio_stays_charged_until_it_is_split() {
        let mut kernel = process(516, ThpMode::Always);
        write(&mut kernel, START..START + PMD_PAGES);
        assert!(kernel.advise(START..START + 300, Advice::DontNeed).result.is_ok());
        assert_eq!((kernel.rss_pages(), kernel.charged_bytes()), (212, 516 * PAGE_BYTES));
        write(&mut kernel, [START]);
        assert_eq!((pressure(&kernel).folios_split, kernel.charged_bytes()), (1, 217 * PAGE_BYTES));
        assert_eq!(pressure(&kernel).out_of_memory, None);
    }

    #[test]
    fn shared_pages_are_charged_once_and_a_copy_before_what_it_replaces() {
        let mut kernel = process(1000, ThpMode::Never);
        write(&mut kernel, START..START + 100);
        let before = kernel.charged_bytes() / PAGE_BYTES;
        let child = kernel.fork();
        assert_eq!(kernel.charged_bytes() / PAGE_BYTES, before + 4, "three tables and the record of a mapping");
        write(&mut kernel, START..START + 10);
        assert_eq!(kernel.charged_bytes() / PAGE_BYTES, before + 14);
        drop(child);
        assert_eq!(kernel.charged_bytes() / PAGE_BYTES, before);
    }

    #[test]
    fn a_collapse_needs_room_for_both() {
        for (limit_pages, result) in [(616, Ok(())), (614, Err(Errno::Busy))] {
            let mut kernel = process(limit_pages, ThpMode::Never);
            write(&mut kernel, START..START + 100);
            assert_eq!(kernel.advise(START..START + PMD_PAGES, Advice::Collapse).result, result);
            assert_eq!(pressure(&kernel).out_of_memory, None);
        }
    }

    #[test]
    fn the_least_limit_is_above_every_limit_that_kills() {
        for at_a_time in [1, 4, 16] {
            let survives = |limit: u64| limit >= 700 || (301..=511).contains(&limit);
            let answer = |limits: &[u64]| Ok::<_, ()>(limits.iter().map(|&limit| survives(limit)).collect());
            let least = least_limit(0, 1000, at_a_time, answer).unwrap();
            assert_eq!(least, if at_a_time == 1 { 301 } else { 700 });
        }
        for limit in [1, 2, 999, 1000] {
            assert_eq!(
                least_limit(0, 1000, 4, |limits| Ok::<_, ()>(limits.iter().map(|&each| each >= limit).collect())),
                Ok(limit)
            );
        }
    }
}
