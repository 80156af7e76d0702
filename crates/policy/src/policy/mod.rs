//! A policy: one complete allocator design. The command line, policy files, the native allocator's environment variable
//! and JSON results all use this type.

pub mod flags;
mod keywords;
pub mod process;
mod settings;
pub mod size_classes;
pub mod split;
pub mod units;
pub mod vocabulary;

use core::fmt;

pub use settings::Policy;

use crate::arena::layout::Layout;
use crate::geometry::{GeometryError, RunGeometry};
use crate::heap::front_cache::FRONT_CACHE_MAX;
use crate::limits::HUGE_PAGE_BYTES;
use crate::policy::units::Size;
use crate::policy::vocabulary::{Align, Carve, Header, Huge, SizeClasses};

impl Default for Policy {
    fn default() -> Policy {
        Policy::DEFAULT
    }
}

/// Range of an arena's size, in bytes.
const ARENA_BYTES: core::ops::RangeInclusive<u64> = 64 << 20..=16 << 40;
/// Maximum number of SuperSlabs with separate mappings: the simulator and the native memory keep a table of them.
const MAPPINGS_MAX: u32 = 4 << 20;

/// Why a policy is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// SuperSlab or slab sizes are invalid.
    Geometry(GeometryError),
    /// The header has neither 1 nor 16 bytes.
    HeaderBytes(u32),
    /// The kernel has no huge pages of this size.
    HugePageBytes(u64),
    /// The share of a SuperSlab is above 100 %.
    HugeFill(u32),
    /// The arena is not 64 MiB to 16 TiB.
    Arena(u64),
    /// Pages of the hugetlb pool need an arena.
    AlignHugetlb,
    /// The arena has more SuperSlabs than can have separate mappings.
    AlignCount(u32),
    /// A front cache has more than 255 blocks per class.
    FrontCache(u32),
    /// More than a quarter of the arena is prewarmed or touched at start.
    StartTooLarge,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Geometry(error) => error.fmt(f),
            PolicyError::HeaderBytes(bytes) => write!(f, "a header has 1 or 16 bytes, not {bytes}"),
            PolicyError::HugePageBytes(bytes) => {
                write!(
                    f,
                    "{} is not a huge page size; use 16K, doubling up to 2M (below 2M only with thp)",
                    Size(*bytes)
                )
            }
            PolicyError::Arena(bytes) => write!(f, "the arena size must be 64M to 16T, not {bytes} bytes"),
            PolicyError::AlignHugetlb => {
                f.write_str("pages of the hugetlb pool need an arena; use align arena, or another value of huge")
            }
            PolicyError::AlignCount(superslabs) => write!(
                f,
                "at most {MAPPINGS_MAX} SuperSlabs can have separate mappings, and this arena has {superslabs}; \
                 use a smaller arena or larger SuperSlabs"
            ),
            PolicyError::FrontCache(blocks) => {
                write!(f, "a front cache holds at most {FRONT_CACHE_MAX} blocks per class, not {blocks}")
            }
            PolicyError::HugeFill(percent) => write!(f, "huge-fill is 0 to 100 percent, not {percent}"),
            PolicyError::StartTooLarge => {
                f.write_str("prewarm and startup-touch fill more than a quarter of the arena; use a larger arena")
            }
        }
    }
}

impl core::error::Error for PolicyError {}

/// A valid policy with the geometry and layout that follow from it.
#[derive(Clone, Debug)]
pub struct PreparedPolicy {
    /// The effective policy. `hugetlb-plain` becomes `never` unless a SuperSlab is exactly one huge page.
    pub policy: Policy,
    /// Its geometry, with tables.
    pub geometry: RunGeometry,
    /// Its address layout.
    pub layout: Layout,
}

