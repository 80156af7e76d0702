//! Dense numbers for the chunks that a window remembers lines of.
//!
//! A window remembers a bounded number of lines, so there is a bounded number of such chunks, whatever the footprint: a
//! chunk of which no line is remembered gives its number back.

/// An empty slot.
const EMPTY: u32 = u32::MAX;

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
    table: Box<[u32]>,
    chunks: Vec<Chunk>,
    unused: Vec<u32>,
}

/// A hash of a chunk. Its low bits select the lines that samples contain.
#[inline(always)]
pub(crate) fn hash_of(chunk: u64) -> u64 {
    let product = chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 29)
}

impl Chunks {
    /// A table with this number of slots, a power of two and more than there are ever chunks.
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
    pub(super) fn number(&mut self, chunk: u64) -> u32 {
        let mut slot = self.home(chunk);
        loop {
            match self.table[slot] {
                EMPTY => return self.add(chunk, slot),
                number if self.chunks[number as usize].chunk == chunk => return number,
                _ => slot = self.after(slot),
            }
        }
    }

    #[inline(never)]
    fn add(&mut self, chunk: u64, slot: usize) -> u32 {
        let number = self.unused.pop().unwrap_or(self.chunks.len() as u32);
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
    pub(super) fn chunk(&mut self, number: u32) -> &mut Chunk {
        &mut self.chunks[number as usize]
    }

    /// Forgets lines of a chunk. If none is left, the chunk loses its number.
    pub(super) fn forget(&mut self, number: u32, lines: u64) {
        let chunk = &mut self.chunks[number as usize];
        chunk.known &= !lines;
        if lines != 0 && chunk.known == 0 {
            self.remove(number);
        }
    }

    fn home_of(&self, number: u32) -> usize {
        self.home(self.chunks[number as usize].chunk)
    }

    fn remove(&mut self, number: u32) {
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
