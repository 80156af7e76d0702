//! Stacks that grow downward (VM_GROWSDOWN): the main thread's, and mappings of `MAP_GROWSDOWN` (R33).

use std::ops::Range;

use super::Kernel;
use super::entry::{Pte, PteKind};
use super::lock::Locked;
use super::vma::Vma;

impl Kernel {
    /// A touch of `page`, below a stack, lets the mapping above begin there (`expand_downwards` in mm/vma.c). The kernel
    /// does that before it handles the fault, and exactly up to the page: a huge page or a larger folio needs its whole
    /// range inside the mapping by then. So a stack that is touched downward has small pages, and one that is touched
    /// upward after it has grown can have huge ones.
    ///
    /// No effect if `page` is mapped, or if nothing is mapped above. The guard gap and the limit of the stack's size are
    /// not checked.
    pub fn grow_stack(&mut self, page: u64) {
        let Some(vma) = self.vmas.at_or_after(page).filter(|vma| page < vma.start) else { return };
        self.vmas.take(vma.start);
        self.vmas.replace(Vma { start: page, ..vma });
        if vma.flags.locked != Locked::No {
            let _ = self.populate_locked(&(page..vma.start));
        }
    }

    /// Exec writes the arguments and the environment to these pages of the new stack. Its stack is temporary until then,
    /// and such a stack has small pages only (`vma_is_temporary_stack`). No fault is counted: the program has not begun.
    pub fn place_arguments(&mut self, pages: Range<u64>) {
        let Some(vma) = self.vmas.covering(pages.start) else { return };
        self.vmas.prepare_anon(&vma);
        for page in pages.start..pages.end.min(vma.end) {
            if self.tables.pte(page).kind() == PteKind::None {
                self.tables.set_pte(page, Pte::base(true, true, false));
            }
        }
        self.note_resident();
    }
}

#[cfg(test)]
mod tests {
    use crate::{Access, Content, Kernel, KernelConfig, MapFlags, PMD_PAGES, ThpConfig, ThpMode};

    const WRITE: Access = Access::Write(Content::NonZero);
    /// The stack of a program with fixed addresses ends one page below a PMD range's end.
    const TOP: u64 = 100 * PMD_PAGES - 1;

    /// A stack after exec, with one page of arguments.
    fn stack(thp: ThpConfig) -> Kernel {
        let mut kernel = Kernel::new(KernelConfig { thp, ..KernelConfig::default() });
        kernel.map(TOP - 33..TOP, MapFlags::READ_WRITE).result.unwrap();
        kernel.place_arguments(TOP - 1..TOP);
        assert_eq!((kernel.rss_pages(), kernel.counters().installs_total()), (1, 0));
        kernel
    }

    /// Touches of an array of 6 MiB, whose last page is the third of the stack. Returns the traps.
    fn traps(thp: ThpConfig, distances: impl Iterator<Item = u64>) -> u64 {
        let mut kernel = stack(thp);
        for distance in [2].into_iter().chain(distances) {
            kernel.grow_stack(TOP - distance);
            kernel.touch(TOP - distance, WRITE).unwrap();
        }
        kernel.counters().traps - 1
    }

    /// Measured on Linux 6.18 with `setarch -R` by an array on the stack: 513 and 1 535 of mode `always`.
    #[test]
    fn upward_touches_get_huge_pages_and_downward_touches_do_not() {
        let always = ThpConfig::new(ThpMode::Always);
        assert_eq!(traps(always, (3..=1537).rev()), 2 + 2 + 509);
        assert_eq!(traps(always, 3..=1537), 1535);
        assert_eq!(traps(ThpConfig::new(ThpMode::Madvise), (3..=1537).rev()), 1535);
    }
}
