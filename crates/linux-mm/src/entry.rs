//! Page-table entries: one byte per 4 KiB page, one [`PmdEntry`] per 2 MiB range.

use std::mem;

use super::span::PMD_PAGES;

/// Entries of a PTE table.
const LEN: usize = PMD_PAGES as usize;

/// An access of the program to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store, with the content of the whole page afterwards. A folio split keeps a page only if it holds a non-zero
    /// byte (R10).
    Write(Content),
}

impl Access {
    pub(super) fn writes(self) -> bool {
        matches!(self, Self::Write(_))
    }

    /// Whether the access leaves a non-zero byte in a page of zeros.
    pub(super) fn leaves_nonzero(self) -> bool {
        self == Self::Write(Content::NonZero)
    }
}

/// The content of a page after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Only zeros.
    Zero,
    /// At least one non-zero byte.
    NonZero,
}

/// What the processor did with an access, by its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accessed {
    /// It raised a fault.
    Faults,
    /// It performed the access.
    Done,
    /// It performed a write, and made the entry dirty, which was clean.
    MarkedDirty,
}

impl Accessed {
    fn written(was_dirty: bool) -> Self {
        if was_dirty { Self::Done } else { Self::MarkedDirty }
    }
}

/// What a PTE maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PteKind {
    None,
    /// A guard page (R32): not none, but every access fails.
    Guard,
    /// The shared zero page.
    Zero,
    /// A single 4 KiB page.
    Base,
    /// One page of a larger folio.
    FolioPage,
}

/// One PTE and the state of the page it maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pte(u8);

impl Pte {
    const KIND: u8 = 0b11;
    const NONZERO: u8 = 1 << 2;
    /// For a page of a large folio: the entry is dirty (the folio has its own dirty bit). For a single page: either the
    /// entry or the page is dirty, but not both. It is the page if [`Self::PAGE_DIRTY`] is set, otherwise the entry.
    const DIRTY: u8 = 1 << 3;
    /// MADV_FREE was called on this single page. A large folio has its own such bit.
    const LAZY: u8 = 1 << 4;
    /// A write faults although the mapping allows it.
    const PROTECTED: u8 = 1 << 5;
    /// For a single page: its frame has a number, because another process maps it or once mapped it.
    const NUMBERED: u8 = 1 << 6;
    /// For a single page: the page is dirty. The entry is dirty too, unless [`Self::DIRTY`] is set.
    const PAGE_DIRTY: u8 = 1 << 7;
    /// For a protected page of a large folio: no other process ever mapped it, so the fault on write reuses the page.
    const EXCLUSIVE: u8 = 1 << 7;

    pub const NONE: Self = Self(0);
    pub const ZERO: Self = Self(1);
    /// Kind none with a bit that otherwise only mapped pages have.
    pub const GUARD: Self = Self(Self::NONZERO);

    /// A single page.
    pub fn base(nonzero: bool, dirty: bool, lazy: bool) -> Self {
        Self(2).with(Self::NONZERO, nonzero).with(Self::DIRTY, dirty).with(Self::LAZY, lazy)
    }

    /// A page of a larger folio.
    pub fn folio_page(nonzero: bool, dirty: bool, protected: bool) -> Self {
        Self(3).with(Self::NONZERO, nonzero).with(Self::DIRTY, dirty).with(Self::PROTECTED, protected)
    }

    #[inline]
    pub fn kind(self) -> PteKind {
        match self.0 & Self::KIND {
            0 if self == Self::GUARD => PteKind::Guard,
            0 => PteKind::None,
            1 => PteKind::Zero,
            2 => PteKind::Base,
            _ => PteKind::FolioPage,
        }
    }

    /// Whether the entry maps anonymous memory, which counts in Rss.
    pub fn is_anon(self) -> bool {
        self.0 & Self::KIND >= 2
    }

    pub fn nonzero(self) -> bool {
        self.0 & Self::NONZERO != 0
    }

