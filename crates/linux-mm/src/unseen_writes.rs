//! Pages that the program can write without a fault. A recording of faults has no such writes.

use std::ops::Range;

use super::Kernel;
use super::entry::{Access, Content, PmdEntry};
use super::span::{clip, index_of, pmds_touching};

impl Kernel {
    /// The pages of `range` that are present, and that the program can write without a fault, as ranges in ascending order.
    /// Anonymous memory without hugetlb: what `MADV_FREE` can mark.
    pub fn writable_without_fault(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut push = |pages: Range<u64>| match found.last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ => found.push(pages),
        };
        let writable = |vma: &super::vma::Vma| {
            !vma.is_unmodelled() && !vma.flags.hugetlb && vma.allows(Access::Write(Content::NonZero))
        };
        for vma in self.vmas.overlapping(range).iter().filter(|vma| writable(vma)) {
            let part = vma.start.max(range.start)..vma.end.min(range.end);
            let pmds = pmds_touching(&part);
            let mut from = pmds.start;
            while let Some(pmd) = self.tables.next_present(from, pmds.end) {
                match self.tables.entry(pmd) {
                    PmdEntry::Huge(huge) if !huge.protected => push(clip(&part, pmd)),
                    PmdEntry::Table(table) => clip(&part, pmd)
                        .filter(|&page| {
                            let pte = table.ptes[index_of(page)];
                            pte.is_anon() && !pte.protected()
                        })
                        .for_each(|page| push(page..page + 1)),
                    _ => {}
                }
                from = pmd + 1;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use crate::{Access, Advice, Content, Kernel, KernelConfig, MapFlags, PMD_PAGES, Protection, ThpConfig, ThpMode};

    const WRITE: Access = Access::Write(Content::NonZero);

    fn kernel(thp: ThpMode) -> Kernel {
        let mut kernel = Kernel::new(KernelConfig { thp: ThpConfig::new(thp), ..KernelConfig::default() });
        assert!(kernel.map(0..2 * PMD_PAGES, MapFlags::READ_WRITE).result.is_ok());
        kernel
    }

    #[test]
    fn written_pages_are_found_and_writing_them_raises_no_fault() {
        let mut kernel = kernel(ThpMode::Never);
        (10..20).chain(600..700).for_each(|page| _ = kernel.touch(page, WRITE).expect("a page"));
        kernel.touch(30, Access::Read).expect("the zero page");
        assert_eq!(kernel.writable_without_fault(&(15..650)), [15..20, 600..650]);
        let traps = kernel.counters().traps;
        assert!(kernel.advise(0..1024, Advice::Free).result.is_ok());
        assert_eq!(kernel.lazy_free_pages(), 110);
        kernel.writable_without_fault(&(0..1024)).into_iter().flatten().for_each(|page| {
            kernel.touch(page, WRITE).expect("no fault");
        });
        assert_eq!((kernel.lazy_free_pages(), kernel.counters().traps), (0, traps));
    }

    #[test]
    fn pages_that_a_fork_protected_are_left_out_and_so_is_memory_without_permission() {
        let mut kernel = kernel(ThpMode::Always);
        kernel.touch(0, WRITE).expect("a huge page");
        kernel.touch(PMD_PAGES, WRITE).expect("a huge page");
        assert_eq!(kernel.writable_without_fault(&(5..700)), [Range { start: 5, end: 700 }]);
        kernel.protect(PMD_PAGES..2 * PMD_PAGES, Protection::Read).unwrap();
        assert_eq!(kernel.writable_without_fault(&(0..1024)), [Range { start: 0, end: PMD_PAGES }]);
        let _child = kernel.fork();
        assert!(kernel.writable_without_fault(&(0..1024)).is_empty());
    }
}
