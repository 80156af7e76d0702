//! A design: one point of the space that users explore, in the words of the command line and of policy files.

use hksim_policy::classes::Scheme;
use hksim_policy::geometry::{RunGeometry, Shape, ShapeError};
use hksim_policy::layout::Layout;
use hksim_policy::options::{
    Align as PolicyAlign, Carve, Fallback, Header as PolicyHeader, Huge as PolicyHuge, MetaPlace, Options,
    Prefault as PolicyPrefault, PrefaultScope as PolicyScope, Purge as PolicyPurge,
};
use serde::{Deserialize, Serialize};

/// A closed set of words, each standing for a value of the policy.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident => $target:ty { $($(#[$variant_doc:meta])* $variant:ident = $word:literal => $value:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// Every value, in the order of the help text.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The word of the command line.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

            /// The value that a word stands for.
            pub fn from_word(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }

            /// What the policy calls it.
            pub fn policy(self) -> $target {
                match self { $($name::$variant => $value,)* }
            }
        }
    };
}

words! {
    /// Size classes.
    Classes => Scheme {
        /// 8; 16 to 128 by 16; then four per doubling.
        Default = "default" => Scheme::Default,
        /// 8 to 1024 by doubling; above that the default ones (not HAKMEM's).
        Hakmem = "hakmem" => Scheme::Hakmem,
        /// 8; by 16 to 1024; then four per doubling.
        Linear = "linear" => Scheme::Linear,
    }
}

words! {
    /// Block headers.
    Header => PolicyHeader {
        /// No header.
        None = "none" => PolicyHeader::None,
        /// Written at every allocation.
        Full = "full" => PolicyHeader::Full,
        /// Written if it differs.
        Light = "light" => PolicyHeader::Light,
        /// Written only if it is corrupt.
        Off = "off" => PolicyHeader::Off,
    }
}

words! {
    /// Huge pages.
    Huge => PolicyHuge {
        /// None.
        Never = "never" => PolicyHuge::Never,
        /// `MADV_HUGEPAGE` on the arena.
        Thp = "thp" => PolicyHuge::Thp,
        /// Nothing is asked for, on a kernel that gives huge pages to everybody.
        ThpAlways = "thp-always" => PolicyHuge::Always,
        /// `MADV_COLLAPSE` of each SuperSlab when its last unit is taken.
        Collapse = "collapse" => PolicyHuge::Collapse,
        /// The advice of `thp`, on a kernel whose largest size of huge pages is this one; so are the next.
        Mthp16K = "mthp-16K" => PolicyHuge::Thp,
        /// 32 KiB.
        Mthp32K = "mthp-32K" => PolicyHuge::Thp,
        /// 64 KiB.
        Mthp64K = "mthp-64K" => PolicyHuge::Thp,
        /// 128 KiB.
        Mthp128K = "mthp-128K" => PolicyHuge::Thp,
        /// 256 KiB.
        Mthp256K = "mthp-256K" => PolicyHuge::Thp,
        /// 512 KiB.
        Mthp512K = "mthp-512K" => PolicyHuge::Thp,
        /// 1 MiB.
        Mthp1M = "mthp-1M" => PolicyHuge::Thp,
        /// `MAP_HUGETLB`, else thp, else 4K.
        Hugetlb = "hugetlb" => PolicyHuge::Hugetlb(Fallback::Thp),
        /// `MAP_HUGETLB`, else a plain map (HAKMEM).
        HugetlbPlain = "hugetlb-plain" => PolicyHuge::Hugetlb(Fallback::Plain),
    }
}

impl Huge {
    /// log2 of the pages of the size that it is about, where that is one between 4K and 2M.
    pub fn mthp_order(self) -> Option<usize> {
        match self {
            Huge::Mthp16K => Some(2),
            Huge::Mthp32K => Some(3),
            Huge::Mthp64K => Some(4),
            Huge::Mthp128K => Some(5),
            Huge::Mthp256K => Some(6),
            Huge::Mthp512K => Some(7),
            Huge::Mthp1M => Some(8),
            Huge::Never | Huge::Thp | Huge::ThpAlways | Huge::Collapse | Huge::Hugetlb | Huge::HugetlbPlain => None,
        }
    }
}

words! {
    /// Prefaulting.
    Prefault => PolicyPrefault {
        /// None.
        Off = "off" => PolicyPrefault::Off,
        /// `MAP_POPULATE`, before any huge-page advice.
        Populate = "populate" => PolicyPrefault::Populate,
        /// `MADV_POPULATE_WRITE`, after the advice.
        PopulateWrite = "populate-write" => PolicyPrefault::PopulateWrite,
        /// `MADV_POPULATE_READ`, after the advice.
        PopulateRead = "populate-read" => PolicyPrefault::PopulateRead,
        /// One byte written per page.
        Touch = "touch" => PolicyPrefault::Touch,
        /// Zeros over the whole range.
        Memset = "memset" => PolicyPrefault::Memset,
    }
}

