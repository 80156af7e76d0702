//! Blocks whose address the source does not give.

use super::sink::Sink;
use crate::resolve::RawOp;
use std::collections::VecDeque;

/// First generated address: above all addresses in user space.
const FIRST: u64 = 1 << 63;

/// Blocks with generated addresses, until a free or realloc is matched with them.
#[derive(Default)]
pub(super) struct Unseen {
    /// Addresses by log2 of the alignment, the oldest first.
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

    /// Returns the call. If it frees or resizes a block at an unknown address, the address is replaced by the generated
    /// address of a matching block.
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
            // After a failed call the block keeps waiting for its free.
            RawOp::Realloc { old, new, size, call, initial_touch } if new != 0 || size == 0 => {
                RawOp::Realloc { old: find(old), new, size, call, initial_touch }
            }
            op => op,
        }
    }

    /// Matches an unknown address with a block whose alignment fits, and returns the block's generated address. Of
    /// several such blocks, the one with the largest alignment is used, and of these the oldest.
    fn bind(&mut self, address: u64, is_live: impl Fn(u64) -> bool) -> Option<u64> {
        if address == 0 || is_live(address) {
            return None;
        }
        let fit = self.waiting.iter_mut().take(address.trailing_zeros() as usize + 1);
        fit.rev().find_map(VecDeque::pop_front)
    }
}
