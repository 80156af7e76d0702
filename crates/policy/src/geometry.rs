//! Geometry: the sizes that placement depends on and that the fast paths use.
//!
//! Geometry is a trait: the preloadable allocator uses constants, and a sweep uses run-time values. A test checks that
//! both give the same placement.

use crate::heap::classes::{Classes, STRIDE_MAX};
use crate::metadata::bits::SLICES_MAX;
use crate::policy::Policy;
use crate::policy::vocabulary::{Carve, Header, MetaPlace, SizeClasses};

/// Smallest and largest SuperSlab, in bytes.
pub const SUPERSLAB_BYTES: core::ops::RangeInclusive<u64> = 64 << 10..=32 << 20;
/// Smallest slice, in bytes.
pub const SLICE_BYTES_MIN: u64 = 16 << 10;

/// Alignment of every block of more than 8 bytes, with classes that are multiples of it.
pub const BLOCK_ALIGN: u32 = 16;

/// The sizes and layout of SuperSlabs, slabs and blocks.
pub trait Geometry {
    /// log2 of the SuperSlab's bytes.
    fn superslab_shift(&self) -> u32;
    /// log2 of the slice's bytes. A slice is the smallest span.
    fn slice_shift(&self) -> u32;
    /// The size classes.
    fn classes(&self) -> &Classes;
    /// Whether and how blocks carry a header.
    fn header(&self) -> Header;
    /// Bytes of a block's header; 0 without headers.
    fn header_bytes(&self) -> u32;
    /// How fresh blocks are carved from a slab.
    fn carve(&self) -> Carve;
    /// Where metadata is stored.
    fn meta_place(&self) -> MetaPlace;
    /// Blocks per class in a thread's front cache; 0 for none.
    fn front_cache(&self) -> u32;

    /// The number that a link adds to a block's offset: 1 if a block may start at offset 0, else 0.
    #[inline(always)]
    fn link_bias(&self) -> u32 {
        link_bias(self.meta_place())
    }

    /// Slices in a SuperSlab.
    #[inline(always)]
    fn slices(&self) -> u32 {
        1 << (self.superslab_shift() - self.slice_shift())
    }

    /// Largest stride of a slab's blocks: that of the largest class up to the smallest of a slice, an eighth of the
    /// SuperSlab, and 64 KiB.
    fn stride_max(&self) -> u32;

    /// Alignment of every block of more than 8 bytes. Requests for more take a slower path. With headers of 1 byte it
    /// is not kept.
    fn block_align(&self) -> u32;

    /// Largest request, in bytes, that is served by a span. Larger blocks are huge.
    #[inline(always)]
    fn large_bytes_max(&self) -> u64 {
        1 << (self.superslab_shift() - 1)
    }
}

/// See [`Geometry::link_bias`].
#[inline(always)]
const fn link_bias(place: MetaPlace) -> u32 {
    match place {
        MetaPlace::InBand => 0,
        MetaPlace::Sidecar => 1,
    }
}

/// The smallest of a slice, an eighth of the SuperSlab, and 64 KiB.
#[inline(always)]
const fn stride_limit(superslab_shift: u32, slice_shift: u32) -> u32 {
    let shift = if slice_shift < superslab_shift - 3 { slice_shift } else { superslab_shift - 3 };
    if shift < STRIDE_MAX.ilog2() { 1 << shift } else { STRIDE_MAX }
}

/// Whether two geometries give the same placement.
pub fn is_same(one: &impl Geometry, other: &impl Geometry) -> bool {
    one.superslab_shift() == other.superslab_shift()
        && one.slice_shift() == other.slice_shift()
        && one.classes() == other.classes()
        && one.header() == other.header()
        && one.header_bytes() == other.header_bytes()
        && one.carve() == other.carve()
        && one.meta_place() == other.meta_place()
        && one.front_cache() == other.front_cache()
}

/// Why a geometry is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryError {
    /// A size is not a power of two.
    NotPowerOfTwo,
    /// The SuperSlab is not 64 KiB to 32 MiB.
    SuperSlab,
    /// The slab is smaller than 16 KiB or larger than the SuperSlab, or a SuperSlab would hold more than 512 slabs.
    Slab,
    /// All size classes are larger than a slab, or an eighth of the SuperSlab.
    Classes,
}

