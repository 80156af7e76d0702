//! Geometry: the shape that placement depends on and the fast paths compute with.
//!
//! A trait, so that the preloadable allocator has it as constants and a sweep as a value; one test holds that
//! both place alike.

use crate::bits::UNITS_MAX;
use crate::classes::{Classes, STRIDE_MAX};
use crate::policy::Policy;
use crate::vocabulary::{Carve, Header, MetaPlace, SizeClasses};

/// Smallest and largest SuperSlab, in bytes.
pub const SUPERSLAB_BYTES: core::ops::RangeInclusive<u64> = 64 << 10..=32 << 20;
/// Smallest unit, in bytes.
pub const UNIT_BYTES_MIN: u64 = 16 << 10;

/// The shape of SuperSlabs, slabs and blocks.
pub trait Geometry {
    /// log2 of the SuperSlab's bytes.
    fn superslab_shift(&self) -> u32;
    /// log2 of the unit's bytes: the span of one small slab.
    fn unit_shift(&self) -> u32;
    /// The size classes.
    fn classes(&self) -> &Classes;
    /// Whether and how blocks carry a header.
    fn header(&self) -> Header;
    /// Bytes of a block's header; 0 without headers.
    fn header_bytes(&self) -> u32;
    /// How fresh blocks are handed out.
    fn carve(&self) -> Carve;
    /// Where metadata lives.
    fn meta_place(&self) -> MetaPlace;

    /// What is added to a block's offset to make a link of it: 1 where a block may begin at offset 0.
    #[inline(always)]
    fn link_bias(&self) -> u32 {
        match self.meta_place() {
            MetaPlace::InBand => 0,
            MetaPlace::Sidecar => 1,
        }
    }

    /// Units in a SuperSlab.
    #[inline(always)]
    fn units(&self) -> u32 {
        1 << (self.superslab_shift() - self.unit_shift())
    }

    /// Largest stride that lives in a slab at all (a unit or an eighth of the SuperSlab, 64 KiB at most).
    #[inline(always)]
    fn stride_max(&self) -> u32 {
        stride_max(self)
    }

    /// Largest request, in bytes, that a span inside a SuperSlab serves; above it the block is huge.
    #[inline(always)]
    fn large_bytes_max(&self) -> u64 {
        1 << (self.superslab_shift() - 1)
    }
}

#[inline(always)]
fn stride_max(geometry: &(impl Geometry + ?Sized)) -> u32 {
    let shift = geometry.unit_shift().min(geometry.superslab_shift() - 3);
    if shift < STRIDE_MAX.ilog2() { 1 << shift } else { STRIDE_MAX }
}

/// Why a geometry can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryError {
    /// A size is no power of two.
    NotPowerOfTwo,
    /// The SuperSlab lies outside 64 KiB to 32 MiB.
    SuperSlab,
    /// The slab lies outside 16 KiB to the SuperSlab, or there would be more than 512 in a SuperSlab.
    Slab,
}

impl core::fmt::Display for GeometryError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            GeometryError::NotPowerOfTwo => "superslab and slab sizes must be powers of two",
            GeometryError::SuperSlab => "a superslab has 64K to 32M",
            GeometryError::Slab => "a slab has 16K to one superslab, and a superslab at most 512 slabs",
        })
    }
}

/// Geometry as a value: what a sweep varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunGeometry {
    superslab_shift: u32,
    unit_shift: u32,
    classes: Classes,
    header: Header,
    header_bytes: u32,
    carve: Carve,
    meta_place: MetaPlace,
    /// Kept, since every allocation asks for it.
    stride_max: u32,
}

impl RunGeometry {
    /// Builds the geometry of a policy.
    ///
    /// # Errors
    /// Sizes that are no powers of two or out of range.
    pub fn new(policy: &Policy) -> Result<RunGeometry, GeometryError> {
        let &Policy { superslab_bytes, slab_bytes, header, .. } = policy;
        if !superslab_bytes.is_power_of_two() || !slab_bytes.is_power_of_two() {
            return Err(GeometryError::NotPowerOfTwo);
        }
        if !SUPERSLAB_BYTES.contains(&superslab_bytes) {
            return Err(GeometryError::SuperSlab);
        }
        if slab_bytes < UNIT_BYTES_MIN
            || slab_bytes > superslab_bytes
            || superslab_bytes / slab_bytes > u64::from(UNITS_MAX)
        {
            return Err(GeometryError::Slab);
        }
        let mut geometry = RunGeometry {
            superslab_shift: superslab_bytes.ilog2(),
            unit_shift: slab_bytes.ilog2(),
            classes: Classes::new(policy.classes),
            header,
            header_bytes: if header == Header::None { 0 } else { policy.header_bytes },
            carve: policy.carve,
            meta_place: policy.meta,
            stride_max: 0,
        };
        geometry.stride_max = stride_max(&geometry);
        Ok(geometry)
    }
}

impl Geometry for RunGeometry {
    #[inline(always)]
    fn stride_max(&self) -> u32 {
        self.stride_max
    }
    #[inline(always)]
    fn superslab_shift(&self) -> u32 {
        self.superslab_shift
    }
    #[inline(always)]
    fn unit_shift(&self) -> u32 {
        self.unit_shift
    }
    #[inline(always)]
    fn classes(&self) -> &Classes {
        &self.classes
    }
    #[inline(always)]
    fn header(&self) -> Header {
        self.header
    }
    #[inline(always)]
    fn header_bytes(&self) -> u32 {
        self.header_bytes
    }
    #[inline(always)]
    fn carve(&self) -> Carve {
        self.carve
    }
    #[inline(always)]
    fn meta_place(&self) -> MetaPlace {
        self.meta_place
    }
}

/// Geometry as constants: default classes, no header, carving by page, in-band metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConstGeometry<const SUPERSLAB_SHIFT: u32, const UNIT_SHIFT: u32>;

static DEFAULT_CLASSES: Classes = Classes::new(SizeClasses::Default);

impl<const S: u32, const U: u32> ConstGeometry<S, U> {
    const VALID: () = {
        assert!(S >= 16 && S <= 25, "a superslab has 64K to 32M");
        assert!(U >= 14 && U <= S && S - U <= 9, "a slab has 16K to one superslab, at most 512 of them");
    };
}

impl<const S: u32, const U: u32> Geometry for ConstGeometry<S, U> {
    #[inline(always)]
    fn superslab_shift(&self) -> u32 {
        const { Self::VALID };
        S
    }
    #[inline(always)]
    fn unit_shift(&self) -> u32 {
        U
    }
    #[inline(always)]
    fn classes(&self) -> &Classes {
        &DEFAULT_CLASSES
    }
    #[inline(always)]
    fn header(&self) -> Header {
        Header::None
    }
    #[inline(always)]
    fn header_bytes(&self) -> u32 {
        0
    }
    #[inline(always)]
    fn carve(&self) -> Carve {
        Carve::Page
    }
    #[inline(always)]
    fn meta_place(&self) -> MetaPlace {
        MetaPlace::InBand
    }
}
