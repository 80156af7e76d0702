//! mremap, which moves pages by moving page-table entries (R13d, R16a, R18, R20, R21, R24, R24a).

use std::ops::Range;

use super::Kernel;
use super::entry::{PmdEntry, PteKind};
use super::lock::Locked;
use super::outcome::Errno;
use super::rules::{DontunmapSource, MremapGrowMerge, MremapPageTables, MremapRange};
use super::span::{ADDRESS_SPACE_PAGES, PMD_PAGES, index_of, is_pmd_aligned, overlap, pages_of, pmd_of};
use super::vma::{Vma, VmaFlags};

/// What stays at the source of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapSource {
    /// Nothing.
    Unmapped,
    /// An empty mapping: `MREMAP_DONTUNMAP`.
    Kept,
}

/// A move of one mapping's page tables from `old` to `new`; `end` is the end of the source.
#[derive(Clone, Copy, Debug)]
struct TableMove {
    old: u64,
    new: u64,
    end: u64,
}

impl TableMove {
    /// Pages up to the next multiple of `reach` at the source or the target, or up to the end, whichever is first.
    fn extent(&self, reach: u64) -> u64 {
        let to_boundary = |page: u64| reach - page % reach;
        to_boundary(self.old).min(to_boundary(self.new)).min(self.end - self.old)
    }
}

impl Kernel {
    /// mremap of `length` pages to a fixed address (`MREMAP_FIXED | MREMAP_MAYMOVE`). The target range is unmapped
    /// first. From Linux 6.18 on, a range may span several mappings: they move one by one, and gaps between them stay
    /// gaps (R24). A mapping moved before an error stays moved.
    ///
    /// A hugetlb mapping moves in units of 2 MiB, to a 2 MiB boundary, and `MREMAP_DONTUNMAP` is refused. Moves of
    /// whole PMD tables (1 GiB) are counted like moves of their parts.
    ///
    /// EINVAL for an empty, invalid or overlapping range, or for hugetlb if the version cannot move it. EFAULT if
    /// nothing is mapped at `old`, or if the range ends beyond its mapping and the version moves only one mapping.
    /// ENOMEM near `max_map_count`.
    pub fn remap(&mut self, old: u64, length: u64, new: u64, source: RemapSource) -> Result<(), Errno> {
        let range = |start: u64| start.checked_add(length).map(|end| start..end).ok_or(Errno::Invalid);
        self.remap_to(range(old)?, range(new)?, source)
    }

    /// mremap as seen from its result: `old` became `new`. With `RemapSource::Unmapped` and equal starts it shrinks or
    /// grows in place, as [`Kernel::resize`] does. Otherwise it moves to a fixed address, as [`Kernel::remap`] does, and
    /// may shrink or grow: the end of a source that shrinks is unmapped first. A mapping that grows has its new length,
    /// and merges, before pages move. Locked growth is populated (R29a).
    ///
    /// Errors: those of [`Kernel::resize`] and [`Kernel::remap`]. EINVAL also for hugetlb that grows, and for
    /// `RemapSource::Kept` with two lengths. EFAULT if a source that grows leaves its mapping.
    pub fn mremap(&mut self, old: Range<u64>, new: Range<u64>, source: RemapSource) -> Result<(), Errno> {
        let length = |range: &Range<u64>| range.end.checked_sub(range.start).ok_or(Errno::Invalid);
        if source == RemapSource::Unmapped && old.start == new.start {
            return self.resize(old.start, length(&old)?, length(&new)?);
        }
        self.remap_to(old, new, source)
    }

    fn remap_to(&mut self, mut old: Range<u64>, mut new: Range<u64>, source: RemapSource) -> Result<(), Errno> {
        let is_valid = |range: &Range<u64>| !range.is_empty() && range.end <= ADDRESS_SPACE_PAGES;
        let is_resized = old.end.wrapping_sub(old.start) != new.end.wrapping_sub(new.start);
        if !is_valid(&old) || !is_valid(&new) || is_resized && source == RemapSource::Kept {
            return Err(Errno::Invalid);
        }
        if self.config.rules.mremap_range == MremapRange::OneVma {
            let vma = self.vmas.covering(old.start).ok_or(Errno::Fault)?;
            if vma.flags.hugetlb {
                (old, new) = whole_pmds(&old, &new)?;
            }
        }
        if overlap(&old, &new) {
            return Err(Errno::Invalid);
        }
        // The kernel keeps a margin for the splits that the move may need.
        if self.map_count() + 2 >= self.config.max_map_count.saturating_sub(3) {
            return Err(Errno::NoMemory);
        }
        if is_resized {
            return self.move_resized(&old, &new);
        }
        self.check_reach(&old, &new)?;
        let mut at = old.start;
        while at < old.end {
            let Some(vma) = self.vmas.at_or_after(at).filter(|vma| vma.start < old.end) else { break };
            let part = at.max(vma.start)..old.end.min(vma.end);
            at = part.end;
            let target = new.start + (part.start - old.start);
            self.move_part(part.clone(), target..target + (part.end - part.start), source)?;
        }
        Ok(())
    }

