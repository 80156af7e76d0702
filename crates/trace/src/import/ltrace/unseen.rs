//! Blocks whose address the source does not show.

use std::collections::VecDeque;

/// Addresses made up: above all that a program can have.
const FIRST: u64 = 1 << 63;

/// Blocks not yet freed, the oldest first, by log2 of their alignment.
#[derive(Default)]
pub(super) struct Unseen {
    waiting: Vec<VecDeque<u64>>,
    made: u64,
}

impl Unseen {
    /// A made-up address for a new block.
    pub(super) fn born(&mut self, align: u64) -> u64 {
        let made = FIRST + self.made;
        self.made += 1;
        self.waiting.resize_with(64, VecDeque::new);
        self.waiting[align.max(1).ilog2() as usize].push_back(made);
        made
    }

    /// The made-up address of the block that an unknown address is taken for: of those whose alignment fits, the most
    /// aligned; of these the oldest.
    pub(super) fn bind(&mut self, address: u64, is_live: impl Fn(u64) -> bool) -> Option<u64> {
        if address == 0 || is_live(address) {
            return None;
        }
        let fit = self.waiting.iter_mut().take(address.trailing_zeros() as usize + 1);
        fit.rev().find_map(VecDeque::pop_front)
    }
}