    /// Whether the entry or, for a single page, the page is dirty.
    pub fn dirty(self) -> bool {
        self.0 & Self::DIRTY != 0 || self.page_dirty()
    }

    /// Whether a single page is dirty, regardless of its entry. MADV_FREE skips such a page while other processes map
    /// it.
    pub fn page_dirty(self) -> bool {
        self.kind() == PteKind::Base && self.0 & Self::PAGE_DIRTY != 0
    }

    pub fn lazy(self) -> bool {
        self.0 & Self::LAZY != 0
    }

    pub fn set_dirty(&mut self, dirty: bool) {
        if self.dirty() != dirty {
            *self = self.with(Self::DIRTY, dirty);
            if self.kind() == PteKind::Base {
                *self = self.with(Self::PAGE_DIRTY, false);
            }
        }
    }

    pub fn protected(self) -> bool {
        self.0 & Self::PROTECTED != 0
    }

    /// Records whether the page holds a non-zero byte. No effect on entries that map no anonymous memory.
    pub fn set_nonzero(&mut self, nonzero: bool) {
        if self.is_anon() {
            *self = self.with(Self::NONZERO, nonzero);
        }
    }

    pub fn set_protected(&mut self, protected: bool) {
        *self = self.with(Self::PROTECTED, protected);
        if self.kind() == PteKind::FolioPage {
            *self = self.with(Self::EXCLUSIVE, false);
        }
    }

    /// Write-protects the entry so that the next write faults and reuses the page. No effect if the entry is already
    /// write-protected.
    pub fn protect_exclusive(&mut self) {
        if !self.protected() {
            *self = self.with(Self::PROTECTED, true);
            if self.kind() == PteKind::FolioPage {
                *self = self.with(Self::EXCLUSIVE, true);
            }
        }
    }

    /// Whether this is a protected page of a large folio that no other process ever mapped.
    pub fn is_exclusive(self) -> bool {
        self.kind() == PteKind::FolioPage && self.0 & Self::EXCLUSIVE != 0
    }

    /// Whether the entry itself is dirty, not just its page.
    pub fn entry_dirty(self) -> bool {
        (self.0 & Self::DIRTY != 0) != self.page_dirty()
    }

    /// For a single page: makes the page dirty; a clean entry stays clean.
    pub fn dirty_page(&mut self) {
        if !self.dirty() {
            *self = self.with(Self::DIRTY, true).with(Self::PAGE_DIRTY, true);
        }
    }

    /// For a clean single page: makes the page dirty, and its entry too if `entry` is set.
    pub fn dirty_both(&mut self, entry: bool) {
        *self = self.with(Self::DIRTY, !entry).with(Self::PAGE_DIRTY, true);
    }

    /// Marks the page as lazily freed: clean, and dropped under memory pressure unless written first.
    pub fn free_lazily(&mut self) {
        *self = self.with(Self::DIRTY, false).with(Self::PAGE_DIRTY, false).with(Self::LAZY, true);
    }

    /// Performs an access if it needs no fault, updating the entry.
    #[inline]
    fn access(&mut self, access: Access) -> Accessed {
        match (self.kind(), access) {
            (PteKind::None | PteKind::Guard, _) | (PteKind::Zero, Access::Write(_)) => Accessed::Faults,
            (_, Access::Read) => Accessed::Done,
            _ if self.protected() => Accessed::Faults,
            (_, Access::Write(content)) => {
                let nonzero = content == Content::NonZero;
                let was_dirty = self.entry_dirty();
                // The entry becomes dirty. A page that was dirty stays dirty, so both may be dirty now.
                *self = self.with(Self::NONZERO, nonzero).with(Self::DIRTY, !self.page_dirty());
                Accessed::written(was_dirty)
            }
        }
    }

    #[inline]
    fn with(self, bit: u8, on: bool) -> Self {
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }
}

/// The folio, and the page within it, that a [`PteKind::FolioPage`] entry maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FolioPage {
    pub folio: u32,
    pub index: u32,
}

