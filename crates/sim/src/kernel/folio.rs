//! Large folios mapped page by page: mTHPs, and huge pages whose 2 MiB entry was split.
//!
//! A huge page still mapped by one 2 MiB entry is a [`HugePage`](super::entry::HugePage) and not in this store.

use std::ops::Range;

/// A page of the folio that is mapped nowhere any more.
const UNMAPPED: u64 = u64::MAX;

/// A folio of more than one page.
#[derive(Debug)]
pub(super) struct Folio {
    /// The page number each of its pages is mapped at.
    at: Box<[u64]>,
    mapped: usize,
    /// The folio itself is dirty, whatever its entries say.
    pub dirty: bool,
    /// MADV_FREE was called on it as a whole.
    pub lazy: bool,
}

impl Folio {
    /// Pages in the folio, mapped or not.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// The page numbers it is mapped at.
    pub fn mapped_pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.at.iter().copied().filter(|&page| page != UNMAPPED)
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
    pub fn add(&mut self, pages: Range<u64>, dirty: bool, lazy: bool) -> u32 {
        let at: Box<[u64]> = pages.collect();
        let folio = Folio { mapped: at.len(), at, dirty, lazy };
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

    /// Page `index` of the folio is no longer mapped; with the last one the folio goes.
    pub fn unmap(&mut self, id: u32, index: u32) {
        let folio = self.get_mut(id);
        folio.at[index as usize] = UNMAPPED;
        folio.mapped -= 1;
        if folio.mapped == 0 {
            self.take(id);
        }
    }

    /// Page `index` of the folio is now mapped at `page`.
    pub fn moved(&mut self, id: u32, index: u32, page: u64) {
        self.get_mut(id).at[index as usize] = page;
    }
}
