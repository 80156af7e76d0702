//! Dense numbers for the pages that any window holds a line of.
//!
//! Windows hold a bounded number of lines, so there is a bounded number of such pages, whatever the footprint: a page
//! whose last line was evicted gives its number back.

/// Slots of the hash table: more than twice the pages that there can be.
const TABLE: usize = 1 << 16;
/// An empty slot.
const EMPTY: u32 = u32::MAX;

struct Page {
    page: u64,
    /// Its lines in all windows.
    lines: u32,
    /// Lines that anybody but the kernel accessed since the page got its number.
    touched: u64,
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

#[inline(always)]
fn slot_of(hash: u64) -> usize {
    (hash >> 32) as usize % TABLE
}

impl Pages {
    pub(super) fn new() -> Pages {
        Pages { table: vec![EMPTY; TABLE].into_boxed_slice(), pages: Vec::new(), unused: Vec::new() }
    }

    /// The number of a page, which gets one if it has none.
    #[inline(always)]
    pub(super) fn number(&mut self, page: u64, hash: u64) -> u32 {
        let mut slot = slot_of(hash);
        loop {
            match self.table[slot % TABLE] {
                EMPTY => return self.add(page, slot % TABLE),
                number if self.pages[number as usize].page == page => return number,
                _ => slot += 1,
            }
        }
    }

    #[inline(never)]
    fn add(&mut self, page: u64, slot: usize) -> u32 {
        let number = self.unused.pop().unwrap_or(self.pages.len() as u32);
        let page = Page { page, lines: 0, touched: 0 };
        match self.pages.get_mut(number as usize) {
            Some(entry) => *entry = page,
            None => self.pages.push(page),
        }
        self.table[slot] = number;
        number
    }

    /// Records that lines are touched, a set of bits. Returns those that were not.
    #[inline(always)]
    pub(super) fn add_touched(&mut self, number: u32, lines: u64) -> u64 {
        let touched = &mut self.pages[number as usize].touched;
        let new = lines & !*touched;
        *touched |= lines;
        new
    }

    /// A window holds one more line of a page.
    #[inline(always)]
    pub(super) fn admitted(&mut self, number: u32) {
        self.pages[number as usize].lines += 1;
    }

    /// A window evicted a line of a page.
    #[inline(always)]
    pub(super) fn evicted(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        page.lines -= 1;
        if page.lines == 0 {
            self.remove(number);
        }
    }

    #[inline(never)]
    fn remove(&mut self, number: u32) {
        let home = |number: u32| slot_of(hash_of(self.pages[number as usize].page));
        let mut hole = home(number);
        while self.table[hole] != number {
            hole = (hole + 1) % TABLE;
        }
        let mut slot = hole;
        loop {
            slot = (slot + 1) % TABLE;
            let moved = self.table[slot];
            if moved == EMPTY {
                break;
            }
            // An entry may fill the hole unless it would then be before its home.
            if (slot + TABLE - home(moved)) % TABLE >= (slot + TABLE - hole) % TABLE {
                self.table[hole] = moved;
                hole = slot;
            }
        }
        self.table[hole] = EMPTY;
        self.unused.push(number);
    }
}
