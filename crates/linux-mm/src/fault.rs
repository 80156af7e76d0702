//! Page faults: what one access, or one step of a populate, installs (R1, R3, R4).

use super::Kernel;
use super::config::PMD_ORDER;
use super::entry::{Access, Accessed, Content, FolioPage, HugePage, PmdEntry, Pte, PteKind};
use super::outcome::{Install, InstallKind, Signal};
use super::rules::HugeZeroWrite;
use super::span::{PMD_PAGES, index_of, pages_of, pmd_of};
use super::vma::Vma;

/// The cause of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultCause {
    /// An access of the program: a #PF exception.
    Trap,
    /// A populate inside the kernel: charged to the process, without an exception.
    Populate,
}

impl Vma {
    /// Whether the protection allows this access.
    pub(super) fn allows(&self, access: Access) -> bool {
        let protection = self.flags.protection;
        if access.writes() { protection.is_writable() } else { protection.is_readable() }
    }
}

impl Kernel {
    /// A program access to one page, by user code or by a system call that writes to a buffer.
    ///
    /// Returns the install it caused, or `None` if the page was present. In a mapping of [`Kernel::map_unmodelled`]
    /// every access returns `None` and has no effect: call [`Kernel::touch_unmodelled`] there. [`Content`] is the
    /// content of the whole page after the access: a write that leaves other non-zero bytes in place is not
    /// `Content::Zero`.
    ///
    /// # Errors The signal raised (in a system call: EFAULT) if there is no mapping, the protection forbids the access
    /// (R22), the page is a guard page (R32), or the hugetlb pool is empty (R13a). A failing access costs an exception
    /// and charges no fault.
    #[inline]
    pub fn touch(&mut self, page: u64, access: Access) -> Result<Option<Install>, Signal> {
        let allowed = self.vmas.covering_ref(page).is_some_and(|vma| vma.allows(access));
        if allowed && let Some(entry) = self.tables.entry_mut(pmd_of(page)) {
            let accessed = entry.access(index_of(page), access);
            if accessed != Accessed::Faults {
                self.operations.clean_entries_written += u64::from(accessed == Accessed::MarkedDirty);
                return Ok(None);
            }
        }
        self.trap(page, access)
    }

    /// A program access that causes a page-fault exception.
    #[cold]
    fn trap(&mut self, page: u64, access: Access) -> Result<Option<Install>, Signal> {
        match self.vmas.covering(page) {
            Some(vma) if vma.is_unmodelled() => Ok(None),
            Some(vma) if vma.allows(access) => self.fault(&vma, page, access, FaultCause::Trap),
            _ => {
                self.counters.traps += 1;
                Err(Signal::Segv)
            }
        }
    }

    /// Handles the fault of an access that `vma` allows, and counts its work.
    ///
    /// Returns `None` if the page was present and only lacked write permission.
    pub(super) fn fault(
        &mut self,
        vma: &Vma,
        page: u64,
        access: Access,
        cause: FaultCause,
    ) -> Result<Option<Install>, Signal> {
        let before = self.before_fault();
        let installed = self.handle_fault(vma, page, access, cause);
        if let Ok(Some(install)) = installed {
            self.request(0, Some(page));
            self.note_fault(install, cause, before);
        }
        installed
    }

    fn handle_fault(
        &mut self,
        vma: &Vma,
        page: u64,
        access: Access,
        cause: FaultCause,
    ) -> Result<Option<Install>, Signal> {
        self.counters.traps += u64::from(cause == FaultCause::Trap);
        let access = match cause {
            // A populate does not change contents.
            FaultCause::Populate if access.writes() => Access::Write(self.content_of(page)),
            _ => access,
        };
        let kind = if vma.flags.hugetlb {
            self.hugetlb_fault(vma, page, access)?
        } else {
            let is_unused = matches!(self.tables.entry(pmd_of(page)), PmdEntry::None);
            let gets_huge = is_unused && self.huge_fault_allowed(vma, page, access);
            match self.tables.entry(pmd_of(page)) {
                PmdEntry::HugeZero => self.write_huge_zero(vma, page, access),
                PmdEntry::None if gets_huge => self.huge_fault(vma, page, access),
                PmdEntry::Table(table) if table.ptes[index_of(page)].kind() == PteKind::Guard => {
                    return Err(Signal::Segv);
                }
                PmdEntry::Huge(_) => return Ok(self.write_protected_huge(page, access)),
                _ => {
                    let install = self.small_fault(vma, page, access);
                    self.counters.collapsible_pages += match install {
                        Some(install) if self.may_be_scanned(vma) => install.pages,
                        _ => 0,
                    };
                    return Ok(install);
                }
            }
        };
        Ok(Some(match kind {
            InstallKind::Cow => self.installed(kind, page, 1),
            _ => self.installed(kind, pages_of(pmd_of(page)).start, PMD_PAGES),
        }))
    }

    /// Sets the content of a page, for callers that know more about it than its accesses show. No effect on unmapped
    /// pages and zero pages.
    pub fn set_content(&mut self, page: u64, content: Content) {
        let holds_bytes = content == Content::NonZero;
        match self.tables.entry_mut(pmd_of(page)) {
            Some(PmdEntry::Huge(huge)) => huge.set_nonzero(index_of(page), holds_bytes),
            Some(PmdEntry::Table(table)) => table.ptes[index_of(page)].set_nonzero(holds_bytes),
            _ => {}
        }
    }