    /// Moves one mapping, or part of it, to a range of another length.
    fn move_resized(&mut self, old: &Range<u64>, new: &Range<u64>) -> Result<(), Errno> {
        let (mut old, mut new) = (old.clone(), new.clone());
        if self.config.rules.mremap_range == MremapRange::ManyVmas {
            let vma = self.vmas.covering(old.start).ok_or(Errno::Fault)?;
            if vma.flags.hugetlb {
                (old, new) = whole_pmds(&old, &new)?;
            }
            self.check_source(&old, &new)?;
        }
        self.unmap_range(&new)?;
        let moved = old.start..old.end.min(old.start + (new.end - new.start));
        if moved.end < old.end {
            self.unmap_range(&(moved.end..old.end))?;
        }
        self.check_source(&moved, &new)?;
        let grown = new.start + (moved.end - moved.start)..new.end;
        self.move_part(moved, new, RemapSource::Unmapped)?;
        let is_locked = self.vmas.covering(grown.start).is_some_and(|vma| vma.flags.locked != Locked::No);
        if !grown.is_empty() && is_locked {
            let _ = self.populate_locked(&grown);
        }
        Ok(())
    }

    /// EFAULT if the pages that move are not inside one mapping. EINVAL for hugetlb that grows, or that the version
    /// cannot move.
    fn check_source(&mut self, old: &Range<u64>, new: &Range<u64>) -> Result<(), Errno> {
        let (length, new_length) = (old.end - old.start, new.end - new.start);
        let vma = self.vmas.covering(old.start).ok_or(Errno::Fault)?;
        if vma.flags.hugetlb && (new_length > length || !self.config.rules.mremap_range.takes_hugetlb()) {
            return Err(Errno::Invalid);
        }
        if vma.end < old.start + length.min(new_length) { Err(Errno::Fault) } else { Ok(()) }
    }

    /// EFAULT if nothing is mapped at the start of `old`, or if the range ends beyond its mapping and the version moves
    /// only one mapping. Such a version has already unmapped the target (R24).
    fn check_reach(&mut self, old: &Range<u64>, target: &Range<u64>) -> Result<(), Errno> {
        let moves_one = self.config.rules.mremap_range != MremapRange::ManyVmas;
        if moves_one {
            self.unmap_range(target)?;
        }
        let first = self.vmas.covering(old.start).ok_or(Errno::Fault)?;
        if first.flags.hugetlb && !self.config.rules.mremap_range.takes_hugetlb() {
            return Err(Errno::Invalid);
        }
        if moves_one && first.end < old.end { Err(Errno::Fault) } else { Ok(()) }
    }

