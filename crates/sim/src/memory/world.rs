//! The application's side of the memory: its accesses to its blocks.

use hksim_engine::prefetch;
use hksim_policy::PAGE_BYTES;
use hksim_policy::memory::{APPLICATION_BYTE, Block, Memory, World};

use super::SimMemory;
use super::superslab::SimSlice;
use crate::observer::{Cause, MemoryObserver, Touch};

impl<H: MemoryObserver> SimMemory<H> {
    /// The slice that contains the start of a block; `None` if its SuperSlab never had slabs.
    #[inline(always)]
    fn slice_at(&self, block: Block<u32>) -> Option<&SimSlice> {
        let superslab = self.superslabs.get(block.superslab as usize)?.get()?;
        superslab.slices.get((block.offset >> self.slice_shift) as usize)
    }

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
        if at / PAGE_BYTES == (at + bytes - 1) / PAGE_BYTES && self.is_settled(at) {
            return self.accessed(at, bytes, Cause::Application);
        }
        self.write_slowly(at, bytes);
    }

    #[inline(always)]
    fn set_now(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }

    #[inline(always)]
    fn expect_use_of_slab(&self, block: Block<u32>) {
        self.slice_at(block).into_iter().for_each(prefetch);
    }

    #[inline(always)]
    fn expect_free(&self, block: Block<u32>) {
        if let Some(slice) = self.slice_at(block) {
            self.expect_link(slice.links.get(), block.offset);
        }
    }
}