words! {
    /// When prefaulting happens.
    PrefaultScope => PolicyScope {
        /// As a SuperSlab is taken into use.
        SuperSlab = "superslab" => PolicyScope::SuperSlab,
        /// As a span is taken.
        Slab = "slab" => PolicyScope::Slab,
        /// Only prewarmed SuperSlabs.
        Init = "init" => PolicyScope::Init,
    }
}

words! {
    /// How memory is given back.
    Purge => PolicyPurge {
        /// Never.
        None = "none" => PolicyPurge::None,
        /// `MADV_DONTNEED`.
        DontNeed = "dontneed" => PolicyPurge::DontNeed,
        /// `MADV_FREE`.
        Free = "free" => PolicyPurge::Free,
        /// `munmap`, then re-reserved in place.
        Unmap = "unmap" => PolicyPurge::Unmap,
    }
}

words! {
    /// Where SuperSlabs lie.
    Align => PolicyAlign {
        /// At multiples of their size in one reservation.
        Arena = "arena" => PolicyAlign::Arena,
        /// On maps of their own, made too large and trimmed.
        Trim = "trim" => PolicyAlign::Trim,
        /// On maps of their own, as the kernel aligns them; else trimmed.
        Kernel = "kernel" => PolicyAlign::Kernel,
    }
}

words! {
    /// Where metadata lives.
    Meta => MetaPlace {
        /// In the SuperSlab.
        InBand = "inband" => MetaPlace::InBand,
        /// In a dense map of its own.
        Sidecar = "sidecar" => MetaPlace::Sidecar,
    }
}

words! {
    /// How fresh blocks are handed out.
    CarveRule => Carve {
        /// To the end of the current page.
        Page = "page" => Carve::Page,
        /// One at a time.
        Bump = "bump" => Carve::Bump,
        /// The whole slab.
        Eager = "eager" => Carve::Eager,
    }
}

/// A policy in full. Sizes in bytes, times in nanoseconds of the event clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Design {
    /// SuperSlab size, 64K to 32M.
    pub superslab_bytes: u64,
    /// Slab (unit) size, 16K up to the SuperSlab.
    pub slab_bytes: u64,
    /// Size classes.
    pub classes: Classes,
    /// Block headers.
    pub header: Header,
    /// Bytes of a header where there is one: 1 or 16.
    pub header_bytes: u32,
    /// Huge pages.
    pub huge: Huge,
    /// Prefault verb.
    pub prefault: Prefault,
    /// Prefault scope.
    pub prefault_scope: PrefaultScope,
    /// SuperSlabs reserved at start.
    pub prewarm_superslabs: u32,
    /// Empty SuperSlabs kept.
    pub cache_superslabs: u32,
    /// Heaps that get huge pages with their first SuperSlab (`--huge thp` and the mTHP sizes).
    pub huge_heaps: u32,
    /// Purge verb.
    pub purge: Purge,
    /// How long memory lies unused before it is purged.
    pub purge_delay_ns: u64,
    /// Whether empty spans are purged in spite of huge pages.
    pub purge_spans: bool,
    /// Empty slabs kept per class beside the active one.
    pub warm_slabs: u32,
    /// Where SuperSlabs lie.
    pub align: Align,
    /// Metadata place.
    pub meta: Meta,
    /// Carving.
    pub carve: CarveRule,
    /// Bytes touched once at start.
    pub startup_touch_bytes: u64,
    /// Freed huge blocks kept for reuse.
    pub huge_cache_bytes: u64,
    /// Address space of the arena.
    pub arena_bytes: u64,
}

impl Default for Design {
    fn default() -> Design {
        let options = Options::default();
        Design {
            superslab_bytes: 2 << 20,
            slab_bytes: 64 << 10,
            classes: Classes::Default,
            header: Header::None,
            header_bytes: 1,
            huge: Huge::Thp,
            prefault: Prefault::Off,
            prefault_scope: PrefaultScope::SuperSlab,
            prewarm_superslabs: options.prewarm_superslabs,
            cache_superslabs: options.cache_superslabs,
            huge_heaps: options.huge_heaps,
            purge: Purge::DontNeed,
            purge_delay_ns: options.purge_delay_ns,
            purge_spans: options.purge_spans,
            warm_slabs: options.warm_slabs,
            align: Align::Arena,
            meta: Meta::InBand,
            carve: CarveRule::Page,
            startup_touch_bytes: options.startup_touch_bytes,
            huge_cache_bytes: options.huge_cache_bytes,
            arena_bytes: 64 << 30,
        }
    }
}

/// Most SuperSlabs that can have maps of their own: both worlds keep a table of them.
const MAPS_MAX: u32 = 4 << 20;

/// Why a design can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesignError {
    /// Its sizes.
    Shape(ShapeError),
    /// A header of another size than 1 or 16 bytes.
    HeaderBytes(u32),
    /// An arena outside 64 MiB to 16 TiB.
    Arena(u64),
    /// Reserved huge pages under maps of SuperSlabs' own.
    AlignHugetlb,
    /// More SuperSlabs than can have maps of their own.
    AlignCount(u64),
    /// More prewarmed bytes, or more touched at start, than a quarter of the arena.
    StartTooLarge,
}