    /// mremap in place, without `MREMAP_MAYMOVE`: shrinks like munmap, or grows into free space after the mapping.
    /// hugetlb mappings cannot grow. Versions that support mremap of hugetlb round its lengths up to 2 MiB.
    ///
    /// EFAULT if nothing is mapped at `start`, or if a range that is to grow ends beyond its mapping. EINVAL if
    /// `new_length` is 0. ENOMEM if a range that is to grow ends before its mapping does, or if there is not enough
    /// free space (R24a).
    pub fn resize(&mut self, start: u64, old_length: u64, new_length: u64) -> Result<(), Errno> {
        if new_length == 0 {
            return Err(Errno::Invalid);
        }
        if self.config.rules.mremap_range == MremapRange::OneVmaLateChecks && new_length <= old_length {
            // These versions shrink without checking what is mapped.
            let end_of = |length: u64| start.checked_add(length).filter(|&end| end <= ADDRESS_SPACE_PAGES);
            let (Some(new_end), Some(old_end)) = (end_of(new_length), end_of(old_length)) else {
                return Err(Errno::Invalid);
            };
            return self.unmap_range(&(new_end..old_end));
        }
        let vma = self.vmas.covering(start).ok_or(Errno::Fault)?;
        let is_rounded = vma.flags.hugetlb && self.config.rules.mremap_range.takes_hugetlb();
        let granule = if is_rounded { PMD_PAGES } else { 1 };
        if !start.is_multiple_of(granule) {
            return Err(Errno::Invalid);
        }
        let end_of = |length: u64| {
            let end = start.checked_add(length.checked_next_multiple_of(granule)?)?;
            (end <= ADDRESS_SPACE_PAGES).then_some(end)
        };
        let (Some(old_end), Some(new_end)) = (end_of(old_length), end_of(new_length)) else {
            return Err(Errno::NoMemory);
        };
        if new_end == old_end {
            return Ok(());
        }
        if new_end < old_end {
            return self.unmap_range(&(new_end..old_end));
        }
        if old_length == 0 || vma.flags.hugetlb {
            return Err(Errno::Invalid);
        }
        if old_end > vma.end {
            return Err(Errno::Fault);
        }
        let room_ends = self.vmas.at_or_after(vma.end).map_or(u64::MAX, |next| next.start);
        if old_end != vma.end || new_end > room_ends {
            return Err(Errno::NoMemory);
        }
        match self.config.rules.mremap_grow_merge {
            MremapGrowMerge::AsMmap => {
                self.vmas.insert(Vma { start: old_end, end: new_end, ..vma });
            }
            MremapGrowMerge::Never => self.vmas.replace(Vma { end: new_end, ..vma }),
        }
        if vma.flags.locked != Locked::No {
            let _ = self.populate_locked(&(old_end..new_end));
        }
        Ok(())
    }

    /// Moves `part` of one mapping to the start of `target`, which may be longer.
    fn move_part(&mut self, part: Range<u64>, target: Range<u64>, source: RemapSource) -> Result<(), Errno> {
        if self.vmas.covering(part.start).is_some_and(|vma| vma.flags.hugetlb) {
            return self.move_hugetlb(part, target.start, source);
        }
        self.unmap_range(&target)?;
        let vma = self.vmas.covering(part.start).ok_or(Errno::Fault)?;
        if self.map_count() >= self.config.max_map_count.saturating_sub(3) {
            return Err(Errno::NoMemory);
        }
        let displacement = displacement(&vma, &part, target.start);
        let moved = Vma { start: target.start, end: target.end, displacement, ..vma };
        let stays_apart = source == RemapSource::Kept
            && self.config.rules.dontunmap_source == DontunmapSource::AsNew
            && vma.anon.is_none()
            && !vma.is_unmodelled()
            && (vma.end == moved.start || moved.end == vma.start);
        let merged = if stays_apart {
            self.vmas.replace(moved);
            moved
        } else {
            self.vmas.insert(moved)
        };
        // The copy may have merged with its source.
        let vma = self.vmas.covering(part.start).ok_or(Errno::Fault)?;
        self.move_page_tables(&vma, &merged, TableMove { old: part.start, new: target.start, end: part.end });
        match source {
            RemapSource::Unmapped => self.unmap_range(&part)?,
            RemapSource::Kept => self.keep_source(&vma, &merged, &part),
        }
        Ok(())
    }

    /// DONTUNMAP: a source mapping that was moved as a whole loses its anon_vma; a mapping moved in part keeps it
    /// (R20). The source stays charged in both cases.
    fn keep_source(&mut self, vma: &Vma, merged: &Vma, part: &Range<u64>) {
        // The whole mapping is unlocked, even if only part of it was moved (R29c).
        let unlocked = Vma { flags: VmaFlags { locked: Locked::No, ..vma.flags }, ..*vma };
        if unlocked != *vma {
            self.vmas.replace(unlocked);
        }
        if vma.pages() == *part && vma != merged {
            let displacement = match self.config.rules.dontunmap_source {
                DontunmapSource::Unchanged => vma.displacement,
                DontunmapSource::AsNew if vma.is_unmodelled() => vma.displacement,
                DontunmapSource::AsNew => 0,
            };
            self.vmas.replace(Vma { anon: None, displacement, ..unlocked });
        }
    }

    fn move_page_tables(&mut self, source: &Vma, target: &Vma, mut tables: TableMove) {
        if self.may_widen(source, target, &tables) {
            tables.old -= tables.old % PMD_PAGES;
            tables.new -= tables.new % PMD_PAGES;
        }
        while tables.old < tables.end {
            let extent = if self.tables.has_pmd_table(pmd_of(tables.old)) {
                tables.extent(PMD_PAGES)
            } else {
                // Nothing to move below this PUD entry; continue after it.
                tables.extent(PMD_PAGES * PMD_PAGES)
            };
            if self.tables.has_pmd_table(pmd_of(tables.old)) {
                self.move_entries(&tables, extent);
            }
            tables.old += extent;
            tables.new += extent;
        }
    }

