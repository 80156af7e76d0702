//! The allocator type, and the type that identifies a span. Other modules implement the operations.

use crate::geometry::Geometry;
use crate::heap::link::Link;
use crate::memory::{Memory, PageOps};
use crate::metadata::meta::SpanMeta;
use crate::policy::process::ProcessConfig;
use crate::policy::split::{Paging, Placement};

/// The allocator: a memory backend, a geometry and the two halves of a policy. All state is in the memory.
pub struct Allocator<M: Memory, G: Geometry> {
    /// The memory backend.
    pub mem: M,
    /// Sizes and layout.
    pub geometry: G,
    /// What decides where blocks are placed.
    pub placement: Placement,
    /// Private, so that all other code asks: see [`Allocator::paging`].
    paging: Paging,
    /// Settings of the process.
    pub process: ProcessConfig,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// An allocator that has not made any call yet.
    pub(crate) fn on(mem: M, geometry: G, (placement, paging): (Placement, Paging)) -> Allocator<M, G> {
        Allocator { mem, geometry, placement, paging, process: ProcessConfig::default() }
    }

    /// Sets the settings of the process. Call it before the first heap is opened.
    #[must_use]
    pub fn in_process(self, process: ProcessConfig) -> Allocator<M, G> {
        Allocator { process, ..self }
    }

    /// Asks the paging policy a question. Ask as late as possible, and only if the answer matters: a backend that runs
    /// several paging policies on one placement parts those that answer differently.
    pub(crate) fn paging<A: PartialEq>(&self, question: impl Fn(&Paging, &Placement) -> A) -> A {
        self.mem.perform(&self.paging, |paging, _| question(paging, &self.placement))
    }

    /// Performs page operations as the paging policy requires. The result is all that placement learns of them.
    pub(crate) fn perform<A: PartialEq>(&self, operation: impl Fn(&Paging, &dyn PageOps) -> A) -> A {
        self.mem.perform(&self.paging, operation)
    }

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