impl core::fmt::Display for GeometryError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            GeometryError::NotPowerOfTwo => "superslab and slab sizes must be powers of two",
            GeometryError::SuperSlab => "the superslab size must be 64K to 32M",
            GeometryError::Slab => {
                "the slab size must be 16K to the superslab size, with at most 512 slabs in a superslab"
            }
            GeometryError::Classes => {
                "the smallest size class must be at most the slab size and an eighth of the superslab size; \
                 list a smaller class, or use larger superslabs"
            }
        })
    }
}

/// Geometry with run-time values, for sweeps.
#[derive(Clone, Debug)]
pub struct RunGeometry {
    superslab_shift: u32,
    slice_shift: u32,
    classes: Classes,
    header: Header,
    header_bytes: u32,
    carve: Carve,
    meta_place: MetaPlace,
    front_cache: u32,
    link_bias: u32,
    stride_max: u32,
    block_align: u32,
}

impl RunGeometry {
    /// Builds the geometry of a policy.
    ///
    /// # Errors
    /// Sizes that are not powers of two or are out of range; size classes that are all too large.
    pub fn new(policy: &Policy) -> Result<RunGeometry, GeometryError> {
        let &Policy { superslab_bytes, slab_bytes, header, .. } = policy;
        if !superslab_bytes.is_power_of_two() || !slab_bytes.is_power_of_two() {
            return Err(GeometryError::NotPowerOfTwo);
        }
        if !SUPERSLAB_BYTES.contains(&superslab_bytes) {
            return Err(GeometryError::SuperSlab);
        }
        if slab_bytes < SLICE_BYTES_MIN
            || slab_bytes > superslab_bytes
            || superslab_bytes / slab_bytes > u64::from(SLICES_MAX)
        {
            return Err(GeometryError::Slab);
        }
        let (superslab_shift, slice_shift) = (superslab_bytes.ilog2(), slab_bytes.ilog2());
        let classes = Classes::new(policy.classes);
        let stride_max = classes.stride_up_to(stride_limit(superslab_shift, slice_shift));
        let header_bytes = if header == Header::None { 0 } else { policy.header_bytes };
        Ok(RunGeometry {
            superslab_shift,
            slice_shift,
            stride_max: stride_max.ok_or(GeometryError::Classes)?,
            block_align: if header_bytes == 1 { BLOCK_ALIGN } else { classes.block_align() },
            classes,
            header,
            header_bytes,
            carve: policy.carve,
            meta_place: policy.meta,
            front_cache: policy.front_cache,
            link_bias: link_bias(policy.meta),
        })
    }
}

impl Geometry for RunGeometry {
    #[inline(always)]
    fn stride_max(&self) -> u32 {
        self.stride_max
    }
    #[inline(always)]
    fn block_align(&self) -> u32 {
        self.block_align
    }
    #[inline(always)]
    fn superslab_shift(&self) -> u32 {
        self.superslab_shift
    }
    #[inline(always)]
    fn slice_shift(&self) -> u32 {
        self.slice_shift
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
    #[inline(always)]
    fn front_cache(&self) -> u32 {
        self.front_cache
    }
    #[inline(always)]
    fn link_bias(&self) -> u32 {
        self.link_bias
    }
}

/// Geometry with compile-time constants: default classes, no header, carving by page, in-band metadata, no
/// front cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConstGeometry<const SUPERSLAB_SHIFT: u32, const SLICE_SHIFT: u32>;

static DEFAULT_CLASSES: Classes = Classes::new(SizeClasses::Default);

impl<const S: u32, const U: u32> ConstGeometry<S, U> {
    const VALID: () = {
        assert!(S >= 16 && S <= 25, "the superslab size must be 64K to 32M");
        assert!(U >= 14 && U <= S && S - U <= 9, "the slab size must be 16K to the superslab size, at most 512 slabs");
    };
}

impl<const S: u32, const U: u32> Geometry for ConstGeometry<S, U> {
    #[inline(always)]
    fn stride_max(&self) -> u32 {
        // The default's classes contain every power of two.
        stride_limit(S, U)
    }
    #[inline(always)]
    fn block_align(&self) -> u32 {
        BLOCK_ALIGN
    }
    #[inline(always)]
    fn superslab_shift(&self) -> u32 {
        const { Self::VALID };
        S
    }
    #[inline(always)]
    fn slice_shift(&self) -> u32 {
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
    #[inline(always)]
    fn front_cache(&self) -> u32 {
        0
    }
}