/// Why a 2 MiB range has a PTE table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableOrigin {
    /// A small page.
    SmallPage,
    /// A huge page whose entry was split.
    HugePage,
    /// A huge zero page whose entry was split.
    HugeZeroPage,
    /// A guard page.
    GuardPage,
    /// A page of a mapping that is not modelled.
    Unmodelled,
}

/// A PTE table: the entries of one 2 MiB range.
#[derive(Clone, Debug)]
pub(super) struct PteTable {
    pub origin: TableOrigin,
    pub ptes: [Pte; LEN],
    /// Valid for entries that map a page of a large folio, and for numbered entries (there `folio` is a frame number).
    /// Allocated on first use.
    folio_pages: Option<Box<[FolioPage; LEN]>>,
    /// The entries that are not young. Allocated on first use: most processes have none.
    old: Option<Box<PageSet>>,
}

impl PteTable {
    pub fn new(origin: TableOrigin, pte: Pte) -> Box<Self> {
        Box::new(Self { origin, ptes: [pte; LEN], folio_pages: None, old: None })
    }

    /// Stores an entry, which is young. Returns the entry that was there.
    pub fn set(&mut self, index: usize, pte: Pte) -> Pte {
        self.set_old(index, false);
        std::mem::replace(&mut self.ptes[index], pte)
    }

    /// Stores an entry, which is young, for the first of `len` pages that are absent. Returns their number.
    pub fn fill_absent(&mut self, index: usize, len: usize, pte: Pte) -> u64 {
        let absent = self.ptes[index..index + len].iter_mut().take_while(|old| old.kind() == PteKind::None);
        let filled = absent.map(|absent| *absent = pte).count();
        if self.old.is_some() {
            (index..index + filled).for_each(|index| self.set_old(index, false));
        }
        filled as u64
    }

    pub fn set_folio_page(&mut self, index: usize, pte: Pte, folio_page: FolioPage) {
        self.set(index, pte);
        self.number(index, folio_page);
    }

    /// Whether the page was not accessed since advice about its age or the fork that created the process (R11d).
    pub fn is_old(&self, index: usize) -> bool {
        self.old.as_ref().is_some_and(|old| old.holds(index))
    }

    /// Makes an entry old or young.
    pub fn set_old(&mut self, index: usize, old: bool) {
        if old || self.old.is_some() {
            self.old.get_or_insert_default().set(index, old);
        }
    }

    /// Performs an access if it needs no fault, updating the entry.
    #[inline]
    fn access(&mut self, index: usize, access: Access) -> Accessed {
        if self.old.is_some() {
            self.set_old(index, false);
        }
        self.ptes[index].access(access)
    }

    /// Gives the frame of a single page a number.
    pub fn set_frame(&mut self, index: usize, frame: u32) {
        self.ptes[index] = self.ptes[index].with(Pte::NUMBERED, true);
        self.number(index, FolioPage { folio: frame, index: 0 });
    }

    /// Removes the frame's number, because the frame now belongs to this process alone.
    pub fn clear_frame(&mut self, index: usize) {
        self.ptes[index] = self.ptes[index].with(Pte::NUMBERED, false);
    }

    /// The number of the frame mapped at `index`; `None` if no numbered frame is mapped there.
    pub fn frame(&self, index: usize) -> Option<u32> {
        let folio_pages = self.folio_pages.as_ref()?;
        (self.ptes[index].0 & Pte::NUMBERED != 0).then(|| folio_pages[index].folio)
    }

    fn number(&mut self, index: usize, folio_page: FolioPage) {
        self.folio_pages.get_or_insert_with(|| Box::new([FolioPage::default(); LEN]))[index] = folio_page;
    }

    /// The folio page mapped at `index`.
    pub fn folio_page(&self, index: usize) -> Option<FolioPage> {
        let folio_pages = self.folio_pages.as_ref()?;
        (self.ptes[index].kind() == PteKind::FolioPage).then(|| folio_pages[index])
    }

