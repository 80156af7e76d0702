//! The application's side of the memory: its accesses to its blocks.

use std::cell::OnceCell;

use hksim_policy::memory::{APPLICATION_BYTE, Block, World};

use super::SimMemory;
use crate::observer::{Cause, MemoryObserver, Touch};

impl<H: MemoryObserver> World for SimMemory<H> {
    #[inline(always)]
    fn app_read(&self, block: Block<u32>, offset: u64, bytes: u64) {
        let at = self.layout.superslab_of(block.superslab) + u64::from(block.offset) + offset;
        self.touch(at, bytes, Touch::Read, Cause::Application);
    }

    #[inline(always)]
    fn app_write(&self, block: Block<u32>, offset: u64, bytes: u64) {
        let at = self.layout.superslab_of(block.superslab) + u64::from(block.offset) + offset;
        self.touch(at, bytes, Touch::Write, Cause::Application);
        self.written(at, bytes, APPLICATION_BYTE);
    }

    #[inline(always)]
    fn set_now(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }

    #[inline(always)]
    fn expect_free(&self, block: Block<u32>) {
        if let Some(superslab) = self.superslabs.get(block.superslab as usize).and_then(OnceCell::get) {
            superslab.links.prefetch(block.offset);
        }
    }
}
