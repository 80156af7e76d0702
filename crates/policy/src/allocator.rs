//! The allocator itself, and how its parts name a span. What it does is told by the other files, one idea each.

use crate::geometry::Geometry;
use crate::link::Link;
use crate::memory::Memory;
use crate::meta::SlabMeta;
use crate::policy::Policy;
use crate::process::ProcessConfig;

/// The allocator: a memory, a geometry and the run-time choices. Holds no state of its own.
pub struct Allocator<M: Memory, G: Geometry> {
    /// The world.
    pub mem: M,
    /// The shape.
    pub geometry: G,
    /// The choices.
    pub policy: Policy,
    /// What the process decides.
    pub process: ProcessConfig,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// The metadata of one unit.
    #[inline(always)]
    pub(crate) fn unit_meta(&self, superslab: M::SuperSlab, unit: u32) -> &SlabMeta {
        self.mem.slab(self.geometry.meta_place(), superslab, unit)
    }

    /// A link to the block that starts at an offset.
    #[inline(always)]
    pub(crate) fn free_link(&self, start: u32) -> Link {
        Link::to(start, self.geometry.link_bias())
    }

    /// Where a link leads.
    #[inline(always)]
    pub(crate) fn start_at(&self, link: Link) -> Option<u32> {
        link.offset(self.geometry.link_bias())
    }

    /// Where a free block's link lies: after the header, which stays as it is.
    #[inline(always)]
    pub(crate) fn link_at(&self, start: u32) -> u32 {
        start + self.geometry.header_bytes()
    }
}

/// A span, named by its first unit.
pub(crate) struct Span<M: Memory> {
    pub(crate) superslab: M::SuperSlab,
    pub(crate) unit: u32,
}

impl<M: Memory> Clone for Span<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory> Copy for Span<M> {}