    /// Number of entries in `index..end`, counted from `index`, that map consecutive pages of one folio (the kernel's
    /// PTE batch). 0 if the entry at `index` maps no large folio.
    pub fn batch(&self, index: usize, end: usize) -> usize {
        let Some(first) = self.folio_page(index) else { return 0 };
        let continues = |at: usize| {
            let expected = FolioPage { folio: first.folio, index: first.index + (at - index) as u32 };
            self.folio_page(at) == Some(expected)
        };
        (index..end).take_while(|&at| continues(at)).count()
    }
}

/// Some of the pages of a 2 MiB range.
#[derive(Clone, Debug, Default)]
struct PageSet([u64; LEN / 64]);

impl PageSet {
    fn holds(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 != 0
    }

    fn set(&mut self, index: usize, is_in: bool) {
        let bit = 1 << (index % 64);
        if is_in {
            self.0[index / 64] |= bit;
        } else {
            self.0[index / 64] &= !bit;
        }
    }
}

/// A huge page mapped by one 2 MiB entry.
#[derive(Clone, Debug)]
pub(super) struct HugePage {
    /// The 4 KiB pages that hold a non-zero byte.
    nonzero: PageSet,
    /// The entry is dirty.
    pub dirty: bool,
    /// The page itself is dirty, regardless of its entry. A page in the folio store has this bit there instead.
    pub page_dirty: bool,
    /// MADV_FREE was called on the page.
    pub lazy: bool,
    /// A write faults although the mapping allows it.
    pub protected: bool,
    /// The entry is not young (R11d).
    pub old: bool,
    /// The page's number in the folio store. `None` if no other process ever mapped the page.
    pub folio: Option<u32>,
}

impl HugePage {
    /// A fresh, dirty huge page of zeros.
    pub fn new() -> Box<Self> {
        Box::new(Self {
            nonzero: PageSet::default(),
            dirty: true,
            page_dirty: false,
            lazy: false,
            protected: false,
            old: false,
            folio: None,
        })
    }

    pub fn is_nonzero(&self, index: usize) -> bool {
        self.nonzero.holds(index)
    }

    pub fn set_nonzero(&mut self, index: usize, nonzero: bool) {
        self.nonzero.set(index, nonzero);
    }

    /// Performs an access to page `index` if it needs no fault.
    #[inline]
    fn access(&mut self, index: usize, access: Access) -> Accessed {
        if access.writes() && self.protected {
            return Accessed::Faults;
        }
        self.old = false;
        let Access::Write(content) = access else { return Accessed::Done };
        self.set_nonzero(index, content == Content::NonZero);
        Accessed::written(mem::replace(&mut self.dirty, true))
    }
}

/// The PMD entry of one 2 MiB range.
#[derive(Clone, Debug, Default)]
pub(super) enum PmdEntry {
    /// pmd_none: no table, nothing mapped.
    #[default]
    None,
    Table(Box<PteTable>),
    Huge(Box<HugePage>),
    /// The shared huge zero page.
    HugeZero,
    Hugetlb {
        writable: bool,
        /// The page's frame number. `None` if no other process ever mapped the page.
        frame: Option<u32>,
    },
}

impl PmdEntry {
    /// Performs an access to page `index` of the range if it needs no fault, updating the entry.
    #[inline]
    pub fn access(&mut self, index: usize, access: Access) -> Accessed {
        let done = |needs_no_fault| if needs_no_fault { Accessed::Done } else { Accessed::Faults };
        match self {
            Self::None => Accessed::Faults,
            Self::Table(table) => table.access(index, access),
            Self::Huge(huge) => huge.access(index, access),
            Self::HugeZero => done(!access.writes()),
            Self::Hugetlb { writable, .. } => done(*writable || !access.writes()),
        }
    }

    /// Number of PTE tables that the entry accounts for: one in use, or one deposited under a huge page (R15). hugetlb
    /// deposits none.
    pub fn table_count(&self) -> u64 {
        match self {
            Self::Table(_) | Self::Huge(_) | Self::HugeZero => 1,
            Self::None | Self::Hugetlb { .. } => 0,
        }
    }
}
