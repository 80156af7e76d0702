//! Large folios that are mapped page by page or by more than one process: mTHPs, and huge pages that were split or
//! shared by fork.
//!
//! A huge page mapped by one 2 MiB entry of one process is a [`HugePage`](super::entry::HugePage) and not in this
//! store.

use std::collections::HashMap;
use std::ops::Range;

use super::entry::FolioPage;
use super::span::{PMD_PAGES, index_of, pmd_of};

/// Stands for the address of a folio page that an owner does not map.
const UNMAPPED: u64 = u64::MAX;

/// Identifies an address space in a fork family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpaceId(pub u32);

impl SpaceId {
    /// Stands for processes that are not observed. The ids of address spaces are greater.
    const UNOBSERVED: Self = Self(0);
}

/// Where an address space maps a folio.
#[derive(Clone, Debug)]
enum Mapped {
    /// By one PMD entry.
    Whole,
    /// Page by page: where each page of the folio is mapped, and how many of them are mapped.
    Pages { at: Box<[u64]>, count: usize },
}

/// One address space that maps a folio.
#[derive(Clone, Debug)]
struct Owner {
    space: SpaceId,
    mapped: Mapped,
}

/// A folio of more than one page.
#[derive(Clone, Debug)]
pub(super) struct Folio {
    /// Pages in the folio, mapped or not.
    len: usize,
    owners: Vec<Owner>,
    /// The folio itself is dirty, regardless of its entries.
    pub dirty: bool,
    /// MADV_FREE was called on the whole folio.
    pub lazy: bool,
}

impl Folio {
    /// Pages in the folio, mapped or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether more than one process maps pages of the folio.
    pub fn is_shared(&self) -> bool {
        self.owners.len() > 1
    }

    /// Whether a process other than `space` maps page `index` of the folio.
    pub fn is_mapped_by_others(&self, space: SpaceId, index: u32) -> bool {
        self.owners.iter().filter(|owner| owner.space != space).any(|owner| match &owner.mapped {
            Mapped::Whole => true,
            Mapped::Pages { at, .. } => at[index as usize] != UNMAPPED,
        })
    }

    /// Whether a single page of the folio is still mapped, by a single process.
    pub fn is_last_page(&self) -> bool {
        matches!(&self.owners[..], [Owner { mapped: Mapped::Pages { count: 1, .. }, .. }])
    }

    /// Whether exactly one process maps the folio's first page.
    pub fn maps_first_page_once(&self) -> bool {
        let maps_first = |owner: &&Owner| match &owner.mapped {
            Mapped::Whole => true,
            Mapped::Pages { at, .. } => at.first() != Some(&UNMAPPED),
        };
        self.owners.iter().filter(maps_first).count() == 1
    }

    /// The page numbers at which a process maps the folio page by page. Empty if it maps the folio by one PMD entry.
    pub fn mapped_pages(&self, space: SpaceId) -> impl Iterator<Item = u64> + '_ {
        let pages = self.owners.iter().find(|owner| owner.space == space).map(|owner| &owner.mapped);
        let at: &[u64] = match pages {
            Some(Mapped::Pages { at, .. }) => at,
            Some(Mapped::Whole) | None => &[],
        };
        at.iter().copied().filter(|&page| page != UNMAPPED)
    }

    /// Pages that the owners map, those that several map more than once.
    fn owner_pages(&self) -> u64 {
        let pages = self.owners.iter().map(|owner| match &owner.mapped {
            Mapped::Whole => self.len,
            Mapped::Pages { count, .. } => *count,
        });
        pages.sum::<usize>() as u64
    }

    fn mapped(&mut self, space: SpaceId) -> Option<&mut Mapped> {
        self.owners.iter_mut().find(|owner| owner.space == space).map(|owner| &mut owner.mapped)
    }
}

/// The folio store. Freed ids are reused.
#[derive(Clone, Debug, Default)]
pub(super) struct Folios {
    slots: Vec<Option<Folio>>,
    free: Vec<u32>,
    /// Pages in all folios.
    pages: u64,
    /// Pages that the owners of all folios map.
    mapped_pages: u64,
    /// Huge pages that were shared before they were observed, by PMD range: processes that fork each other have a page at the
    /// same address. `true` while an owner stands for the processes that are not observed.
    known: HashMap<u64, (u32, bool)>,
    /// The PMD ranges of `known` by folio.
    known_pmds: HashMap<u32, u64>,
}

impl Folios {
    /// Adds a folio mapped at `pages`.
    pub fn add(&mut self, space: SpaceId, pages: Range<u64>, dirty: bool, lazy: bool) -> u32 {
        let at: Box<[u64]> = pages.collect();
        let (len, count) = (at.len(), at.len());
        self.put(Folio { len, owners: vec![Owner { space, mapped: Mapped::Pages { at, count } }], dirty, lazy })
    }

    /// Adds a folio of `len` pages that two processes map by one PMD entry each.
    pub fn add_whole(&mut self, spaces: [SpaceId; 2], len: usize, dirty: bool, lazy: bool) -> u32 {
        let owners = spaces.map(|space| Owner { space, mapped: Mapped::Whole });
        self.put(Folio { len, owners: owners.into(), dirty, lazy })
    }

    /// Records that a process maps the huge page of `pmd` by one PMD entry, and that the page was shared before it was
    /// observed. The first process shares it with an owner outside the family, whose place the second one takes.
    pub fn share_known(&mut self, pmd: u64, space: SpaceId) -> u32 {
        let (id, is_second) = self.known(pmd, space);
        self.map_whole(id, space);
        self.replace_stand_in(pmd, id, is_second);
        id
    }

