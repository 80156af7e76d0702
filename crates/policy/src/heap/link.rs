//! Links of free lists.

/// A link of a free list inside a SuperSlab: the offset of a block plus a bias, or none.
///
/// The bias (see [`link_bias`](crate::Geometry::link_bias)) distinguishes a link to offset 0 from the end of a list.
/// With in-band metadata no block starts at offset 0, so the bias is 0, which saves an instruction on each fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link(u32);

impl Link {
    /// The end of a list. All bits are zero, so that zeroed metadata holds empty lists.
    pub const NONE: Link = Link(0);

    /// A link to the block at `offset`.
    #[inline(always)]
    pub(crate) const fn to(offset: u32, bias: u32) -> Link {
        Link(offset + bias)
    }

    /// The offset that the link points to; `None` at the end of a list.
    #[inline(always)]
    pub(crate) const fn offset(self, bias: u32) -> Option<u32> {
        match self.0 {
            0 => None,
            n => Some(n - bias),
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