    /// R21: a move takes a whole PTE table along under three conditions. Source and target start at the same offset
    /// inside their PMD ranges. Nothing is mapped below that offset in either range. The move reaches the end of the
    /// source's PMD range.
    fn may_widen(&self, source: &Vma, target: &Vma, tables: &TableMove) -> bool {
        let offset = tables.old % PMD_PAGES;
        let nothing_below =
            |vma: &Vma, at: u64| vma.start == at && self.vmas.overlapping(&(at - offset..at)).is_empty();
        self.config.rules.mremap_page_tables == MremapPageTables::WholeTable
            && offset != 0
            && offset == tables.new % PMD_PAGES
            && tables.end >= pages_of(pmd_of(tables.old)).end
            && nothing_below(source, tables.old)
            && nothing_below(target, tables.new)
    }

    /// Moves the entries of at most one PMD range. If a whole PMD range moves to a whole PMD range, its PMD entry
    /// moves. Otherwise pages move one by one. That splits a huge entry (R16a), and the target gets a PTE table even
    /// if the source's table is empty (R21).
    fn move_entries(&mut self, tables: &TableMove, extent: u64) {
        let (from, to) = (pmd_of(tables.old), pmd_of(tables.new));
        self.tables.make_pud_table(to);
        if matches!(self.tables.entry(from), PmdEntry::None) {
            return;
        }
        self.tables.make_upper_levels(to);
        if extent == PMD_PAGES && matches!(self.tables.entry(to), PmdEntry::None) {
            let entry = self.tables.take(from);
            match &entry {
                PmdEntry::Huge(_) => self.operations.mremap_huge_pages += 1,
                PmdEntry::Table(_) => self.operations.mremap_pte_tables += 1,
                _ => {}
            }
            self.update_folio_maps(&entry, to);
            self.tables.replace(to, entry);
            return;
        }
        self.split_entry(from);
        self.tables.table_for(to);
        for offset in 0..extent {
            self.move_page(tables.old + offset, tables.new + offset);
        }
    }

    /// Updates the addresses of the folios that a PTE table maps after its move to `pmd`.
    fn update_folio_maps(&mut self, entry: &PmdEntry, pmd: u64) {
        let PmdEntry::Table(table) = entry else { return };
        for (index, page) in pages_of(pmd).enumerate() {
            if let Some(folio_page) = table.folio_page(index) {
                self.memory.get().folios.map(folio_page.folio, self.space, folio_page.index, page);
            }
        }
    }

    fn move_page(&mut self, from: u64, to: u64) {
        let Some(table) = self.tables.table_mut(pmd_of(from)) else { return };
        let pte = table.ptes[index_of(from)];
        let (folio_page, frame) = (table.folio_page(index_of(from)), table.frame(index_of(from)));
        let is_old = table.is_old(index_of(from));
        if pte.kind() == PteKind::None {
            return;
        }
        self.operations.mremap_pages += u64::from(pte.is_anon());
        self.tables.set_pte(from, super::entry::Pte::NONE);
        if let Some(folio_page) = folio_page {
            self.memory.get().folios.map(folio_page.folio, self.space, folio_page.index, to);
            self.tables.set_folio_page(to, pte, folio_page);
        } else if let Some(frame) = frame {
            self.tables.set_numbered(to, pte, frame);
        } else {
            self.tables.set_pte(to, pte);
        }
        self.tables.set_old(to, is_old);
    }
}

/// Both ranges with their lengths rounded up to 2 MiB, for hugetlb (R13d). EINVAL unless both starts are aligned.
fn whole_pmds(old: &Range<u64>, new: &Range<u64>) -> Result<(Range<u64>, Range<u64>), Errno> {
    let whole = |range: &Range<u64>| range.start..range.end.next_multiple_of(PMD_PAGES);
    let is_aligned = is_pmd_aligned(old.start) && is_pmd_aligned(new.start);
    if is_aligned { Ok((whole(old), whole(new))) } else { Err(Errno::Invalid) }
}

/// The displacement of a moved part. A mapping with an anon_vma or of a file keeps its pgoff; otherwise pgoff follows the new
/// address (R18).
fn displacement(vma: &Vma, part: &Range<u64>, target: u64) -> i64 {
    if vma.anon.is_some() || vma.is_unmodelled() {
        vma.displacement + part.start.wrapping_sub(target) as i64
    } else {
        0
    }
}
