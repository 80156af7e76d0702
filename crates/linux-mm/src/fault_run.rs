//! Many faults at once: of consecutive pages that all get a single page each.

use std::ops::Range;

use super::Kernel;
use super::config::PMD_ORDER;
use super::entry::{Access, Pte};
use super::fault::FaultCause;
use super::outcome::{Install, InstallKind, InstallRun};
use super::span::{PAGE_BYTES, pages_of, pmd_of};
use super::vma::Vma;

impl Kernel {
    /// Accesses the first pages of a range, as far as they are absent and each of them gets a page of its own. What is
    /// counted is as if [`Kernel::touch`] had accessed one after the other. `None` if that holds for no page: then
    /// [`Kernel::touch`] is needed for the first one.
    pub fn touch_absent(&mut self, pages: &Range<u64>, access: Access) -> Option<InstallRun> {
        let vma = self.vmas.covering(pages.start).filter(|vma| vma.allows(access))?;
        self.fault_absent(&vma, pages, access, FaultCause::Trap)
    }

    /// The same for pages of which the first is in `vma`, which allows the access.
    pub(super) fn fault_absent(
        &mut self,
        vma: &Vma,
        pages: &Range<u64>,
        access: Access,
        cause: FaultCause,
    ) -> Option<InstallRun> {
        if !access.writes() || !self.gets_single_pages(vma) {
            return None;
        }
        let first_page = pages.start;
        let end = pages.end.min(vma.end).min(pages_of(pmd_of(first_page)).end);
        let installs = self.tables.fill_absent(&(first_page..end), Pte::base(access.leaves_nonzero(), true, false));
        if installs == 0 {
            return None;
        }
        self.returned.reach(self.resident_bytes() - installs * PAGE_BYTES);
        self.vmas.prepare_anon(vma);
        self.counters.faults += installs;
        self.counters.count_installs(InstallKind::Base4k, installs);
        self.counters.collapsible_pages += if self.may_be_huge(vma) { installs } else { 0 };
        match cause {
            FaultCause::Trap => self.counters.traps += installs,
            FaultCause::Populate => self.operations.populated_pages += installs,
        }
        let install = Install { kind: InstallKind::Base4k, first_page, pages: 1 };
        for _ in 0..installs {
            if let Some(returned_bytes) = self.returned.take(PAGE_BYTES) {
                self.refaults.add(install, cause == FaultCause::Populate, returned_bytes);
            }
        }
        Some(InstallRun { kind: InstallKind::Base4k, first_page, pages: installs, installs })
    }

    /// Whether a write to an absent page with a PTE table installs one page, and whether nothing is compared or noted for
    /// each single one.
    fn gets_single_pages(&self, vma: &Vma) -> bool {
        !vma.flags.hugetlb
            && !vma.is_unmodelled()
            && self.orders(vma.flags.thp) & !(1 << PMD_ORDER) == 0
            && !self.forbids_huge(vma.flags.thp)
            && self.charge.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Advice, Content, KernelConfig, MapFlags, PMD_PAGES, ThpConfig, ThpMode};

    const START: u64 = 4 * PMD_PAGES;
    const WRITE: Access = Access::Write(Content::Zero);

    /// Accesses every page, many at once where that is possible.
    fn touch_all(kernel: &mut Kernel, pages: Range<u64>) {
        let mut page = pages.start;
        while page < pages.end {
            page += match kernel.touch_absent(&(page..pages.end), WRITE) {
                Some(run) => run.pages,
                None => {
                    kernel.touch(page, WRITE).expect("the pages are mapped");
                    1
                }
            };
        }
    }

    #[test]
    fn many_pages_at_once_are_as_one_after_the_other() {
        let area = START..START + 3 * PMD_PAGES;
        let modes = [ThpMode::Never, ThpMode::Madvise, ThpMode::Always];
        for (mode, advice) in
            modes.into_iter().flat_map(|mode| [None, Some(Advice::HugePage)].map(|advice| (mode, advice)))
        {
            let config = KernelConfig { thp: ThpConfig::new(mode), ..KernelConfig::default() };
            let mut kernels = [Kernel::new(config.clone()), Kernel::new(config)];
            for (number, kernel) in kernels.iter_mut().enumerate() {
                // A mapping of half a huge page at the end, where no huge page is possible.
                assert!(kernel.map(area.start..area.end - 100, MapFlags::READ_WRITE).result.is_ok());
                if let Some(advice) = advice {
                    assert!(kernel.advise(area.start..area.end - 100, advice).result.is_ok());
                }
                kernel.touch(START + 7, Access::Read).expect("the page is mapped");
                let parts = [START..START + 20, START + 10..area.end - 100, START + 3..START + 1000];
                for pages in parts {
                    if number == 0 {
                        touch_all(kernel, pages.clone());
                    } else {
                        pages.clone().for_each(|page| _ = kernel.touch(page, WRITE));
                    }
                    assert!(kernel.advise(pages.start + 2..pages.end - 1, Advice::DontNeed).result.is_ok());
                }
            }
            let [many, single] = kernels;
            assert_eq!(many.page_states(area.clone()), single.page_states(area.clone()));
            let counted = |kernel: &Kernel| (*kernel.counters(), *kernel.operations(), *kernel.refaults());
            assert_eq!(counted(&many), counted(&single), "{mode:?} {advice:?}");
            assert!(many.refaults().base_4k.total() > 0);
        }
    }
}
