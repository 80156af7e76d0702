//! Allocation: the fast path, and the way down when a bin runs dry.

use crate::allocator::Allocator;
use crate::classes::Classes;
use crate::geometry::Geometry;
use crate::heap::{Ready, ThreadHeap};
use crate::limits::{ALIGN_BYTES_MAX, LINK_BYTES, PAGE_BYTES};
use crate::memory::{Block, Memory};
use crate::slab::Contents;
use crate::vocabulary::Header;

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes; 0 counts as 1.
    pub bytes: u64,
    /// Alignment in bytes, a power of two; blocks of more than 8 bytes have 16 anyway.
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
    /// Bytes the caller may use from a request's block on, or what a request is rounded up to.
    #[inline(always)]
    pub(crate) fn need(&self, bytes: u64) -> u64 {
        bytes.max(1).saturating_add(u64::from(self.geometry.header_bytes()))
    }

    /// Allocates a block, or returns `None` where the arena is full or the request is absurd; nothing has changed then.
    #[inline(always)]
    pub fn allocate(&self, heap: &mut ThreadHeap<M>, request: Request) -> Option<Block<M::SuperSlab>> {
        if request.align > 16 {
            return self.allocate_aligned(heap, request);
        }
        // Without a header an empty request finds the smallest class by itself.
        let need = if self.geometry.header_bytes() == 0 { request.bytes } else { self.need(request.bytes) };
        // 16 matters to the smallest class alone: its blocks are 8 bytes apart.
        let need = if request.align == 16 { need.max(16) } else { need };
        if need > u64::from(self.geometry.stride_max()) {
            return self.allocate_beyond(heap, request.bytes, request.align, request.zeroed);
        }
        let class = if need <= Classes::STEP_BYTES_MAX {
            usize::from(heap.steps[Classes::step_of(need)])
        } else {
            self.geometry.classes().class_of(need as u32)
        };
        self.allocate_class(heap, class, request)
    }

    /// Larger than any class. Takes a request's parts, in registers: a request passed on would be built in memory on the
    /// fast path, too.
    #[cold]
    #[inline(never)]
    fn allocate_beyond(
        &self,
        heap: &mut ThreadHeap<M>,
        bytes: u64,
        align: u64,
        zeroed: bool,
    ) -> Option<Block<M::SuperSlab>> {
        self.allocate_big(heap, Request { bytes, align, zeroed })
    }

    #[inline(always)]
    fn allocate_class(&self, heap: &mut ThreadHeap<M>, class: usize, request: Request) -> Option<Block<M::SuperSlab>> {
        if request.zeroed {
            return self.allocate_zeroed(heap, class, request.bytes);
        }
        if let Some(ready) = heap.ready_in(&self.geometry, class) {
            return Some(self.take(heap, ready));
        }
        let refilled = self.refill(heap, class)?;
        Some(self.hand_out(refilled.superslab, refilled.start, class))
    }

    /// Hands out the block that the heap has [ready](ThreadHeap::ready), asked a moment ago: the fast path.
    #[inline(always)]
    pub fn take(&self, heap: &mut ThreadHeap<M>, ready: Ready<M>) -> Block<M::SuperSlab> {
        let Ready { class, superslab, start } = ready;
        heap.ready[class] = self.mem.read_link(superslab, self.link_at(start));
        if self.has_keys() {
            self.mem.write_key(superslab, self.link_at(start), 0);
        }
        self.hand_out(superslab, start, class)
    }

    #[inline(always)]
    fn hand_out(&self, superslab: M::SuperSlab, start: u32, class: usize) -> Block<M::SuperSlab> {
        let header_bytes = self.geometry.header_bytes();
        let tag = HEADER_TAG | class as u8;
        match self.geometry.header() {
            Header::None => {}
            Header::Full => self.mem.write_header(superslab, start, header_bytes, tag),
            Header::Light => {
                if self.mem.read_header(superslab, start) != tag {
                    self.mem.write_header(superslab, start, header_bytes, tag);
                }
            }
            Header::Off => {
                if self.mem.read_header(superslab, start) & HEADER_TAG == 0 {
                    self.mem.write_header(superslab, start, header_bytes, tag);
                }
            }
        }
        Block { superslab, offset: start + header_bytes }
    }

    /// `calloc`: zeroes only what is not known to be zero.
    #[inline(never)]
    fn allocate_zeroed(&self, heap: &mut ThreadHeap<M>, class: usize, bytes: u64) -> Option<Block<M::SuperSlab>> {
        let (block, contents) = match heap.ready_in(&self.geometry, class) {
            Some(ready) => {
                let slab = self.unit_meta(ready.superslab, heap.bins[class].unit);
                let fresh = slab.fresh.get() && slab.zeroed.get();
                (self.take(heap, ready), if fresh { Contents::ZeroButLink } else { Contents::Unknown })
            }
            None => {
                let refilled = self.refill(heap, class)?;
                (self.hand_out(refilled.superslab, refilled.start, class), refilled.contents)
            }
        };
        let superslab = block.superslab;
        match contents {
            Contents::Zero => {}
            Contents::ZeroButLink => self.mem.zero(superslab, u64::from(block.offset), LINK_BYTES),
            Contents::Unknown => self.mem.zero(superslab, u64::from(block.offset), bytes),
        }
        Some(block)
    }

    /// Aligned requests: a class whose stride divides, a large span, or a huge block.
    #[inline(never)]
    fn allocate_aligned(&self, heap: &mut ThreadHeap<M>, request: Request) -> Option<Block<M::SuperSlab>> {
        if !request.align.is_power_of_two() || request.align > ALIGN_BYTES_MAX {
            return None;
        }
        let header_bytes = self.geometry.header_bytes();
        if request.align <= PAGE_BYTES && header_bytes == 0 {
            let classes = self.geometry.classes();
            let least = request.bytes.max(request.align);
            if least <= u64::from(self.geometry.stride_max()) {
                let mut class = classes.class_of(least as u32);
                while class < classes.count() && classes.stride(class) <= self.geometry.stride_max() {
                    if u64::from(classes.stride(class)).is_multiple_of(request.align) {
                        return self.allocate_class(heap, class, request);
                    }
                    class += 1;
                }
            }
        }
        self.allocate_big(heap, request)
    }
}

/// Marks a valid header; the class is in the low bits.
const HEADER_TAG: u8 = 0x80;
