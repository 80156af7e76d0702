//! The allocator type, and the type that identifies a span. Other modules implement the operations.

use crate::geometry::Geometry;
use crate::heap::link::Link;
use crate::memory::Memory;
use crate::metadata::meta::SpanMeta;
use crate::policy::Policy;
use crate::policy::process::ProcessConfig;

/// The allocator: a memory backend, a geometry and a policy. All state is in the memory.
pub struct Allocator<M: Memory, G: Geometry> {
    /// The memory backend.
    pub mem: M,
    /// Sizes and layout.
    pub geometry: G,
    /// The policy.
    pub policy: Policy,
    /// Settings of the process.
    pub process: ProcessConfig,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// The metadata of one slice.
    #[inline(always)]
    pub(crate) fn slice_meta(&self, superslab: M::SuperSlab, slice: u32) -> &SpanMeta {
        self.mem.slice_meta(self.geometry.meta_place(), superslab, slice)
    }

    /// A link to the block that starts at an offset.
    #[inline(always)]
    pub(crate) fn free_link(&self, start: u32) -> Link {
        Link::to(start, self.geometry.link_bias())
    }

    /// The start of the block that a link points to; `None` at the end of a list.
    #[inline(always)]
    pub(crate) fn start_at(&self, link: Link) -> Option<u32> {
        link.offset(self.geometry.link_bias())
    }

    /// The offset of a free block's link. The link follows the block's header, so that the header stays intact.
    #[inline(always)]
    pub(crate) fn link_at(&self, start: u32) -> u32 {
        start + self.geometry.header_bytes()
    }
}

/// Identifies a span by its first slice.
pub(crate) struct Span<M: Memory> {
    pub(crate) superslab: M::SuperSlab,
    pub(crate) slice: u32,
}

impl<M: Memory> Clone for Span<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory> Copy for Span<M> {}
