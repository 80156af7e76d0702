//! The settings of a policy. [`settings!`] gets each one once: its meaning, the half that it belongs to, its type and its
//! default.

use crate::limits::HUGE_PAGE_BYTES;
use crate::policy::vocabulary::{
    Align, Carve, FreeOrder, Header, Huge, MetaPlace, Prefault, PrefaultScope, Purge, PurgeCurve, SizeClasses,
    SlabChoice,
};

/// Defines [`Policy`], its default and its two halves from one list of settings.
macro_rules! settings {
    // Appends the first setting to all settings and to its half, and continues with the rest.
    (@halve [$($all:tt)*] [$($placement:tt)*] [$($paging:tt)*]
        $(#[$meaning:meta])* Placement $name:ident: $type:ty = $default:expr, $($rest:tt)*) => {
        settings!(@halve [$($all)* { $(#[$meaning])* $name, $type, $default }]
            [$($placement)* { $name, $type }] [$($paging)*] $($rest)*);
    };
    (@halve [$($all:tt)*] [$($placement:tt)*] [$($paging:tt)*]
        $(#[$meaning:meta])* Paging $name:ident: $type:ty = $default:expr, $($rest:tt)*) => {
        settings!(@halve [$($all)* { $(#[$meaning])* $name, $type, $default }]
            [$($placement)*] [$($paging)* { $name, $type }] $($rest)*);
    };
    (@halve [$({ $(#[$meaning:meta])* $name:ident, $type:ty, $default:expr })*]
        [$({ $placed:ident, $placed_type:ty })*] [$({ $paged:ident, $paged_type:ty })*]) => {
        /// One allocator design. Sizes are in bytes, times in nanoseconds of the event clock.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
        pub struct Policy {
            $($(#[$meaning])* pub $name: $type,)*
        }

        /// The settings that the placement of blocks depends on. Fields are those of [`Policy`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "documented in Policy")]
        pub struct Placement {
            $(pub $placed: $placed_type,)*
        }

        /// The settings that decide which page operations are made. Placement depends on them only through their answers:
        /// what a purge leaves behind, which SuperSlabs may be shared. Fields are those of [`Policy`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "documented in Policy")]
        pub struct Paging {
            $(pub $paged: $paged_type,)*
        }

        impl Policy {
            /// The default, as a constant.
            pub const DEFAULT: Policy = Policy { $($name: $default,)* };

            /// The two halves. Every setting belongs to exactly one of them.
            pub const fn split(&self) -> (Placement, Paging) {
                (Placement { $($placed: self.$placed,)* }, Paging { $($paged: self.$paged,)* })
            }
        }
    };
    ($($settings:tt)*) => {
        settings!(@halve [] [] [] $($settings)*);
    };
}

settings! {
    /// SuperSlab size: a power of two, 64 KiB to 32 MiB.
    Placement superslab_bytes: u64 = 2 << 20,
    /// Slab size: a power of two, 16 KiB to one SuperSlab; at most 512 slabs in a SuperSlab.
    Placement slab_bytes: u64 = 64 << 10,
    /// Size classes.
    Placement classes: SizeClasses = SizeClasses::Default,
    /// Block headers.
    Placement header: Header = Header::None,
    /// Header size, if blocks have headers: 1 or 16 bytes.
    Placement header_bytes: u32 = 1,
    /// Huge pages requested from the kernel.
    Paging huge: Huge = Huge::Thp,
    /// Size of the huge pages that the policy expects to get: 2 MiB, or that of a multi-size THP, 16 KiB to 1 MiB.
    Paging huge_page_bytes: u64 = HUGE_PAGE_BYTES,
    /// How memory is made present before its first use.
    Paging prefault: Prefault = Prefault::Off,
    /// When memory is prefaulted.
    Paging prefault_scope: PrefaultScope = PrefaultScope::SuperSlab,
    /// SuperSlabs that are taken, and prefaulted, at start.
    Placement prewarm_superslabs: u32 = 0,
    /// Empty SuperSlabs kept for reuse.
    Placement cache_superslabs: u32 = 4,
    /// Number of thread heaps whose first SuperSlab gets huge pages. Further heaps get huge pages from their second
    /// SuperSlab on.
    Paging huge_heaps: u32 = 8,
    /// The share of a SuperSlab that blocks of the size it is taken for must be able to fill, so that it gets huge pages:
    /// 0 to 100. With 0, every SuperSlab gets them.
    Paging huge_fill_percent: u32 = 0,
    /// How unused memory is returned to the kernel.
    Paging purge: Purge = Purge::DontNeed,
    /// How long memory stays unused before it is purged.
    Placement purge_delay_ns: u64 = 100_000_000,
    /// How memory is purged over that time.
    Placement purge_curve: PurgeCurve = PurgeCurve::Step,
    /// Whether single empty spans are purged even if huge pages are requested. With [`Huge::Never`] they are always
    /// purged.
    Paging purge_spans: bool = false,
    /// Empty slabs kept per size class besides the active one.
    Placement warm_slabs: u32 = 0,
    /// How SuperSlabs are mapped and aligned.
    Placement align: Align = Align::Arena,
    /// Where metadata is stored.
    Placement meta: MetaPlace = MetaPlace::InBand,
    /// How fresh blocks are carved from a slab.
    Placement carve: Carve = Carve::Page,
    /// In which order the free blocks of a slab are reused.
    Placement free_order: FreeOrder = FreeOrder::Lifo,
    /// Which partial slab a bin takes next.
    Placement slab_choice: SlabChoice = SlabChoice::Oldest,
    /// Blocks per class in each thread's front cache, 0 to 255.
    Placement front_cache: u32 = 0,
    /// Bytes touched once at start, one byte per page (HAKMEM's fixed start-up cost).
    Placement startup_touch_bytes: u64 = 0,
    /// Bytes of freed huge blocks kept for reuse.
    Placement huge_cache_bytes: u64 = 64 << 20,
    /// Address space of the arena: 64 MiB to 16 TiB.
    Placement arena_bytes: u64 = 64 << 30,
}
