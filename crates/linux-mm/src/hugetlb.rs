//! Pages of the hugetlb pool: reserved by mmap, allocated by the first touch (R13).

use std::ops::Range;

use super::Kernel;
use super::entry::{Access, PmdEntry};
use super::flush::Flush;
use super::outcome::{Errno, InstallKind, Signal};
use super::remap::RemapSource;
use super::rules::HugetlbDontneed;
use super::span::{PMD_PAGES, is_pmd_aligned, pmd_of, pmds_touching};
use super::vma::Vma;

/// The pool of 2 MiB pages.
#[derive(Clone, Debug)]
pub(super) struct HugetlbPool {
    /// Pages in the pool; `None` for unlimited.
    total: Option<u64>,
    /// Pages mapped somewhere.
    used: u64,
    /// Pages reserved by mappings that have not touched them.
    reserved: u64,
}

impl HugetlbPool {
    pub fn new(total: Option<u64>) -> Self {
        Self { total, used: 0, reserved: 0 }
    }

    fn has_unreserved(&self, pages: u64) -> bool {
        self.total.is_none_or(|total| total - self.used - self.reserved >= pages)
    }

    /// Reserves `pages` for a mapping. ENOMEM if the pool has too few free pages.
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

    /// Returns a page to the pool. If `stays_reserved`, the mapping's reservation is restored (HugePages_Rsvd rises
    /// again).
    fn give_back(&mut self, stays_reserved: bool) {
        self.used -= 1;
        self.reserved += u64::from(stays_reserved);
    }
}

impl Vma {
    /// Whether this hugetlb mapping reserves pool pages for the ranges that it has not touched.
    fn reserves(&self) -> bool {
        !self.flags.noreserve
    }

    /// Whether the mapping may be split at `at`: hugetlb mappings only at 2 MiB boundaries.
    pub(super) fn may_split_at(&self, at: u64) -> bool {
        !self.has_inside(at) || !self.flags.hugetlb || is_pmd_aligned(at)
    }
}

impl Kernel {
    /// A page of the pool that is there already. Left out if the configured pool has no page for it.
    pub(super) fn know_hugetlb(&mut self, vma: &Vma, pmd: u64) {
        if self.memory.get().pool.take(vma.reserves()).is_ok() {
            self.tables.replace(pmd, PmdEntry::Hugetlb { writable: true, frame: None });
        }
    }

    /// Handles a fault in a hugetlb mapping: allocates a page from the pool, or grants write permission for a present
    /// page, which was installed by a read or write-protected later.
    pub(super) fn hugetlb_fault(&mut self, vma: &Vma, page: u64, access: Access) -> Result<InstallKind, Signal> {
        let pmd = pmd_of(page);
        // The upper levels are allocated first, and stay even if the pool is empty.
        self.tables.make_upper_levels(pmd);
        let mut memory = self.memory.get();
        match self.tables.entry(pmd) {
            // A write to a page that another process maps too: the copy is not covered by a reservation.
            PmdEntry::Hugetlb { frame: Some(frame), .. } => {
                let copied = if memory.pool_frames.is_shared(*frame) { memory.pool.take(false) } else { Ok(()) };
                match copied {
                    Ok(()) => _ = memory.pool_frames.release(*frame),
                    // The process with the reservation keeps this page, and the kernel unmaps it from the children
                    // (`unmap_ref_private`). Their exit does not return it to the pool.
                    Err(_) if vma.reserves() => self.counters.pages_kept_from_children += 1,
                    Err(signal) => return Err(signal),
                }
            }
            PmdEntry::Hugetlb { frame: None, .. } => {}
            _ => memory.pool.take(vma.reserves() && !self.reservations_consumed.contains(&pmd))?,
        }
        drop(memory);
        self.tables.replace(pmd, PmdEntry::Hugetlb { writable: access.writes(), frame: None });
        Ok(InstallKind::Hugetlb)
    }

    /// MADV_DONTNEED: the length is silently rounded down to 2 MiB; the start must be aligned.
    pub(super) fn dontneed_hugetlb(&mut self, vma: &Vma, part: &Range<u64>) -> Result<(), Errno> {
        let rule = self.config.rules.hugetlb_dontneed;
        if rule == HugetlbDontneed::Einval || !is_pmd_aligned(part.start) {
            return Err(Errno::Invalid);
        }
        let renews = rule == HugetlbDontneed::ToReserve;
        for pmd in pmd_of(part.start)..part.end / PMD_PAGES {
            if let PmdEntry::Hugetlb { frame, .. } = self.tables.take(pmd) {
                self.operations.unmapped_hugetlb_pages += 1;
                let is_reserved = vma.reserves() && renews;
                let was_last = self.release_hugetlb_page(frame, is_reserved);
                if vma.reserves() && !(is_reserved && was_last) {
                    self.reservations_consumed.insert(pmd);
                }
            }
        }
        Ok(())
    }

    /// Unmaps a pool page from this process. Returns whether the page went back to the pool because no other process
    /// maps it.
    fn release_hugetlb_page(&mut self, frame: Option<u32>, stays_reserved: bool) -> bool {
        let mut memory = self.memory.get();
        let was_last = frame.is_none_or(|frame| memory.pool_frames.release(frame));
        if was_last {
            memory.pool.give_back(stays_reserved);
        }
        was_last
    }

    /// Removes part of a mapping: its pages and reservations go back to the pool.
    pub(super) fn release_hugetlb(&mut self, vma: &Vma, part: &Range<u64>) {
        for pmd in pmds_touching(part) {
            let is_consumed = self.reservations_consumed.remove(&pmd);
            if let PmdEntry::Hugetlb { frame, .. } = self.tables.take(pmd) {
                self.operations.unmapped_hugetlb_pages += 1;
                self.release_hugetlb_page(frame, false);
            } else if vma.reserves() && !is_consumed {
                self.memory.get().pool.reserved -= 1;
            }
        }
    }

    /// mremap of part of a hugetlb mapping: the length is rounded up to 2 MiB. EINVAL is detected before the target is
    /// unmapped.
    pub(super) fn move_hugetlb(&mut self, part: Range<u64>, target: u64, source: RemapSource) -> Result<(), Errno> {
        if source == RemapSource::Kept || !is_pmd_aligned(part.start) || !is_pmd_aligned(target) {
            return Err(Errno::Invalid);
        }
        let part = part.start..part.end.next_multiple_of(PMD_PAGES);
        self.unmap_range(&(target..target + (part.end - part.start)))?;
        let vma = self.vmas.covering(part.start).ok_or(Errno::Fault)?;
        if self.map_count() >= self.config.max_map_count.saturating_sub(3) {
            return Err(Errno::NoMemory);
        }
        self.vmas.insert(Vma { start: target, end: target + (part.end - part.start), ..vma });
        for pmd in pmds_touching(&part) {
            let to = pmd - pmd_of(part.start) + pmd_of(target);
            if self.reservations_consumed.remove(&pmd) {
                self.reservations_consumed.insert(to);
            }
            if let entry @ PmdEntry::Hugetlb { .. } = self.tables.take(pmd) {
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
        // What a move invalidates is not counted.
        self.tables.free_tables_in(&part, &gap, &mut Flush::default());
        Ok(())
    }

    /// mprotect removes write permission from every entry. The next write faults and restores it.
    pub(super) fn write_protect_hugetlb(&mut self, part: &Range<u64>) {
        for pmd in pmds_touching(part) {
            if let Some(PmdEntry::Hugetlb { writable, .. }) = self.tables.entry_mut(pmd) {
                *writable = false;
            }
        }
    }
}
