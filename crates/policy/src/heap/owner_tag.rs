//! The owner tag of a slice: one word that decides whether a free takes the fast path.
//!
//! The tag equals the *fast-free tag* of a heap if that heap owns the slab, the slab is not full, and the slice is the
//! slab's first. In every other case it differs from all fast-free tags, and the slow path finds the reason. Any thread
//! may read the tag.
//!
//! For a reader that holds a block of the span, only the owner can be stale, and a stale owner is never the reader:
//! only a heap's own thread writes that heap's number, and a slot is reopened only after all tags of its previous heap
//! were cleared.

use crate::limits::HEAPS_MAX;
use crate::metadata::field::SharedField;

/// The owning heap + 1; 0 while abandoned.
const OWNER: u32 = 0xFFFF;
/// The slice is part of a span.
const IN_SPAN: u32 = 1 << 16;
/// The slice is not the span's first.
const NOT_FIRST: u32 = 1 << 17;
/// The span is full, or holds one large block.
const FULL: u32 = 1 << 18;

const _: () = assert!(HEAPS_MAX <= OWNER);

/// A slice's owner tag. Zero means that the slice is not part of a span.
#[derive(Default)]
#[repr(transparent)]
pub struct OwnerTag(SharedField);

/// The owner tag that lets heap `id` free on the fast path.
#[inline(always)]
pub(crate) const fn fast_free_tag(id: u32) -> u32 {
    (id + 1) | IN_SPAN
}

/// Equals no owner tag. With this fast-free tag, a heap pushes no freed block onto a slab's list on the fast path: the
/// block goes to its front cache, if it has one with a tag of its own, or to the slow path.
pub(crate) const NO_FAST_FREE: u32 = u32::MAX;

impl OwnerTag {
    /// The tag of a slice that is not part of a span.
    pub const fn none() -> OwnerTag {
        OwnerTag(SharedField::new(0))
    }

    /// The raw value.
    #[inline(always)]
    pub fn word(&self) -> u32 {
        self.0.get()
    }

    /// Records that the slice is not part of a span.
    pub fn clear(&self) {
        self.0.set(0);
    }

    /// Records that the slice is part of a span of heap `id`, either the first or a later slice.
    pub(crate) fn begin(&self, id: u32, is_first: bool) {
        self.0.set((id + 1) | IN_SPAN | if is_first { 0 } else { NOT_FIRST });
    }

    /// Whether the slice is part of a span.
    pub(crate) fn is_in_span(&self) -> bool {
        self.word() & IN_SPAN != 0
    }

    /// Whether the slice is the first of a span, full or not, of the heap with this fast-free tag (or tag of a front
    /// cache).
    #[inline(always)]
    pub(crate) fn is_owned_by(&self, tag: u32) -> bool {
        self.word() & !FULL == tag
    }

    /// Sets the owner word; 0 means no owner.
    pub(crate) fn set_owner(&self, owner: u64) {
        self.0.set(self.word() & !OWNER | owner as u32 & OWNER);
    }

    /// Sets whether the span has no free blocks.
    pub(crate) fn set_full(&self, full: bool) {
        self.0.set(if full { self.word() | FULL } else { self.word() & !FULL });
    }
}
