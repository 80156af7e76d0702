//! What the memory knows of its contents, if they are tracked.

use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use super::SimMemory;
use super::contents::Contents;
use crate::observer::MemoryObserver;

/// Stands for the non-zero bytes of former metadata that a block overlaps. The simulator does not store their real
/// values.
const METADATA_BYTE: u8 = 1;

impl<H: MemoryObserver> SimMemory<H> {
    /// Records that the bytes of a number are written, which is part of a block in a slab. Has no effect unless contents
    /// are tracked.
    #[inline(always)]
    pub(super) fn written_number(&self, at: u64, number: u32) {
        if let Some(contents) = &self.contents {
            contents.write_number(at - self.layout.arena, number);
        }
    }

    /// As [`SimMemory::written_number`], of two numbers side by side. `at` is a multiple of 8.
    pub(super) fn written_pair(&self, at: u64, first: u32, second: u32) {
        if let Some(contents) = &self.contents {
            contents.write_pair(at - self.layout.arena, first, second);
        }
    }

    /// Records that `count` bytes at `at` are set to `byte`. `at` is an offset from the start of the reservation. Has
    /// no effect unless contents are tracked.
    #[inline(always)]
    pub(super) fn written(&self, at: u64, count: u64, byte: u8) {
        if let Some(contents) = &self.contents
            && let Some(at) = at.checked_sub(self.layout.arena)
        {
            self.take_over_meta(contents, at, count);
            contents.write(at, count, byte);
        }
    }

    /// Called before a block's bytes are written or copied. If the block overlaps metadata, its SuperSlab no longer
    /// exists: from now on, the metadata is ordinary bytes.
    #[inline(always)]
    pub(super) fn take_over_meta(&self, contents: &Contents, at: u64, count: u64) {
        // Few blocks begin at a SuperSlab or reach into the next one.
        let superslab_bytes = 1 << self.layout.superslab_shift;
        let offset = at & (superslab_bytes - 1);
        if offset < u64::from(self.layout.meta_bytes) || offset + count > superslab_bytes {
            self.take_over_overlapped_meta(contents, at, count);
        }
    }

    #[inline(never)]
    fn take_over_overlapped_meta(&self, contents: &Contents, at: u64, count: u64) {
        let shift = self.layout.superslab_shift;
        for ordinal in at >> shift..(at + count).div_ceil(1 << shift) {
            let start = ordinal << shift;
            let Some(superslab) = self.superslabs[ordinal as usize].get() else { continue };
            if self.is_meta_in_band() && superslab.has_meta() && at < start + u64::from(self.layout.meta_bytes) {
                superslab.meta_bytes(&self.layout).for_each(|bytes| {
                    contents.write(start + bytes.start, bytes.end - bytes.start, METADATA_BYTE);
                });
                superslab.drop_meta();
            }
        }
    }

    pub(super) fn is_meta_in_band(&self) -> bool {
        self.layout.meta_of(0) == self.layout.superslab_of(0)
    }

    /// Records that these pages read as zeros from now on.
    pub(super) fn wiped(&self, pages: &Range<u64>) {
        let Some(contents) = &self.contents else { return };
        let Some(first) = (pages.start * PAGE_BYTES).checked_sub(self.layout.arena) else { return };
        let bytes = first..first + (pages.end - pages.start) * PAGE_BYTES;
        contents.write(bytes.start, bytes.end - bytes.start, 0);
        let shift = self.layout.superslab_shift;
        for ordinal in bytes.start.div_ceil(1 << shift)..bytes.end.div_ceil(1 << shift) {
            if let Some(superslab) = self.superslabs[ordinal as usize].get() {
                superslab.drop_meta();
            }
        }
    }
}
