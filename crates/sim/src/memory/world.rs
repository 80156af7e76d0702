//! The application's side of the memory: its accesses to its blocks.

use std::cell::OnceCell;

use hksim_policy::PAGE_BYTES;
use hksim_policy::memory::{APPLICATION_BYTE, Block, World};

use super::SimMemory;
use crate::observer::{Cause, MemoryObserver, Touch};

impl<H: MemoryObserver> SimMemory<H> {
    #[inline(never)]
    fn write_slowly(&self, at: u64, bytes: u64) {
        self.touch(at, bytes, Touch::Write, Cause::Application);
        self.written(at, bytes, APPLICATION_BYTE);
    }
}

impl<H: MemoryObserver> World for SimMemory<H> {
    #[inline(always)]
    fn app_read(&self, block: Block<u32>, offset: u64, bytes: u64) {
        let at = self.layout.superslab_of(block.superslab) + u64::from(block.offset) + offset;
        self.touch(at, bytes, Touch::Read, Cause::Application);
    }

    #[inline(always)]
    fn app_write(&self, block: Block<u32>, offset: u64, bytes: u64) {
        let at = self.layout.superslab_of(block.superslab) + u64::from(block.offset) + offset;
        if at / PAGE_BYTES == (at + bytes - 1) / PAGE_BYTES && self.may_skip(at) {
            return;
        }
        self.write_slowly(at, bytes);
    }

    #[inline(always)]
    fn set_now(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }

    #[inline(always)]
    fn expect_free(&self, block: Block<u32>) {
        if let Some(superslab) = self.superslabs.get(block.superslab as usize).and_then(OnceCell::get) {
            let slice = &superslab.slices[(block.offset >> self.slice_shift) as usize];
            self.links.prefetch(slice.links.get(), self.layout.superslab_of(block.superslab) + u64::from(block.offset));
        }
    }
}
