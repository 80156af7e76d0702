//! The smallest useful design: it hands out memory from chunks, one block after the other, and never takes any back.

use hksim_engine::{AddressSpace, Cause, Design, Errno, INVALID, Mapping, PAGE_BYTES, Request};
use serde::{Deserialize, Serialize};

use crate::listed::Listed;
use crate::settings::{Setting, Values};

/// Every block's address is a multiple of this.
const ALIGN_BYTES: u64 = 16;
/// Bytes of the header before a block: its size.
const HEADER_BYTES: u64 = 8;

/// The settings of [`Bump`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BumpSettings {
    /// Bytes of a chunk, a multiple of the page size.
    pub chunk_bytes: u64,
}

impl Default for BumpSettings {
    fn default() -> BumpSettings {
        BumpSettings { chunk_bytes: 1 << 20 }
    }
}

/// The allocator: where the free part of its newest chunk begins and ends.
pub struct Bump {
    chunk_bytes: u64,
    next: u64,
    end: u64,
}

impl Bump {
    /// Maps a chunk that is large enough for `bytes` bytes. A chunk that follows the last one continues it.
    fn grow(&mut self, memory: &mut impl AddressSpace, bytes: u64) -> Option<()> {
        let bytes = bytes.max(self.chunk_bytes).checked_next_multiple_of(PAGE_BYTES)?;
        let chunk = memory.map(bytes, PAGE_BYTES, Mapping::Plain).ok()?;
        if chunk != self.end {
            self.next = chunk;
        }
        self.end = chunk + bytes;
        Some(())
    }

    /// The next block for a request: its first byte, and the first byte after it.
    fn place(&self, bytes: u64, align: u64) -> Option<(u64, u64)> {
        let block = self.next.checked_add(HEADER_BYTES)?.checked_next_multiple_of(align)?;
        Some((block, block.checked_add(bytes)?))
    }
}

impl Design for Bump {
    const NAME: &'static str = "bump";
    type Settings = BumpSettings;

    fn start(settings: &BumpSettings, _memory: &mut impl AddressSpace) -> Result<Bump, Errno> {
        let chunk_bytes = settings.chunk_bytes;
        let is_valid = chunk_bytes > 0 && chunk_bytes.is_multiple_of(PAGE_BYTES);
        if is_valid { Ok(Bump { chunk_bytes, next: 0, end: 0 }) } else { Err(INVALID) }
    }

    fn allocate(&mut self, memory: &mut impl AddressSpace, _thread: u32, request: Request) -> Option<u64> {
        let bytes = request.bytes.max(1).checked_next_multiple_of(ALIGN_BYTES)?;
        let align = request.align.max(ALIGN_BYTES);
        if self.place(bytes, align)?.1 > self.end {
            self.grow(memory, bytes.checked_add(align)?.checked_add(HEADER_BYTES)?)?;
        }
        let (block, end) = self.place(bytes, align)?;
        memory.write(block - HEADER_BYTES, bytes, Cause::Header);
        self.next = end;
        // Memory that was never handed out is zero, so a zeroed request needs nothing more.
        Some(block)
    }

    fn free(&mut self, _memory: &mut impl AddressSpace, _thread: u32, _block: u64) {}

    fn usable_bytes(&mut self, memory: &mut impl AddressSpace, block: u64) -> u64 {
        memory.read(block - HEADER_BYTES, Cause::Header)
    }
}

impl Listed for Bump {
    const SUMMARY: &'static str = "one block after the other; no block is used twice";

    const SETTINGS: &'static [Setting] = &[Setting {
        flag: "chunk",
        field: "chunk_bytes",
        values: Values::Pages(4 << 10, 1 << 30),
        help: "Bytes that are mapped at once, at least",
    }];
}
