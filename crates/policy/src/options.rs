//! What a policy can choose beside its geometry: everything the slow paths look at.

use crate::limits::HUGE_PAGE_BYTES;

/// Whether blocks carry a header, and when it is written. The three that do share one placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Header {
    /// No header.
    #[default]
    None,
    /// Written at every allocation.
    Full,
    /// Read first, written if it differs.
    Light,
    /// Read first, written only if it is no valid header.
    Off,
}

/// How fresh blocks of a slab are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Carve {
    /// Linked at most to the end of the current page, so that no page is touched early.
    #[default]
    Page,
    /// One at a time, never linked.
    Bump,
    /// The whole slab is linked at once.
    Eager,
}

/// Where SuperSlab and slab metadata live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MetaPlace {
    /// In the first pages of the SuperSlab.
    #[default]
    InBand,
    /// In a dense map of its own.
    Sidecar,
}

/// Which huge pages are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Huge {
    /// None.
    Never,
    /// `MADV_HUGEPAGE` on the whole arena.
    #[default]
    Thp,
    /// Nothing is asked for: the kernel gives them to everybody. Memory is given back as if they had been asked for.
    Always,
    /// `MADV_COLLAPSE` of a SuperSlab when its last unit is taken; once, until some of its memory is purged.
    Collapse,
    /// `MAP_HUGETLB`, falling back step by step; every step is counted.
    Hugetlb(Fallback),
}

/// What follows when the hugetlb pool is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fallback {
    /// `MADV_HUGEPAGE`.
    #[default]
    Thp,
    /// A plain map (HAKMEM).
    Plain,
}

/// How memory is made present before its first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Prefault {
    /// Not at all.
    #[default]
    Off,
    /// `mmap(MAP_POPULATE)`; any huge-page advice can only follow it.
    Populate,
    /// `MADV_POPULATE_WRITE`, after the advice.
    PopulateWrite,
    /// `MADV_POPULATE_READ`, after the advice.
    PopulateRead,
    /// One byte written per page.
    Touch,
    /// Zeros written over the whole range.
    Memset,
}

/// When prefaulting happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PrefaultScope {
    /// Each SuperSlab as it is first used (and again after a purge).
    #[default]
    SuperSlab,
    /// Each span as it is taken, where its memory is not known to be present.
    Slab,
    /// Only the SuperSlabs prewarmed at start.
    Init,
}

/// How unused memory is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Purge {
    /// Never.
    None,
    /// `MADV_DONTNEED`.
    #[default]
    DontNeed,
    /// `MADV_FREE`.
    Free,
    /// `munmap`, then re-reserved in place.
    Unmap,
}

/// Where SuperSlabs lie, and who sees to their alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Align {
    /// At multiples of their size in one reservation.
    #[default]
    Arena,
    /// Each on a map of its own that the kernel places: a SuperSlab too much is mapped, and both ends are unmapped.
    Trim,
    /// Each on a map of its own, of its size alone; where the kernel did not align it, as `Trim`.
    Kernel,
}

/// How closely frees are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Checks {
    /// As far as costs next to nothing: see `misuse.rs`.
    #[default]
    Quick,
    /// Every free takes the slow path, which checks whether the pointer is a block's, and in use, before anything is changed.
    Full,
}

/// Run-time choices of a policy. Times in nanoseconds of the event clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Huge pages.
    pub huge: Huge,
    /// Bytes of the huge pages that are asked for: those of a folio where only such are had.
    pub huge_page_bytes: u64,
    /// Where SuperSlabs lie.
    pub align: Align,
    /// Prefault verb.
    pub prefault: Prefault,
    /// Prefault scope.
    pub prefault_scope: PrefaultScope,
    /// SuperSlabs reserved (and prefaulted) at start.
    pub prewarm_superslabs: u32,
    /// Empty SuperSlabs kept.
    pub cache_superslabs: u32,
    /// Purge verb.
    pub purge: Purge,
    /// Heaps that get huge pages with their first SuperSlab, where those are asked for: see `thrift.rs`.
    pub huge_heaps: u32,
    /// How long memory lies unused before it is purged.
    pub purge_delay_ns: u64,
    /// Whether single empty spans are purged although huge pages are asked for (with `Huge::Never` they always are).
    pub purge_spans: bool,
    /// Empty slabs kept per class beside the active one.
    pub warm_slabs: u32,
    /// Freed huge blocks kept for reuse, in bytes.
    pub huge_cache_bytes: u64,
    /// Bytes touched, one byte per page, at start (HAKMEM's fixed start-up cost).
    pub startup_touch_bytes: u64,
    /// Moves of huge blocks by `mremap` stop when they may have added this many VMAs (half of `max_map_count`).
    pub moved_vmas_max: u32,
    /// How closely frees are looked at; no business of a simulation, whose programs do not err.
    pub checks: Checks,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            huge: Huge::Thp,
            huge_page_bytes: HUGE_PAGE_BYTES,
            align: Align::Arena,
            prefault: Prefault::Off,
            prefault_scope: PrefaultScope::SuperSlab,
            prewarm_superslabs: 0,
            cache_superslabs: 4,
            huge_heaps: 8,
            purge: Purge::DontNeed,
            purge_delay_ns: 100_000_000,
            purge_spans: false,
            warm_slabs: 0,
            huge_cache_bytes: 64 << 20,
            startup_touch_bytes: 0,
            moved_vmas_max: 65_530 / 2,
            checks: Checks::Quick,
        }
    }
}

impl Options {
    /// Whether empty spans of a SuperSlab in use are purged.
    pub fn purges_spans(&self) -> bool {
        self.purge != Purge::None && (self.purge_spans || self.huge == Huge::Never)
    }
}
