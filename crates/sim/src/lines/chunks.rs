//! Dense numbers for the chunks that a window remembers lines of.
//!
//! A window remembers a bounded number of lines, so there is a bounded number of such chunks, whatever the footprint: a
//! chunk of which no line is remembered gives its number back.

/// An empty slot.
const EMPTY: u16 = u16::MAX;

/// A chunk. Sets of lines have a bit for each line of the sample.
#[derive(Clone)]
pub(super) struct Chunk {
    chunk: u64,
    /// Lines that are remembered.
    pub(super) known: u64,
    /// Lines that anybody but the kernel accessed since the chunk got its number.
    pub(super) touched: u64,
}

/// The chunks, in a hash table with linear probing.
#[derive(Clone)]
pub(super) struct Chunks {
    table: Box<[u16]>,
    chunks: Vec<Chunk>,
    unused: Vec<u16>,
}

/// A hash of a chunk. Its low bits select the lines that samples contain.
#[inline(always)]
pub(crate) fn hash_of(chunk: u64) -> u64 {
    let product = chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 29)
}

impl Chunks {
    /// A table with this number of slots, a power of two up to 65 536 and more than there are ever chunks.
    pub(super) fn new(slots: usize) -> Chunks {
        Chunks { table: vec![EMPTY; slots].into_boxed_slice(), chunks: Vec::new(), unused: Vec::new() }
    }

    #[inline(always)]
    fn home(&self, chunk: u64) -> usize {
        (hash_of(chunk) >> 32) as usize & (self.table.len() - 1)
    }

    #[inline(always)]
    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.table.len() - 1)
    }

    /// The number of a chunk, which gets one if it has none.
    #[inline(always)]
    pub(super) fn number(&mut self, chunk: u64) -> u16 {
        let mut slot = self.home(chunk);
        loop {
            match self.table[slot] {
                EMPTY => return self.add(chunk, slot),
                number if self.chunks[usize::from(number)].chunk == chunk => return number,
                _ => slot = self.after(slot),
            }
        }
    }

    #[inline(never)]
    fn add(&mut self, chunk: u64, slot: usize) -> u16 {
        let number = self.unused.pop().unwrap_or(self.chunks.len() as u16);
        let chunk = Chunk { chunk, known: 0, touched: 0 };
        match self.chunks.get_mut(number as usize) {
            Some(entry) => *entry = chunk,
            None => self.chunks.push(chunk),
        }
        self.table[slot] = number;
        number
    }

    /// The chunk with a number.
    #[inline(always)]
    pub(super) fn chunk(&mut self, number: u16) -> &mut Chunk {
        &mut self.chunks[usize::from(number)]
    }

    /// Forgets lines of a chunk. If none is left, the chunk loses its number.
    pub(super) fn forget(&mut self, number: u16, lines: u64) {
        let chunk = &mut self.chunks[usize::from(number)];
        chunk.known &= !lines;
        if lines != 0 && chunk.known == 0 {
            self.remove(number);
        }
    }

    fn home_of(&self, number: u16) -> usize {
        self.home(self.chunks[usize::from(number)].chunk)
    }

    fn remove(&mut self, number: u16) {
        let mask = self.table.len() - 1;
        let mut hole = self.home_of(number);
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
            if slot.wrapping_sub(self.home_of(moved)) & mask >= slot.wrapping_sub(hole) & mask {
                self.table[hole] = moved;
                hole = slot;
            }
        }
        self.table[hole] = EMPTY;
        self.unused.push(number);
    }
}
