//! Where blocks are, and where dead ones were.

use std::collections::BTreeMap;
use std::ops::Range;

use hksim_trace::event::ObjectId;

/// A block at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Address after its last requested byte.
    pub end: u64,
    /// Its object.
    pub object: ObjectId,
    /// Whether the program holds it.
    pub is_live: bool,
}

/// All blocks by address. A dead block stays until another takes its place.
#[derive(Debug, Default)]
pub struct Blocks {
    blocks: BTreeMap<u64, Block>,
}

impl Blocks {
    /// A block was placed. One of 0 bytes counts as one byte.
    pub fn place(&mut self, range: Range<u64>, object: ObjectId) {
        let end = range.end.max(range.start + 1);
        let before = self.blocks.range(..range.start).next_back().filter(|(_, block)| block.end > range.start);
        let covered = before.into_iter().chain(self.blocks.range(range.start..end)).map(|(&start, _)| start);
        for start in covered.collect::<Vec<u64>>() {
            self.blocks.remove(&start);
        }
        self.blocks.insert(range.start, Block { end, object, is_live: true });
    }

    /// The block at this address was freed.
    pub fn free(&mut self, start: u64) {
        if let Some(block) = self.blocks.get_mut(&start) {
            block.is_live = false;
        }
    }

    /// The block that contains an address, live or dead.
    pub fn at(&self, address: u64) -> Option<Block> {
        let (_, block) = self.blocks.range(..=address).next_back()?;
        Some(*block).filter(|block| address < block.end)
    }

    /// Whether any block, live or dead, is in a range.
    pub fn any_in(&self, range: Range<u64>) -> bool {
        let before = self.blocks.range(..range.start).next_back().is_some_and(|(_, block)| block.end > range.start);
        before || self.blocks.range(range).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_block_replaces_the_dead_ones_under_it() {
        let mut blocks = Blocks::default();
        blocks.place(100..200, ObjectId(0));
        blocks.place(200..300, ObjectId(1));
        blocks.free(100);
        assert_eq!(blocks.at(150), Some(Block { end: 200, object: ObjectId(0), is_live: false }));
        blocks.place(150..250, ObjectId(2));
        assert_eq!(blocks.at(120), None);
        assert_eq!(blocks.at(249).map(|block| block.object), Some(ObjectId(2)));
        assert_eq!(blocks.at(260), None);
        assert!(blocks.any_in(240..400) && !blocks.any_in(250..400) && !blocks.any_in(0..150));
        blocks.place(400..400, ObjectId(3));
        assert_eq!(blocks.at(400).map(|block| block.object), Some(ObjectId(3)));
    }
}
