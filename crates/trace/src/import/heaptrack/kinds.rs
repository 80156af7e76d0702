//! Blocks of an interpreted file. They have no addresses: a line gives the block's kind, which stands for a size and a
//! call stack.
//!
//! Sizes and the number of live blocks are exact. The file does not say which of several live blocks of one kind is
//! freed; the import assumes the youngest.

use super::super::failure::Failure;
use super::REMEDY;
use crate::event::{AllocCall, InitialTouch};
use crate::resolve::RawOp;

/// Distance between the generated addresses.
const BLOCK_BYTES: u64 = 16;
/// An address that no block has, for frees of unknown blocks.
const NO_BLOCK: u64 = 1;

#[derive(Default)]
struct Kind {
    size: u64,
    /// Addresses of its live blocks, the youngest last.
    live: Vec<u64>,
}

/// The kinds so far, by their number in the file.
#[derive(Default)]
pub(super) struct Kinds {
    kinds: Vec<Kind>,
    /// Addresses of freed blocks.
    free: Vec<u64>,
    /// Number of addresses generated.
    made: u64,
    /// Frees of kinds with several live blocks.
    pub(super) guessed: u64,
}

impl Kinds {
    /// Adds the next kind.
    pub(super) fn add(&mut self, size: u64) {
        self.kinds.push(Kind { size, live: Vec::new() });
    }

    fn kind(&mut self, number: u64) -> Result<&mut Kind, Failure> {
        let kind = usize::try_from(number).ok().and_then(|number| self.kinds.get_mut(number));
        kind.ok_or_else(|| Failure::new(format!("allocation kind {number:x} is not defined before this line"), REMEDY))
    }

    /// Allocates a block of a kind.
    pub(super) fn alloc(&mut self, number: u64) -> Result<RawOp, Failure> {
        self.kind(number)?; // an unknown kind must not use up an address
        let address = self.free.pop().unwrap_or_else(|| {
            self.made += BLOCK_BYTES;
            self.made
        });
        let kind = self.kind(number)?;
        kind.live.push(address);
        Ok(RawOp::Alloc {
            address,
            size: kind.size,
            align_log2: 0,
            call: AllocCall::Malloc,
            initial_touch: InitialTouch::None,
        })
    }

    /// Frees a block of a kind.
    pub(super) fn free(&mut self, number: u64) -> Result<RawOp, Failure> {
        let kind = self.kind(number)?;
        let several = kind.live.len() > 1;
        let Some(address) = kind.live.pop() else { return Ok(RawOp::Free { address: NO_BLOCK }) };
        self.guessed += u64::from(several);
        self.free.push(address);
        Ok(RawOp::Free { address })
    }
}
