//! Dense numbers for the pages that a window remembers lines of.
//!
//! A window remembers a bounded number of lines, so there is a bounded number of such pages, whatever the footprint: a
//! page of which no line is remembered gives its number back.

/// An empty slot.
const EMPTY: u32 = u32::MAX;

/// A page. Sets of lines have a bit for each line of the sample.
pub(super) struct Page {
    page: u64,
    /// Lines that are remembered.
    pub(super) known: u64,
    /// Lines that anybody but the kernel accessed since the page got its number.
    pub(super) touched: u64,
}

/// The pages, in a hash table with linear probing.
pub(super) struct Pages {
    table: Box<[u32]>,
    pages: Vec<Page>,
    unused: Vec<u32>,
}

/// A hash of a page: the low 6 bits select the line of the page that coarse samples contain, the bits above them which
/// of those samples contain it.
#[inline(always)]
pub(super) fn hash_of(page: u64) -> u64 {
    let product = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 29)
}

impl Pages {
    /// A table with this number of slots, a power of two and more than there are ever pages.
    pub(super) fn new(slots: usize) -> Pages {
        Pages { table: vec![EMPTY; slots].into_boxed_slice(), pages: Vec::new(), unused: Vec::new() }
    }

    #[inline(always)]
    fn slot_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.table.len() - 1)
    }

    #[inline(always)]
    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.table.len() - 1)
    }

    /// The number of a page, which gets one if it has none.
    #[inline(always)]
    pub(super) fn number(&mut self, page: u64, hash: u64) -> u32 {
        let mut slot = self.slot_of(hash);
        loop {
            match self.table[slot] {
                EMPTY => return self.add(page, slot),
                number if self.pages[number as usize].page == page => return number,
                _ => slot = self.after(slot),
            }
        }
    }

    #[inline(never)]
    fn add(&mut self, page: u64, slot: usize) -> u32 {
        let number = self.unused.pop().unwrap_or(self.pages.len() as u32);
        let page = Page { page, known: 0, touched: 0 };
        match self.pages.get_mut(number as usize) {
            Some(entry) => *entry = page,
            None => self.pages.push(page),
        }
        self.table[slot] = number;
        number
    }

    /// The page with a number.
    #[inline(always)]
    pub(super) fn page(&mut self, number: u32) -> &mut Page {
        &mut self.pages[number as usize]
    }

    /// Forgets lines of a page. If none is left, the page loses its number.
    pub(super) fn forget(&mut self, number: u32, lines: u64) {
        let page = &mut self.pages[number as usize];
        page.known &= !lines;
        if lines != 0 && page.known == 0 {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u32) {
        let home = |number: u32| self.slot_of(hash_of(self.pages[number as usize].page));
        let mut hole = home(number);
        while self.table[hole] != number {
            hole = self.after(hole);
        }
        let mut slot = hole;
        loop {
            slot = self.after(slot);
            let moved = self.table[slot];
            if moved == EMPTY {
                break;
            }
            // An entry may fill the hole unless it would then be before its home.
            let mask = self.table.len() - 1;
            let home = self.slot_of(hash_of(self.pages[moved as usize].page));
            if slot.wrapping_sub(home) & mask >= slot.wrapping_sub(hole) & mask {
                self.table[hole] = moved;
                hole = slot;
            }
        }
        self.table[hole] = EMPTY;
        self.unused.push(number);
    }
}