    /// The same for one page of the huge page, mapped by a PTE.
    pub fn share_known_page(&mut self, page: u64, space: SpaceId) -> FolioPage {
        let (id, is_second) = self.known(pmd_of(page), space);
        let index = index_of(page) as u32;
        self.map(id, space, index, page);
        self.replace_stand_in(pmd_of(page), id, is_second);
        FolioPage { folio: id, index }
    }

    /// The folio that is known at `pmd`, and whether `space` is the second process that maps it.
    fn known(&mut self, pmd: u64, space: SpaceId) -> (u32, bool) {
        if let Some(&(id, has_stand_in)) = self.known.get(&pmd) {
            return (id, has_stand_in && self.get_mut(id).mapped(space).is_none());
        }
        let owner = Owner { space: SpaceId::UNOBSERVED, mapped: Mapped::Whole };
        let id = self.put(Folio { len: PMD_PAGES as usize, owners: vec![owner], dirty: true, lazy: false });
        self.known.insert(pmd, (id, true));
        self.known_pmds.insert(id, pmd);
        (id, false)
    }

    /// Ends the part of the owner outside the family if the second process is known.
    fn replace_stand_in(&mut self, pmd: u64, id: u32, is_second: bool) {
        if is_second {
            self.known.insert(pmd, (id, false));
            self.release(id, SpaceId::UNOBSERVED);
        }
    }

    fn put(&mut self, folio: Folio) -> u32 {
        self.pages += folio.len as u64;
        self.mapped_pages += folio.owner_pages();
        match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(folio);
                id
            }
            None => {
                self.slots.push(Some(folio));
                (self.slots.len() - 1) as u32
            }
        }
    }

    pub fn get(&self, id: u32) -> &Folio {
        self.slots[id as usize].as_ref().expect("an entry refers to a folio in the store")
    }

    pub fn get_mut(&mut self, id: u32) -> &mut Folio {
        self.slots[id as usize].as_mut().expect("an entry refers to a folio in the store")
    }

    /// Removes the folio from the store.
    pub fn take(&mut self, id: u32) -> Folio {
        self.free.push(id);
        if let Some(pmd) = self.known_pmds.remove(&id) {
            self.known.remove(&pmd);
        }
        let folio = self.slots[id as usize].take().expect("an entry refers to a folio in the store");
        self.pages -= folio.len as u64;
        self.mapped_pages -= folio.owner_pages();
        folio
    }

    /// The pages in all folios less the pages that their owners map; negative if many are shared.
    pub fn unmapped_pages(&self) -> i64 {
        self.pages as i64 - self.mapped_pages as i64
    }

    /// The folios of which a process, and no other, maps some pages but not all.
    pub fn partly_mapped_by(&self, space: SpaceId) -> Vec<u32> {
        let is_partly = |folio: &Folio| match &folio.owners[..] {
            [Owner { space: owner, mapped: Mapped::Pages { count, .. } }] => *owner == space && *count < folio.len,
            _ => false,
        };
        let found = self.slots.iter().enumerate().filter(|(_, slot)| slot.as_ref().is_some_and(is_partly));
        found.map(|(id, _)| id as u32).collect()
    }

    /// Records that another process maps the folio by one PMD entry.
    pub fn map_whole(&mut self, id: u32, space: SpaceId) {
        let folio = self.get_mut(id);
        folio.owners.push(Owner { space, mapped: Mapped::Whole });
        self.mapped_pages += folio.len as u64;
    }

    /// Records that a process maps page `index` of the folio at `page`. The page may have been mapped elsewhere before.
    pub fn map(&mut self, id: u32, space: SpaceId, index: u32, page: u64) {
        let folio = self.get_mut(id);
        if folio.mapped(space).is_none() {
            let at = vec![UNMAPPED; folio.len].into_boxed_slice();
            folio.owners.push(Owner { space, mapped: Mapped::Pages { at, count: 0 } });
        }
        if let Some(Mapped::Pages { at, count }) = folio.mapped(space) {
            let is_new = at[index as usize] == UNMAPPED;
            *count += usize::from(is_new);
            at[index as usize] = page;
            self.mapped_pages += u64::from(is_new);
        }
    }

    /// Records that a process now maps the folio page by page instead of by one PMD entry.
    pub fn split_whole(&mut self, id: u32, space: SpaceId, pages: Range<u64>) {
        let at: Box<[u64]> = pages.collect();
        if let Some(mapped) = self.get_mut(id).mapped(space) {
            *mapped = Mapped::Pages { count: at.len(), at };
        }
    }

    /// Records that a process no longer maps page `index` of the folio. A folio without mapped pages is freed.
    pub fn unmap(&mut self, id: u32, space: SpaceId, index: u32) {
        let Some(Mapped::Pages { at, count }) = self.get_mut(id).mapped(space) else { return };
        at[index as usize] = UNMAPPED;
        *count -= 1;
        let is_last = *count == 0;
        self.mapped_pages -= 1;
        if is_last {
            self.release(id, space);
        }
    }

    /// Records that a process no longer maps any page of the folio.
    pub fn release(&mut self, id: u32, space: SpaceId) {
        let folio = self.get_mut(id);
        let before = folio.owner_pages();
        folio.owners.retain(|owner| owner.space != space);
        let (after, is_free) = (folio.owner_pages(), folio.owners.is_empty());
        self.mapped_pages -= before - after;
        if is_free {
            self.take(id);
        }
    }
}
