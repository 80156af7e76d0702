//! Allocation: the fast path, and the slow path for an empty bin.

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::heap::classes::Classes;
use crate::heap::slab::Contents;
use crate::heap::{Ready, ThreadHeap};
use crate::limits::{ALIGN_BYTES_MAX, LINK_BYTES, PAGE_BYTES};
use crate::memory::{Block, Memory};
use crate::path::Path;
use crate::policy::vocabulary::Header;

/// An allocation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes; 0 counts as 1.
    pub bytes: u64,
    /// Alignment in bytes, a power of two. Blocks of more than 8 bytes always have that of the
    /// [geometry](Geometry::block_align).
    pub align: u64,
    /// Whether the block must read as zeros.
    pub zeroed: bool,
}

impl Request {
    /// Plain `malloc(bytes)`.
    pub fn plain(bytes: u64) -> Request {
        Request { bytes, align: 1, zeroed: false }
    }
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// The block size a request needs: at least one byte, plus the header.
    #[inline(always)]
    pub(crate) fn bytes_with_header(&self, bytes: u64) -> u64 {
        bytes.max(1).saturating_add(u64::from(self.geometry.header_bytes()))
    }

    /// Allocates a block. Returns `None`, and changes nothing, if the arena is full or the request is invalid.
    #[inline(always)]
    pub fn allocate(&self, heap: &mut ThreadHeap<M>, request: Request) -> Option<Block<M::SuperSlab>> {
        if request.align > u64::from(self.geometry.block_align()) {
            return self.allocate_aligned(heap, request);
        }
        // Without a header, 0 bytes map to the smallest class.
        let block_bytes =
            if self.geometry.header_bytes() == 0 { request.bytes } else { self.bytes_with_header(request.bytes) };
        // Only the smallest class has blocks that may not be aligned to 16.
        let block_bytes = if request.align == 16 { block_bytes.max(16) } else { block_bytes };
        if block_bytes > u64::from(self.geometry.stride_max()) {
            return self.allocate_beyond(heap, request.bytes, request.align, request.zeroed);
        }
        let is_plain = self.geometry.header_bytes() == 0 && self.geometry.front_cache() == 0;
        if block_bytes > Classes::STEP_BYTES_MAX {
            self.mem.path(Path::AboveTable, 1);
            self.mem.path(Path::ClassSearched, u64::from(self.geometry.classes().are_searched()));
        }
        let class = if is_plain && block_bytes <= Classes::STEP_BYTES_MAX {
            usize::from(heap.steps[Classes::step_of(block_bytes)])
        } else {
            self.geometry.classes().class_of(block_bytes as u32)
        };
        self.allocate_class(heap, class, request)
    }

    /// Serves requests larger than any class. Takes the fields of the request one by one, so that they stay in
    /// registers: passing the struct would make the fast path store it on the stack.
    #[cold]
    #[inline(never)]
    fn allocate_beyond(
        &self,
        heap: &mut ThreadHeap<M>,
        bytes: u64,
        align: u64,
        zeroed: bool,
    ) -> Option<Block<M::SuperSlab>> {
        self.mem.path(Path::Beyond, 1);
        self.allocate_large_or_huge(heap, Request { bytes, align, zeroed })
    }

    #[inline(always)]
    fn allocate_class(&self, heap: &mut ThreadHeap<M>, class: usize, request: Request) -> Option<Block<M::SuperSlab>> {
        if self.geometry.front_cache() > 0
            && let Some(block) = self.take_cached(heap, class)
        {
            if request.zeroed {
                self.mem.path(Path::Zeroed, 1);
                self.mem.zero(block.superslab, u64::from(block.offset), request.bytes);
            }
            return Some(block);
        }
        self.mem.path(Path::FrontMiss, u64::from(self.geometry.front_cache() > 0));
        if request.zeroed {
            return self.allocate_zeroed(heap, class, request.bytes);
        }
        if let Some(ready) = heap.ready_in(&self.geometry, class) {
            return Some(self.take_in(heap, ready));
        }
        let refilled = self.refill(heap, class)?;
        Some(self.hand_out(refilled.superslab, refilled.start, class))
    }

    /// Allocates the block that [`ready`](ThreadHeap::ready) has just returned: the fast path. Such a block has no
    /// header.
    #[inline(always)]
    pub fn take(&self, heap: &mut ThreadHeap<M>, ready: Ready<M>) -> Block<M::SuperSlab> {
        self.mem.path(Path::Ready, 1);
        let Ready { class, superslab, start } = ready;
        heap.ready[class] = self.mem.take_link(heap.link_places[class], superslab, start);
        Block { superslab, offset: start }
    }

