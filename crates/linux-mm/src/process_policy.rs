//! Process-wide settings: `prctl(PR_SET_THP_DISABLE)` (R28).

use serde::{Deserialize, Serialize};

use super::Kernel;
use super::config::ThpAdvice;
use super::vma::Vma;

/// `PR_SET_THP_DISABLE`, inherited by forked children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThpDisable {
    /// Not set: the THP modes decide.
    #[default]
    Off,
    /// Faults and collapses create no large folios.
    All,
    /// Only mappings advised with [`Advice::HugePage`](super::Advice::HugePage) get large folios (Linux 6.18).
    /// [`Advice::Collapse`](super::Advice::Collapse) ignores this value.
    ExceptAdvised,
}

impl Kernel {
    /// prctl(PR_SET_THP_DISABLE): applies to later faults. Existing huge pages stay, and a write to an existing huge
    /// zero page still installs a huge page.
    pub fn disable_thp(&mut self, disable: ThpDisable) {
        let forbidden: Vec<Vma> = self.vmas.all().into_iter().filter(|vma| !self.may_be_scanned(vma)).collect();
        self.thp_disable = disable;
        let allowed = forbidden.iter().filter(|vma| self.may_be_scanned(vma));
        let pages: u64 = allowed.map(|vma| self.small_pages(&vma.pages())).sum();
        self.counters.collapsible_pages += pages;
    }

    /// Installs of single pages that only [`Kernel::disable_thp`] kept small: the THP modes allowed larger folios.
    pub fn installs_thp_denied(&self) -> u64 {
        self.installs_thp_denied
    }

    /// The folio orders that a fault may install in a mapping with this advice, as a bit set.
    #[inline]
    pub(super) fn orders(&self, advice: ThpAdvice) -> u16 {
        if self.forbids_huge(advice) { 0 } else { self.orders.with(advice) }
    }

    pub(super) fn forbids_huge(&self, advice: ThpAdvice) -> bool {
        match self.thp_disable {
            ThpDisable::Off => false,
            ThpDisable::All => true,
            ThpDisable::ExceptAdvised => advice != ThpAdvice::Huge,
        }
    }

    /// Counts an install of a single page in a mapping with this advice.
    pub(super) fn note_small(&mut self, advice: ThpAdvice) {
        if self.forbids_huge(advice) && self.orders.with(advice) != 0 {
            self.installs_thp_denied += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Access, Advice, Content, Errno, InstallKind, Kernel, KernelConfig, MapFlags, ThpConfig, ThpDisable, ThpMode,
    };

    const WRITE: Access = Access::Write(Content::NonZero);

    /// Two PMD ranges, the second one advised.
    fn kernel(mode: ThpMode, disable: ThpDisable) -> Kernel {
        let mut kernel = Kernel::new(KernelConfig { thp: ThpConfig::new(mode), ..KernelConfig::default() });
        kernel.map(0..1024, MapFlags::READ_WRITE).result.unwrap();
        kernel.advise(512..1024, Advice::HugePage).result.unwrap();
        kernel.disable_thp(disable);
        kernel
    }

    #[test]
    fn the_process_setting_restricts_the_thp_modes() {
        use InstallKind::{Base4k, Thp};
        for (mode, disable, expected, kept_small) in [
            (ThpMode::Always, ThpDisable::Off, [Thp, Thp], 0),
            (ThpMode::Always, ThpDisable::All, [Base4k, Base4k], 2),
            (ThpMode::Always, ThpDisable::ExceptAdvised, [Base4k, Thp], 1),
            (ThpMode::Madvise, ThpDisable::All, [Base4k, Base4k], 1),
            (ThpMode::Madvise, ThpDisable::ExceptAdvised, [Base4k, Thp], 0),
            (ThpMode::Never, ThpDisable::All, [Base4k, Base4k], 0),
        ] {
            let mut kernel = kernel(mode, disable);
            let kinds = [3, 515].map(|page| kernel.touch(page, WRITE).unwrap().unwrap().kind);
            assert_eq!(kinds, expected, "{mode:?} {disable:?}");
            assert_eq!(kernel.installs_thp_denied(), kept_small, "{mode:?} {disable:?}");
            assert_eq!(kernel.fork().thp_disable, disable, "a child inherits it");
        }
    }

    #[test]
    fn existing_huge_pages_stay() {
        let mut kernel = kernel(ThpMode::Madvise, ThpDisable::Off);
        assert_eq!(kernel.touch(515, Access::Read).unwrap().unwrap().kind, InstallKind::Zero);
        kernel.disable_thp(ThpDisable::All);
        assert_eq!(kernel.touch(515, WRITE).unwrap().unwrap().kind, InstallKind::Thp, "replaces the huge zero page");
        kernel.disable_thp(ThpDisable::Off);
        kernel.advise(512..1024, Advice::DontNeed).result.unwrap();
        assert_eq!(kernel.touch(515, WRITE).unwrap().unwrap().kind, InstallKind::Thp, "allowed again");
    }

    #[test]
    fn a_collapse_checks_the_process_setting() {
        for (disable, expected) in
            [(ThpDisable::All, Err(Errno::Invalid)), (ThpDisable::ExceptAdvised, Ok(())), (ThpDisable::Off, Ok(()))]
        {
            let mut kernel = kernel(ThpMode::Never, disable);
            kernel.touch(3, WRITE).unwrap();
            assert_eq!(kernel.advise(0..512, Advice::Collapse).result, expected, "{disable:?}");
        }
    }
}
