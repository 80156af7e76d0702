//! Large folios mapped page by page, or by more than one process: mTHPs, and huge pages that were split or forked.
//!
//! A huge page mapped by one 2 MiB entry of one process is a [`HugePage`](super::entry::HugePage) and not in this store.

use std::ops::Range;

/// A page of the folio that an owner maps nowhere any more.
const UNMAPPED: u64 = u64::MAX;

/// Names an address space among those that share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpaceId(pub u32);

/// Where an address space maps a folio.
#[derive(Debug)]
enum Mapped {
    /// By one 2 MiB entry.
    Whole,
    /// Page by page: the page number of each, and how many are mapped.
    Pages { at: Box<[u64]>, count: usize },
}

/// One address space that maps a folio.
#[derive(Debug)]
struct Owner {
    space: SpaceId,
    mapped: Mapped,
}

/// A folio of more than one page.
#[derive(Debug)]
pub(super) struct Folio {
    /// Pages in the folio, mapped or not.
    len: usize,
    owners: Vec<Owner>,
    /// The folio itself is dirty, whatever its entries say.
    pub dirty: bool,
    /// MADV_FREE was called on it as a whole.
    pub lazy: bool,
}

impl Folio {
    /// Pages in the folio, mapped or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether more than one process maps any of it.
    pub fn is_shared(&self) -> bool {
        self.owners.len() > 1
    }

    /// Whether one page of it is mapped in one place, and no more.
    pub fn is_last_page(&self) -> bool {
        matches!(&self.owners[..], [Owner { mapped: Mapped::Pages { count: 1, .. }, .. }])
    }

    /// Whether exactly one process maps its first page.
    pub fn maps_first_page_once(&self) -> bool {
        let maps_first = |owner: &&Owner| match &owner.mapped {
            Mapped::Whole => true,
            Mapped::Pages { at, .. } => at.first() != Some(&UNMAPPED),
        };
        self.owners.iter().filter(maps_first).count() == 1
    }

    /// The page numbers a process maps it at, page by page.
    pub fn mapped_pages(&self, space: SpaceId) -> impl Iterator<Item = u64> + '_ {
        let pages = self.owners.iter().find(|owner| owner.space == space).map(|owner| &owner.mapped);
        let at: &[u64] = match pages {
            Some(Mapped::Pages { at, .. }) => at,
            Some(Mapped::Whole) | None => &[],
        };
        at.iter().copied().filter(|&page| page != UNMAPPED)
    }

    fn mapped(&mut self, space: SpaceId) -> Option<&mut Mapped> {
        self.owners.iter_mut().find(|owner| owner.space == space).map(|owner| &mut owner.mapped)
    }
}

/// The store; ids of freed folios are used again.
#[derive(Debug, Default)]
pub(super) struct Folios {
    slots: Vec<Option<Folio>>,
    free: Vec<u32>,
}

impl Folios {
    /// A folio mapped at `pages`.
    pub fn add(&mut self, space: SpaceId, pages: Range<u64>, dirty: bool, lazy: bool) -> u32 {
        let at: Box<[u64]> = pages.collect();
        let (len, count) = (at.len(), at.len());
        self.put(Folio { len, owners: vec![Owner { space, mapped: Mapped::Pages { at, count } }], dirty, lazy })
    }

    /// A folio of `len` pages mapped by one 2 MiB entry in each of these.
    pub fn add_whole(&mut self, spaces: [SpaceId; 2], len: usize, dirty: bool, lazy: bool) -> u32 {
        let owners = spaces.map(|space| Owner { space, mapped: Mapped::Whole });
        self.put(Folio { len, owners: owners.into(), dirty, lazy })
    }

    fn put(&mut self, folio: Folio) -> u32 {
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
        self.slots[id as usize].as_ref().expect("an entry names a folio that lives")
    }

    pub fn get_mut(&mut self, id: u32) -> &mut Folio {
        self.slots[id as usize].as_mut().expect("an entry names a folio that lives")
    }

    /// Takes the folio out.
    pub fn take(&mut self, id: u32) -> Folio {
        self.free.push(id);
        self.slots[id as usize].take().expect("an entry names a folio that lives")
    }

    /// A process maps the folio by one 2 MiB entry, too.
    pub fn map_whole(&mut self, id: u32, space: SpaceId) {
        self.get_mut(id).owners.push(Owner { space, mapped: Mapped::Whole });
    }

    /// A process maps page `index` of the folio at `page`, now or by another entry than before.
    pub fn map(&mut self, id: u32, space: SpaceId, index: u32, page: u64) {
        let folio = self.get_mut(id);
        if folio.mapped(space).is_none() {
            let at = vec![UNMAPPED; folio.len].into_boxed_slice();
            folio.owners.push(Owner { space, mapped: Mapped::Pages { at, count: 0 } });
        }
        if let Some(Mapped::Pages { at, count }) = folio.mapped(space) {
            *count += usize::from(at[index as usize] == UNMAPPED);
            at[index as usize] = page;
        }
    }

    /// A process maps the folio page by page from now on, in place of one 2 MiB entry.
    pub fn split_whole(&mut self, id: u32, space: SpaceId, pages: Range<u64>) {
        let at: Box<[u64]> = pages.collect();
        if let Some(mapped) = self.get_mut(id).mapped(space) {
            *mapped = Mapped::Pages { count: at.len(), at };
        }
    }

    /// A process no longer maps page `index` of the folio; with the last one the folio goes.
    pub fn unmap(&mut self, id: u32, space: SpaceId, index: u32) {
        let Some(Mapped::Pages { at, count }) = self.get_mut(id).mapped(space) else { return };
        at[index as usize] = UNMAPPED;
        *count -= 1;
        if *count == 0 {
            self.release(id, space);
        }
    }

    /// A process no longer maps anything of the folio.
    pub fn release(&mut self, id: u32, space: SpaceId) {
        let folio = self.get_mut(id);
        folio.owners.retain(|owner| owner.space != space);
        if folio.owners.is_empty() {
            self.take(id);
        }
    }
}
