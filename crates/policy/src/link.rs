//! Links of free lists.

/// A link of a free list inside a SuperSlab: the offset of a block, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link(u32);

impl Link {
    /// The end of a list. Reads as zero, so that zeroed metadata holds empty lists.
    pub const NONE: Link = Link(0);

    /// A link to the block at `offset`.
    #[inline(always)]
    pub const fn to(offset: u32) -> Link {
        Link(offset + 1)
    }

    /// The offset it leads to.
    #[inline(always)]
    pub const fn offset(self) -> Option<u32> {
        match self.0 {
            0 => None,
            n => Some(n - 1),
        }
    }

    /// The stored form.
    #[inline(always)]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// From the stored form.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Link {
        Link(bits)
    }
}
