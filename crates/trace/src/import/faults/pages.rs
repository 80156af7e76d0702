//! The fault history of each page.

use super::super::failure::Failure;
use std::collections::BTreeMap;

/// Pages of a 2 MiB block.
const BLOCK_PAGES: u64 = 512;

/// Maximum number of blocks: 4 TiB of address space, which take about 300 MiB of memory here.
const BLOCKS_MAX: usize = 1 << 21;

/// The history of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// No fault yet.
    New,
    /// The page has faulted, and no release of it since is known.
    Faulted,
    /// The page has faulted, and then the program released it.
    Dropped,
}

#[derive(Clone, Default)]
struct Block {
    faulted: [u64; 8],
    dropped: [u64; 8],
}

/// The history of all pages, stored as bits per 2 MiB block.
#[derive(Clone, Default)]
pub(super) struct Pages {
    blocks: BTreeMap<u64, Block>,
}

impl Pages {
    /// Adds a fault and returns the page's history before it.
    pub(super) fn fault(&mut self, page: u64) -> Result<Past, Failure> {
        let full = self.blocks.len() >= BLOCKS_MAX;
        let (number, index) = (page / BLOCK_PAGES, (page % BLOCK_PAGES) as usize);
        if full && !self.blocks.contains_key(&number) {
            return Err(Failure::new("faults in more than 4 TiB of addresses", "cut the script, or take one process"));
        }
        let block = self.blocks.entry(number).or_default();
        let (word, bit) = (index / 64, 1u64 << (index % 64));
        let past = match (block.faulted[word] & bit != 0, block.dropped[word] & bit != 0) {
            (false, _) => Past::New,
            (true, false) => Past::Faulted,
            (true, true) => Past::Dropped,
        };
        block.faulted[word] |= bit;
        block.dropped[word] &= !bit;
        Ok(past)
    }

    /// Resets the history of the pages in the half-open range, as they are now new memory.
    pub(super) fn forget(&mut self, start: u64, end: u64) {
        self.each(start, end, |block, word, bits| {
            block.faulted[word] &= !bits;
            block.dropped[word] &= !bits;
        });
        let near = self.blocks.range(start / BLOCK_PAGES..=end.max(start) / BLOCK_PAGES);
        let empty: Vec<u64> = near.filter(|(_, block)| block.faulted == [0; 8]).map(|(number, _)| *number).collect();
        for number in empty {
            self.blocks.remove(&number);
        }
    }

    /// Marks the pages as released by the program.
    pub(super) fn drop_range(&mut self, start: u64, end: u64) {
        self.each(start, end, |block, word, bits| block.dropped[word] |= bits);
    }

    fn each(&mut self, start: u64, end: u64, mut change: impl FnMut(&mut Block, usize, u64)) {
        if start >= end {
            return;
        }
        for (number, block) in self.blocks.range_mut(start / BLOCK_PAGES..=(end - 1) / BLOCK_PAGES) {
            let first = number * BLOCK_PAGES;
            let (low, high) = (start.max(first) - first, end.min(first + BLOCK_PAGES) - first);
            for word in low / 64..=(high - 1) / 64 {
                let (from, to) = (low.max(word * 64) - word * 64, high.min(word * 64 + 64) - word * 64);
                let bits = (u64::MAX >> (64 - (to - from))) << from;
                change(block, word as usize, bits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn ranges_agree_with_a_table_of_single_pages() {
        let (mut pages, mut plain) = (Pages::default(), HashMap::new());
        let mut seed = 7u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            let (page, length) = (draw(3000), draw(1200));
            match draw(40) {
                0 => {
                    pages.forget(page, page + length);
                    plain.retain(|key, _| !(page..page + length).contains(key));
                }
                1 => {
                    pages.drop_range(page, page + length);
                    plain
                        .iter_mut()
                        .filter(|(key, _)| (page..page + length).contains(key))
                        .for_each(|(_, past)| *past = Past::Dropped);
                }
                _ => {
                    let past = plain.insert(page, Past::Faulted).unwrap_or(Past::New);
                    assert_eq!(pages.fault(page).ok(), Some(past));
                }
            }
        }
    }
}