    /// The current content of the page.
    fn content_of(&self, page: u64) -> Content {
        let holds_bytes = match self.tables.entry(pmd_of(page)) {
            PmdEntry::Huge(huge) => huge.is_nonzero(index_of(page)),
            PmdEntry::Table(table) => table.ptes[index_of(page)].nonzero(),
            PmdEntry::None | PmdEntry::HugeZero | PmdEntry::Hugetlb { .. } => false,
        };
        if holds_bytes { Content::NonZero } else { Content::Zero }
    }

    pub(super) fn installed(&mut self, kind: InstallKind, first_page: u64, pages: u64) -> Install {
        self.counters.faults += 1;
        self.counters.count_installs(kind, 1);
        Install { kind, first_page, pages }
    }

    /// R1 (b) and (c): the mode allows 2 MiB here, and the mapping covers the whole PMD range.
    /// R35a: the memory limit has room for it, unless a read maps the huge zero page.
    fn huge_fault_allowed(&mut self, vma: &Vma, page: u64, access: Access) -> bool {
        let is_allowed = vma.covers_pmd_of(page) && self.may_be_huge(vma);
        let is_zero_page = !access.writes() && self.config.use_zero_page;
        is_allowed && (is_zero_page || self.may_charge_folio(vma, page, PMD_PAGES))
    }

    /// R1 (b): the memory is anonymous, and the mode allows 2 MiB in this mapping.
    pub(super) fn may_be_huge(&self, vma: &Vma) -> bool {
        !vma.is_unmodelled() && self.orders(vma.flags.thp) & (1 << PMD_ORDER) != 0
    }

    /// A first touch that may install a huge page. A read maps the huge zero page, unless that is disabled (R4c).
    fn huge_fault(&mut self, vma: &Vma, page: u64, access: Access) -> InstallKind {
        self.vmas.prepare_anon(vma);
        let pmd = pmd_of(page);
        if !access.writes() && self.config.use_zero_page {
            self.tables.replace(pmd, PmdEntry::HugeZero);
            return InstallKind::Zero;
        }
        self.install_huge_page(page, access);
        InstallKind::Thp
    }

    /// The first write to a huge zero page. The mapping's current advice has no effect (R4a).
    fn write_huge_zero(&mut self, vma: &Vma, page: u64, access: Access) -> InstallKind {
        let allocates = self.config.rules.huge_zero_write == HugeZeroWrite::AllocateHuge;
        if allocates && self.may_charge_folio(vma, page, PMD_PAGES) {
            self.install_huge_page(page, access);
            return InstallKind::Thp;
        }
        self.split_entry(pmd_of(page));
        self.install_base_page(page, access);
        InstallKind::Cow
    }

    fn install_huge_page(&mut self, page: u64, access: Access) {
        let mut huge = HugePage::new();
        huge.set_nonzero(index_of(page), access.leaves_nonzero());
        self.tables.replace(pmd_of(page), PmdEntry::Huge(huge));
    }

    pub(super) fn install_base_page(&mut self, page: u64, access: Access) {
        self.tables.set_pte(page, Pte::base(access.leaves_nonzero(), true, false));
    }

    /// A fault handled by a PTE. Reads, and writes to a zero page, never install more than 4 KiB (R3, R4).
    fn small_fault(&mut self, vma: &Vma, page: u64, access: Access) -> Option<Install> {
        if !access.writes() {
            self.tables.set_pte(page, Pte::ZERO);
            self.note_small(vma.flags.thp);
            return Some(self.installed(InstallKind::Zero, page, 1));
        }
        self.vmas.prepare_anon(vma);
        Some(match self.tables.pte(page).kind() {
            PteKind::Zero => {
                self.install_base_page(page, access);
                self.installed(InstallKind::Cow, page, 1)
            }
            PteKind::Base | PteKind::FolioPage => return self.write_protected_page(page, access),
            // `fault` has refused guard pages.
            PteKind::None | PteKind::Guard => match self.mthp_pages(vma, page) {
                Some(pages) => {
                    self.install_mthp(pages.clone(), page, access);
                    self.installed(InstallKind::Mthp, pages.start, pages.end - pages.start)
                }
                None => {
                    self.install_base_page(page, access);
                    self.note_small(vma.flags.thp);
                    self.installed(InstallKind::Base4k, page, 1)
                }
            },
        })
    }

    /// The pages of the largest enabled, aligned folio around `page` that is inside the mapping and has no page mapped
    /// yet (R3), and that fits in the memory limit (R35a).
    fn mthp_pages(&mut self, vma: &Vma, page: u64) -> Option<std::ops::Range<u64>> {
        let orders = self.orders(vma.flags.thp);
        (1..PMD_ORDER).rev().filter(|order| orders & (1 << order) != 0).find_map(|order| {
            let length = 1u64 << order;
            let start = page - page % length;
            let inside = vma.start <= start && start + length <= vma.end;
            let empty = || (start..start + length).all(|page| self.tables.pte(page).kind() == PteKind::None);
            let fits = inside && empty() && self.may_charge_folio(vma, page, length);
            fits.then(|| start..start + length)
        })
    }

    fn install_mthp(&mut self, pages: std::ops::Range<u64>, touched: u64, access: Access) {
        let folio = self.memory.get().folios.add(self.space, pages.clone(), false, false);
        for (index, page) in pages.enumerate() {
            let nonzero = page == touched && access.leaves_nonzero();
            self.tables.set_folio_page(
                page,
                Pte::folio_page(nonzero, true, false),
                FolioPage { folio, index: index as u32 },
            );
        }
    }
}