impl std::fmt::Display for DesignError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DesignError::Shape(error) => error.fmt(f),
            DesignError::HeaderBytes(bytes) => write!(f, "a header has 1 or 16 bytes, not {bytes}"),
            DesignError::Arena(bytes) => write!(f, "an arena has 64M to 16T, not {bytes} bytes"),
            DesignError::AlignHugetlb => {
                f.write_str("reserved huge pages are mapped over an arena only; use align arena, or another huge")
            }
            DesignError::AlignCount(superslabs) => write!(
                f,
                "at most {MAPS_MAX} SuperSlabs can have maps of their own, and this arena has {superslabs}; \
                 use a smaller arena or larger SuperSlabs"
            ),
            DesignError::StartTooLarge => {
                f.write_str("prewarming and start-up touch fill more than a quarter of the arena")
            }
        }
    }
}

impl std::error::Error for DesignError {}

/// A design made ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The geometry with its tables.
    pub geometry: RunGeometry,
    /// What the slow paths look at.
    pub options: Options,
    /// Where everything lies.
    pub layout: Layout,
}

impl Design {
    /// The shape that HAKMEM's reports describe: a fixed start-up cost, eager 1-byte-header slabs of eight classes,
    /// warm pools, purges without delay. Above 1 KiB it has the default classes, which are not HAKMEM's.
    pub fn hakmem() -> Design {
        Design {
            classes: Classes::Hakmem,
            header: Header::Full,
            header_bytes: 1,
            huge: Huge::HugetlbPlain,
            cache_superslabs: 8,
            purge_delay_ns: 0,
            purge_spans: true,
            warm_slabs: 2,
            carve: CarveRule::Eager,
            startup_touch_bytes: 30 << 20,
            ..Design::default()
        }
    }

    /// A preset by its name.
    pub fn preset(name: &str) -> Option<Design> {
        match name {
            "default" => Some(Design::default()),
            "hakmem" => Some(Design::hakmem()),
            _ => None,
        }
    }

    /// Names of all presets.
    pub const PRESETS: [&'static str; 2] = ["default", "hakmem"];

    /// Checks a design and lays it out.
    ///
    /// # Errors
    /// Sizes that cannot be.
    pub fn plan(&self) -> Result<Plan, DesignError> {
        if !matches!(self.header_bytes, 1 | 16) {
            return Err(DesignError::HeaderBytes(self.header_bytes));
        }
        if !(64 << 20..=16 << 40).contains(&self.arena_bytes) {
            return Err(DesignError::Arena(self.arena_bytes));
        }
        let warm = u64::from(self.prewarm_superslabs).saturating_mul(self.superslab_bytes);
        if warm.saturating_add(self.startup_touch_bytes) > self.arena_bytes / 4 {
            return Err(DesignError::StartTooLarge);
        }
        let geometry = RunGeometry::new(Shape {
            superslab_bytes: self.superslab_bytes,
            slab_bytes: self.slab_bytes,
            scheme: self.classes.policy(),
            header: self.header.policy(),
            header_bytes: self.header_bytes,
            carve: self.carve.policy(),
            meta_place: self.meta.policy(),
        })
        .map_err(DesignError::Shape)?;
        let layout = Layout::new(&geometry, self.arena_bytes).with_align(self.align.policy());
        if self.align != Align::Arena {
            if matches!(self.huge.policy(), PolicyHuge::Hugetlb(_)) {
                return Err(DesignError::AlignHugetlb);
            }
            if layout.ordinals() > MAPS_MAX {
                return Err(DesignError::AlignCount(u64::from(layout.ordinals())));
            }
        }
        Ok(Plan { geometry, options: self.options(), layout })
    }

    fn options(&self) -> Options {
        // HAKMEM asks for huge pages only where a SuperSlab is exactly one of them.
        let huge = match self.huge {
            Huge::HugetlbPlain if self.superslab_bytes != hksim_policy::HUGE_PAGE_BYTES => PolicyHuge::Never,
            huge => huge.policy(),
        };
        Options {
            huge,
            huge_page_bytes: self
                .huge
                .mthp_order()
                .map_or(hksim_policy::HUGE_PAGE_BYTES, |order| hksim_policy::PAGE_BYTES << order),
            align: self.align.policy(),
            prefault: self.prefault.policy(),
            prefault_scope: self.prefault_scope.policy(),
            prewarm_superslabs: self.prewarm_superslabs,
            cache_superslabs: self.cache_superslabs,
            huge_heaps: self.huge_heaps,
            purge: self.purge.policy(),
            purge_delay_ns: self.purge_delay_ns,
            purge_spans: self.purge_spans,
            warm_slabs: self.warm_slabs,
            huge_cache_bytes: self.huge_cache_bytes,
            startup_touch_bytes: self.startup_touch_bytes,
            ..Options::default()
        }
    }
}
