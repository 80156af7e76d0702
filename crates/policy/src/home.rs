//! A unit's home: one word that tells a free at once whether it may take the fast path.
//!
//! It equals the *quick word* of one heap where the unit is the first of a slab which that heap owns and which is
//! not full. In every other case it differs from all quick words, and the slow path finds out why. Any thread may read it.
//! What a reader can see, if it holds a block of the span, is old only as to the owner, and an old owner is another one
//! than the reader: only a heap's own thread writes its name, and a slot's next heap opens after all its homes were cleared.

use crate::field::SharedField;
use crate::limits::HEAPS_MAX;

/// The owning heap + 1; 0 while abandoned.
const OWNER: u32 = 0xFFFF;
/// A span holds the unit.
const HELD: u32 = 1 << 16;
/// It is not the span's first.
const FURTHER: u32 = 1 << 17;
/// The span is full, or holds one large block.
const FULL: u32 = 1 << 18;

const _: () = assert!(HEAPS_MAX <= OWNER);

/// A unit's home word. Zero: no span holds it.
#[derive(Default)]
#[repr(transparent)]
pub struct Home(SharedField);

/// The home word of units that heap `id` frees into quickly.
#[inline(always)]
pub(crate) const fn quick_word(id: u32) -> u32 {
    (id + 1) | HELD
}

/// Equals no home word: a heap that looks closely at every free has it for its quick word.
pub(crate) const NO_HOME: u32 = u32::MAX;

impl Home {
    /// No span's.
    pub const fn none() -> Home {
        Home(SharedField::new(0))
    }

    /// The word itself.
    #[inline(always)]
    pub fn word(&self) -> u32 {
        self.0.get()
    }

    /// No span holds the unit.
    pub fn clear(&self) {
        self.0.set(0);
    }

    /// The unit is the first of a span of heap `id`, or a further one.
    pub(crate) fn begin(&self, id: u32, is_first: bool) {
        self.0.set((id + 1) | HELD | if is_first { 0 } else { FURTHER });
    }

    /// Whether a span holds the unit.
    pub(crate) fn is_held(&self) -> bool {
        self.word() & HELD != 0
    }

    /// Whether the unit is the first of a span that the heap with this quick word owns, full or not.
    #[inline(always)]
    pub(crate) fn is_in(&self, quick: u32) -> bool {
        self.word() & !FULL == quick
    }

    /// The span changes hands: to this owner word, which is 0 for nobody.
    pub(crate) fn hand_to(&self, owner: u64) {
        self.0.set(self.word() & !OWNER | owner as u32 & OWNER);
    }

    /// Whether the span has no free blocks.
    pub(crate) fn set_full(&self, full: bool) {
        self.0.set(if full { self.word() | FULL } else { self.word() & !FULL });
    }
}
