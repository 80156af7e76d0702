//! Mappings whose pages are not modelled: files, shared memory, the main stack, special mappings.
//!
//! They matter for anonymous memory around them. They count as mappings (R14), and their PTE tables keep huge pages out of
//! the 2 MiB ranges that they share with anonymous memory (R1a, R21).

use std::ops::Range;

use super::Kernel;
use super::entry::TableOrigin;
use super::lock::Locked;
use super::outcome::Errno;
use super::span::pmd_of;
use super::vma::{Protection, Vma, VmaFlags};

impl Kernel {
    /// mmap at a fixed address (`MAP_FIXED`) of anything but private anonymous memory or hugetlb. The mapping is treated
    /// as a private file mapping with `PROT_READ`: all calls split, move and merge it like one. It never merges with
    /// another call's mapping. Its pages are not modelled and not counted. A forked child gets the mapping without page
    /// tables.
    ///
    /// Errors: EINVAL for an empty range, or (ENOMEM before Linux 6.12) if the range would split a hugetlb mapping inside
    /// a 2 MiB page. ENOMEM beyond the address space or `max_map_count` (R14).
    pub fn map_unmodelled(&mut self, range: Range<u64>) -> Result<(), Errno> {
        self.make_room(&range)?;
        let unmodelled = Some(self.vmas.new_file_id());
        let flags = VmaFlags { locked: self.lock_future, unmodelled, ..VmaFlags::new(Protection::Read) };
        let Range { start, end } = range;
        self.vmas.insert(Vma { start, end, flags, displacement: 0, anon: None, inherited: false, is_stack: false });
        if self.lock_future != Locked::No {
            let _ = self.populate_locked(&range);
        }
        Ok(())
    }

    /// A program access to a page of a [`Kernel::map_unmodelled`] mapping: makes the page's PTE table present, and counts
    /// nothing. Returns false, without effect, if no such mapping holds the page or if it allows no access.
    pub fn touch_unmodelled(&mut self, page: u64) -> bool {
        let is_accessible = |vma: &Vma| vma.is_unmodelled() && vma.flags.protection.is_readable();
        let touches = self.vmas.covering_ref(page).is_some_and(is_accessible);
        if touches {
            self.tables.table_because_of(TableOrigin::Unmodelled, pmd_of(page));
        }
        touches
    }
}

#[cfg(test)]
mod tests {
    use crate::{Access, Advice, Content, InstallKind, Kernel, KernelConfig, MapFlags, PMD_PAGES, RemapSource};

    const WRITE: Access = Access::Write(Content::NonZero);

    /// Three PMD ranges of advised memory; pages 600 to 700 are a file.
    fn kernel() -> Kernel {
        let mut kernel = Kernel::new(KernelConfig::default());
        kernel.map(0..3 * PMD_PAGES, MapFlags::READ_WRITE).result.unwrap();
        kernel.advise(0..3 * PMD_PAGES, Advice::HugePage).result.unwrap();
        kernel.map_unmodelled(600..700).unwrap();
        kernel
    }

    #[test]
    fn a_touched_file_keeps_a_huge_page_out_until_nothing_is_mapped_around_it() {
        let mut kernel = kernel();
        assert_eq!((kernel.vma_count(), kernel.page_table_bytes()), (3, 0));
        assert!(!kernel.touch_unmodelled(599), "anonymous memory");
        assert!(kernel.touch_unmodelled(650));
        assert_eq!((kernel.touch(650, WRITE), kernel.touch(650, Access::Read)), (Ok(None), Ok(None)));
        assert_eq!((kernel.rss_pages(), kernel.counters().faults, kernel.page_table_bytes()), (0, 0, 3 * 4096));
        let advised = |kernel: &mut Kernel| {
            kernel.map(600..700, MapFlags::READ_WRITE).result.unwrap();
            kernel.advise(600..700, Advice::HugePage).result.unwrap();
            kernel.touch(650, WRITE).unwrap().map(|install| install.kind)
        };
        assert_eq!(advised(&mut kernel), Some(InstallKind::Base4k), "the table stayed, because its neighbours did");
        kernel.advise(PMD_PAGES..2 * PMD_PAGES, Advice::DontNeed).result.unwrap();
        assert_eq!(kernel.touch(650, WRITE).unwrap().map(|install| install.kind), Some(InstallKind::Thp));
    }

    #[test]
    fn pieces_of_one_file_merge_again_and_a_child_has_no_tables_of_it() {
        let mut kernel = kernel();
        assert!(kernel.touch_unmodelled(650));
        kernel.protect(640..660, crate::Protection::None).unwrap();
        assert!(!kernel.touch_unmodelled(650), "no access");
        assert_eq!(kernel.vma_count(), 5);
        kernel.protect(640..660, crate::Protection::Read).unwrap();
        assert_eq!(kernel.vma_count(), 3);
        kernel.map_unmodelled(700..800).unwrap();
        assert_eq!(kernel.vma_count(), 4, "another file");
        let child = kernel.fork();
        assert_eq!((child.vma_count(), child.page_table_bytes()), (4, 0));
        kernel.remap(600, 50, 5000, RemapSource::Unmapped).unwrap();
        assert_eq!(kernel.vma_count(), 5);
        kernel.remap(5000, 50, 600, RemapSource::Unmapped).unwrap();
        assert_eq!(kernel.vma_count(), 4);
    }
}
