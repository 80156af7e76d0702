//! Blocks whose address the source does not give.

use super::sink::Sink;
use crate::resolve::RawOp;
use std::collections::VecDeque;

/// Generated addresses: above all that a program can have.
const FIRST: u64 = 1 << 63;

/// Blocks not yet freed, the oldest first, by log2 of their alignment.
#[derive(Default)]
pub(super) struct Unseen {
    waiting: Vec<VecDeque<u64>>,
    generated: u64,
}

impl Unseen {
    /// A generated address for a new block.
    pub(super) fn new_address(&mut self, align: u64) -> u64 {
        let generated = FIRST + self.generated;
        self.generated += 1;
        self.waiting.resize_with(64, VecDeque::new);
        self.waiting[align.max(1).ilog2() as usize].push_back(generated);
        generated
    }

    /// The call. If it uses an unknown address, that is replaced by the generated address of a matching block.
    pub(super) fn found(&mut self, op: RawOp, sink: &mut Sink) -> RawOp {
        let mut find = |address| match self.bind(address, |address| sink.is_live(address)) {
            Some(generated) => {
                sink.quality.addresses_guessed += 1;
                generated
            }
            None => address,
        };
        match op {
            RawOp::Free { address } => RawOp::Free { address: find(address) },
            // A failed call leaves the block in the list.
            RawOp::Realloc { old, new, size, call, initial_touch } if new != 0 || size == 0 => {
                RawOp::Realloc { old: find(old), new, size, call, initial_touch }
            }
            op => op,
        }
    }

    /// The generated address of the block that matches an unknown address: of the blocks whose alignment fits, the most
    /// aligned; of several, the oldest.
    fn bind(&mut self, address: u64, is_live: impl Fn(u64) -> bool) -> Option<u64> {
        if address == 0 || is_live(address) {
            return None;
        }
        let fit = self.waiting.iter_mut().take(address.trailing_zeros() as usize + 1);
        fit.rev().find_map(VecDeque::pop_front)
    }
}
