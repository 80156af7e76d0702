//! Finds the live block that contains an address.
//!
//! The blocks are in a tree by address, with a cache in front. The cache maps *granules* of 16 bytes to blocks. An
//! entry is cleared when a block is allocated on its granule. If its block was freed, the block's slot shows that.

use std::collections::BTreeMap;

const GRANULE_LOG2: u32 = 4;
const CACHE_ENTRIES: usize = 1 << 16;
/// Accesses and blocks with more granules than this bypass the cache.
const GRANULES_AT_ONCE: u64 = CACHE_ENTRIES as u64;
const NO_BLOCK: u32 = u32::MAX;
const NO_GRANULE: u64 = u64::MAX;

/// A live block: the addresses of the bytes that the program requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
}

#[derive(Clone, Copy)]
struct Known {
    granule: u64,
    /// A block on the granule, or `NO_BLOCK`.
    slot: u32,
}

/// The live blocks of a process.
pub struct Blocks {
    slots: Vec<Block>,
    unused: Vec<u32>,
    by_start: BTreeMap<u64, u32>,
    cache: Vec<Known>,
}

impl Blocks {
    pub fn new() -> Self {
        let cache = vec![Known { granule: NO_GRANULE, slot: NO_BLOCK }; CACHE_ENTRIES];
        Self { slots: Vec::new(), unused: Vec::new(), by_start: BTreeMap::new(), cache }
    }

    /// Adds a block. Blocks that overlap it are removed: they must have been freed without a record. A block beyond the
    /// address space is ignored.
    pub fn insert(&mut self, start: u64, bytes: u64) {
        let Some(end) = start.checked_add(bytes).filter(|_| bytes > 0) else {
            return self.remove(start);
        };
        while let Some(block) = self.last_before(end).filter(|block| block.end > start) {
            self.remove(block.start);
        }
        let block = Block { start, end };
        let slot = match self.unused.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(block);
                // The conversion cannot fail: 2^32 blocks do not fit into memory.
                (self.slots.len() - 1) as u32
            }
        };
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = block;
        }
        self.by_start.insert(start, slot);
        self.forget(block);
    }

    /// Removes the block that starts at `start`.
    pub fn remove(&mut self, start: u64) {
        if let Some(slot) = self.by_start.remove(&start) {
            if let Some(block) = self.slots.get_mut(slot as usize) {
                *block = Block::default();
            }
            self.unused.push(slot);
        }
    }

    /// Passes each live block that the access touches to `each`, in order of address, with the first touched byte and
    /// the number of bytes.
    pub fn touched<E>(
        &mut self,
        start: u64,
        bytes: u64,
        mut each: impl FnMut(Block, u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = start.saturating_add(bytes);
        match self.around(start) {
            Some(block) if end <= block.end => return each(block, start, bytes),
            None if self.is_bare(start, end) => return Ok(()),
            _ => {}
        }
        let mut at = start;
        while at < end {
            let Some(block) = self.first_behind(at).filter(|block| block.start < end) else {
                break;
            };
            let first = block.start.max(at);
            at = block.end.min(end);
            each(block, first, at - first)?;
        }
        Ok(())
    }

    /// The block that contains an address, if the cache has it.
    #[inline]
    fn around(&mut self, address: u64) -> Option<Block> {
        let block = self.on_granule(address >> GRANULE_LOG2)?;
        (block.start <= address && address < block.end).then_some(block)
    }

    /// Whether the granules of this range are known to have no block; false if checking would cost too much.
    fn is_bare(&mut self, start: u64, end: u64) -> bool {
        let (first, last) = (start >> GRANULE_LOG2, end.saturating_sub(1) >> GRANULE_LOG2);
        last.saturating_sub(first) < GRANULES_AT_ONCE
            && (first..=last).all(|granule| self.on_granule(granule).is_none())
    }

    /// A block on the granule.
    #[inline]
    fn on_granule(&mut self, granule: u64) -> Option<Block> {
        let entry = granule as usize % CACHE_ENTRIES;
        if let Some(known) = self.cache.get(entry).filter(|known| known.granule == granule) {
            if known.slot == NO_BLOCK {
                return None;
            }
            let (start, end) = (granule << GRANULE_LOG2, (granule + 1) << GRANULE_LOG2);
            let block = self.slots.get(known.slot as usize).copied().unwrap_or_default();
            if block.start < end && block.end > start {
                return Some(block);
            }
        }
        self.look_up(granule)
    }

    fn look_up(&mut self, granule: u64) -> Option<Block> {
        let (start, end) = (granule << GRANULE_LOG2, (granule + 1) << GRANULE_LOG2);
        let found = self.by_start.range(..end).next_back().map(|(_, &slot)| slot);
        let block = found.and_then(|slot| self.slots.get(slot as usize)).copied().filter(|block| block.end > start);
        let slot = found.filter(|_| block.is_some()).unwrap_or(NO_BLOCK);
        if let Some(entry) = self.cache.get_mut(granule as usize % CACHE_ENTRIES) {
            *entry = Known { granule, slot };
        }
        block
    }

    fn last_before(&self, end: u64) -> Option<Block> {
        let (_, &slot) = self.by_start.range(..end).next_back()?;
        self.slots.get(slot as usize).copied()
    }

    /// The first block that ends after the address.
    fn first_behind(&self, address: u64) -> Option<Block> {
        if let Some(block) = self.last_before(address.saturating_add(1)).filter(|block| block.end > address) {
            return Some(block);
        }
        let (_, &slot) = self.by_start.range(address..).next()?;
        self.slots.get(slot as usize).copied()
    }

    /// Clears the cache entries of a new block's granules.
    fn forget(&mut self, block: Block) {
        let nothing = Known { granule: NO_GRANULE, slot: NO_BLOCK };
        let (first, last) = (block.start >> GRANULE_LOG2, (block.end - 1) >> GRANULE_LOG2);
        if last - first >= GRANULES_AT_ONCE {
            return self.cache.fill(nothing);
        }
        for granule in first..=last {
            if let Some(entry) = self.cache.get_mut(granule as usize % CACHE_ENTRIES) {
                *entry = nothing;
            }
        }
    }
}