    /// Brings what the next allocation from this class reads into the processor's caches, as far as the backend can.
    #[inline(always)]
    pub fn expect_allocation(&self, heap: &ThreadHeap<M>, class: usize) {
        if let Some(start) = self.start_at(heap.ready[class]) {
            self.mem.expect_link(heap.link_places[class], self.link_at(start));
        }
    }

    /// Allocates the block that `ready_in` has just returned.
    #[inline(always)]
    fn take_in(&self, heap: &mut ThreadHeap<M>, ready: Ready<M>) -> Block<M::SuperSlab> {
        if self.has_keys() {
            return self.take(heap, ready);
        }
        self.mem.path(Path::ReadyWithoutKey, 1);
        let Ready { class, superslab, start } = ready;
        heap.ready[class] = self.mem.read_link(superslab, self.link_at(start));
        self.hand_out(superslab, start, class)
    }

    #[inline(always)]
    pub(crate) fn hand_out(&self, superslab: M::SuperSlab, start: u32, class: usize) -> Block<M::SuperSlab> {
        let header_bytes = self.geometry.header_bytes();
        // A branch is cheaper than the jump table of `match`.
        if self.geometry.header() == Header::None {
            return Block { superslab, offset: start + header_bytes };
        }
        let tag = HEADER_TAG | class as u8;
        match self.geometry.header() {
            Header::None => {}
            Header::Full => self.put_header(superslab, start, tag),
            Header::Light => {
                if self.read_header(superslab, start) != tag {
                    self.put_header(superslab, start, tag);
                }
            }
            Header::Off => {
                if self.read_header(superslab, start) & HEADER_TAG == 0 {
                    self.put_header(superslab, start, tag);
                }
            }
        }
        Block { superslab, offset: start + header_bytes }
    }

    #[inline(always)]
    fn read_header(&self, superslab: M::SuperSlab, start: u32) -> u8 {
        self.mem.path(Path::HeaderRead, 1);
        self.mem.read_header(superslab, start)
    }

    #[inline(always)]
    fn put_header(&self, superslab: M::SuperSlab, start: u32, tag: u8) {
        self.mem.path(Path::HeaderWritten, 1);
        self.mem.write_header(superslab, start, self.geometry.header_bytes(), tag);
    }

    /// `calloc`: zeroes only bytes that are not known to be zero.
    #[inline(never)]
    fn allocate_zeroed(&self, heap: &mut ThreadHeap<M>, class: usize, bytes: u64) -> Option<Block<M::SuperSlab>> {
        let (block, contents) = match heap.ready_in(&self.geometry, class) {
            Some(ready) => {
                let slab = self.slice_meta(ready.superslab, heap.bins[class].slice);
                let fresh = slab.fresh.get() && slab.zeroed.get();
                (self.take_in(heap, ready), if fresh { Contents::ZeroButLink } else { Contents::Unknown })
            }
            None => {
                let refilled = self.refill(heap, class)?;
                (self.hand_out(refilled.superslab, refilled.start, class), refilled.contents)
            }
        };
        let superslab = block.superslab;
        match contents {
            Contents::Zero => {}
            Contents::ZeroButLink => {
                self.mem.path(Path::LinkZeroed, 1);
                self.mem.zero(superslab, u64::from(block.offset), LINK_BYTES);
            }
            Contents::Unknown => {
                self.mem.path(Path::Zeroed, 1);
                self.mem.zero(superslab, u64::from(block.offset), bytes);
            }
        }
        Some(block)
    }

    /// Serves aligned requests from a class whose stride is a multiple of the alignment, else as a large or huge block.
    #[inline(never)]
    fn allocate_aligned(&self, heap: &mut ThreadHeap<M>, request: Request) -> Option<Block<M::SuperSlab>> {
        if !request.align.is_power_of_two() || request.align > ALIGN_BYTES_MAX {
            return None;
        }
        self.mem.path(Path::Aligned, 1);
        let header_bytes = self.geometry.header_bytes();
        if request.align <= PAGE_BYTES && header_bytes == 0 {
            let classes = self.geometry.classes();
            let least = request.bytes.max(request.align);
            if least <= u64::from(self.geometry.stride_max()) {
                let mut class = classes.class_of(least as u32);
                while class < classes.count() && classes.stride(class) <= self.geometry.stride_max() {
                    self.mem.path(Path::AlignedClass, 1);
                    if u64::from(classes.stride(class)).is_multiple_of(request.align) {
                        return self.allocate_class(heap, class, request);
                    }
                    class += 1;
                }
            }
        }
        self.allocate_large_or_huge(heap, request)
    }
}

/// Set in a valid header; the low bits are the class.
const HEADER_TAG: u8 = 0x80;