impl Policy {
    /// The policy that HAKMEM's reports describe: a fixed start-up cost, eager slabs of eight classes with 1-byte
    /// headers, warm pools, purges without delay. Above 1 KiB this policy uses the default size classes, unlike HAKMEM.
    pub const fn hakmem() -> Policy {
        Policy {
            classes: SizeClasses::Hakmem,
            header: Header::Full,
            header_bytes: 1,
            huge: Huge::HugetlbPlain,
            cache_superslabs: 8,
            purge_delay_ns: 0,
            purge_spans: true,
            warm_slabs: 2,
            carve: Carve::Eager,
            startup_touch_bytes: 30 << 20,
            ..Policy::DEFAULT
        }
    }

    /// The default for programs whose memory counts more than their faults: no huge page for a heap's first SuperSlab,
    /// nor for a SuperSlab of which blocks would leave more than a quarter unused.
    pub const fn lean() -> Policy {
        Policy { huge_heaps: 0, huge_fill_percent: 75, ..Policy::DEFAULT }
    }

    /// Names of all presets.
    pub const PRESETS: &'static [&'static str] = &["default", "hakmem", "lean"];

    /// A preset by its name.
    pub fn preset(name: &str) -> Option<Policy> {
        match name {
            "default" => Some(Policy::default()),
            "hakmem" => Some(Policy::hakmem()),
            "lean" => Some(Policy::lean()),
            _ => None,
        }
    }

    /// Whether empty spans of a SuperSlab in use are purged.
    pub fn purges_spans(&self) -> bool {
        self.split().1.purges_spans()
    }

    /// log2 of the pages in a multi-size THP, if the policy expects multi-size THPs; `None` if it expects 2 MiB pages, or
    /// a size that [`Policy::prepare`] refuses.
    pub fn mthp_order(&self) -> Option<usize> {
        is_mthp_size(self.huge_page_bytes).then(|| (self.huge_page_bytes / crate::limits::PAGE_BYTES).ilog2() as usize)
    }

    /// Checks the policy and computes what follows from it.
    ///
    /// # Errors
    /// Values out of range, and values that exclude each other.
    pub fn prepare(&self) -> Result<PreparedPolicy, PolicyError> {
        self.check_ranges()?;
        let geometry = RunGeometry::new(self).map_err(PolicyError::Geometry)?;
        let layout = Layout::new(&geometry, self.arena_bytes).with_align(self.align);
        if self.align != Align::Arena {
            if self.huge.is_hugetlb() {
                return Err(PolicyError::AlignHugetlb);
            }
            if layout.ordinals() > MAPPINGS_MAX {
                return Err(PolicyError::AlignCount(layout.ordinals()));
            }
        }
        let mut policy = *self;
        if policy.huge == Huge::HugetlbPlain && policy.superslab_bytes != HUGE_PAGE_BYTES {
            policy.huge = Huge::Never;
        }
        Ok(PreparedPolicy { policy, geometry, layout })
    }

    fn check_ranges(&self) -> Result<(), PolicyError> {
        if !matches!(self.header_bytes, 1 | 16) {
            return Err(PolicyError::HeaderBytes(self.header_bytes));
        }
        let is_mid_size = self.huge == Huge::Thp && is_mthp_size(self.huge_page_bytes);
        if self.huge_page_bytes != HUGE_PAGE_BYTES && !is_mid_size {
            return Err(PolicyError::HugePageBytes(self.huge_page_bytes));
        }
        if !ARENA_BYTES.contains(&self.arena_bytes) {
            return Err(PolicyError::Arena(self.arena_bytes));
        }
        if self.front_cache > FRONT_CACHE_MAX {
            return Err(PolicyError::FrontCache(self.front_cache));
        }
        if self.huge_fill_percent > 100 {
            return Err(PolicyError::HugeFill(self.huge_fill_percent));
        }
        let prewarmed_bytes = u64::from(self.prewarm_superslabs).saturating_mul(self.superslab_bytes);
        if prewarmed_bytes.saturating_add(self.startup_touch_bytes) > self.arena_bytes / 4 {
            return Err(PolicyError::StartTooLarge);
        }
        Ok(())
    }
}

/// Whether Linux has multi-size THPs of this size for anonymous memory.
pub(crate) fn is_mthp_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (16 << 10..HUGE_PAGE_BYTES).contains(&bytes)
}
