//! Random policies from the whole policy space.

use hksim_policy::classes::STRIDE_MAX;
use hksim_policy::layout::Layout;
use hksim_policy::vocabulary::{
    Align, Carve, ClassList, FreeOrder, Header, Huge, MetaPlace, PerDoubling, Prefault, PrefaultScope, Purge,
    PurgeCurve, SizeClasses, SlabChoice,
};
use hksim_policy::{Checks, HUGE_PAGE_BYTES, Policy, ProcessConfig, RunGeometry};

use crate::Random;

/// The class schemes without parameters.
pub const SCHEMES: [SizeClasses; 3] = [SizeClasses::Default, SizeClasses::Hakmem, SizeClasses::Linear];
/// Every header mode with its possible sizes.
pub const HEADERS: [(Header, u32); 7] = [
    (Header::None, 1),
    (Header::Full, 1),
    (Header::Full, 16),
    (Header::Light, 1),
    (Header::Light, 16),
    (Header::Off, 1),
    (Header::Off, 16),
];
/// Every carving mode.
pub const CARVES: [Carve; 3] = [Carve::Page, Carve::Bump, Carve::Eager];
/// Both places of metadata.
pub const META_PLACES: [MetaPlace; 2] = [MetaPlace::InBand, MetaPlace::Sidecar];

/// A design with an arena small enough to fill.
#[derive(Clone, Copy, Debug)]
pub struct SmallDesign {
    /// The policy; its `arena_bytes` is ignored.
    pub policy: Policy,
    /// The settings of the process.
    pub process: ProcessConfig,
    /// Number of SuperSlabs in the arena.
    pub ordinals: u32,
}

/// A scheme, a rule, or a list of sizes, which starts with a small one.
pub fn random_classes(random: &mut Random) -> SizeClasses {
    match random.below(4) {
        0 | 1 => random.pick(&SCHEMES),
        2 => PerDoubling::new(1 + random.below(8) as u8).map_or(SizeClasses::Default, SizeClasses::Spacing),
        _ => {
            // Lists of multiples of 16 are those that programs can run on.
            let step = random.pick(&[8, 16]);
            let largest = random.pick(&[128, 1024, 4096, u64::from(STRIDE_MAX)]);
            let sizes = 1 + random.below(24);
            let mut strides: Vec<u32> =
                (0..sizes).map(|_| (1 + random.log_uniform(largest / step - 1)) as u32 * step as u32).collect();
            strides.push(step as u32 * (1 + random.below(8)) as u32);
            strides.sort_unstable();
            strides.dedup();
            SizeClasses::List(ClassList::new(&strides).expect("ascending multiples of 8, at most 25"))
        }
    }
}

impl SmallDesign {
    /// A random design.
    pub fn random(random: &mut Random) -> SmallDesign {
        let geometry = random_geometry(random);
        let ordinals_max = ((64 << 20) / geometry.superslab_bytes).max(3);
        // A quarter of the arenas are so small that they soon fill up.
        let ordinals = if random.per_mille(250) { 2 + random.below(6) } else { 2 + random.below(ordinals_max) };
        let policy = random_choices(random, geometry, ordinals);
        let process = ProcessConfig {
            moved_vmas_max: random.pick(&[0, 4, 1000]),
            checks: random.pick(&[Checks::Quick, Checks::Quick, Checks::Full]),
        };
        SmallDesign { policy, process, ordinals: ordinals as u32 }
    }

    /// The geometry.
    ///
    /// # Panics
    /// If the geometry is invalid.
    pub fn geometry(&self) -> RunGeometry {
        RunGeometry::new(&self.policy).expect("random geometries are legal")
    }

    /// A layout that contains the arena.
    pub fn layout(&self) -> Layout {
        let layout = Layout::new(&self.geometry(), u64::from(self.ordinals) * self.policy.superslab_bytes);
        layout.with_align(self.policy.align)
    }
}

/// A default policy with a random geometry.
fn random_geometry(random: &mut Random) -> Policy {
    let superslab_shift = 16 + random.below(10);
    let slab_least = (superslab_shift - 9).max(14);
    let slab_shift = slab_least + random.below(superslab_shift - slab_least + 1);
    // The usual slab size is as likely as all others together.
    let slab_shift = if random.per_mille(500) { 16.max(slab_least) } else { slab_shift };
    let carve = random.pick(&CARVES);
    // Eager carving links all blocks of a slab, and every check walks the list, so it must not have millions of blocks.
    let slab_shift = if carve == Carve::Eager { slab_shift.min(slab_least.max(17)) } else { slab_shift };
    let (header, header_bytes) = random.pick(&HEADERS);
    Policy {
        superslab_bytes: 1 << superslab_shift,
        slab_bytes: 1 << slab_shift,
        classes: random_classes(random),
        header,
        header_bytes,
        carve,
        meta: random.pick(&META_PLACES),
        ..Policy::default()
    }
}

/// `policy` with random choices for everything except the geometry.
fn random_choices(random: &mut Random, policy: Policy, ordinals: u64) -> Policy {
    let superslab_bytes = policy.superslab_bytes;
    let quarter = (ordinals / 4).max(1);
    let huge = random.pick(&[Huge::Never, Huge::Thp, Huge::System, Huge::Collapse, Huge::Hugetlb, Huge::HugetlbPlain]);
    Policy {
        huge,
        align: match huge {
            // Reserved huge pages are only mapped in an arena.
            Huge::Hugetlb | Huge::HugetlbPlain => Align::Arena,
            _ => random.pick(&[Align::Arena, Align::Trim, Align::Kernel]),
        },
        prefault: random.pick(&[
            Prefault::Off,
            Prefault::Populate,
            Prefault::PopulateWrite,
            Prefault::PopulateRead,
            Prefault::Touch,
            Prefault::Memset,
        ]),
        prefault_scope: random.pick(&[PrefaultScope::SuperSlab, PrefaultScope::Slab, PrefaultScope::Init]),
        prewarm_superslabs: if random.per_mille(300) { random.below(quarter + 1) as u32 } else { 0 },
        cache_superslabs: random.below(9) as u32,
        huge_heaps: random.pick(&[0, 1, 2, 8]),
        huge_fill_percent: random.pick(&[0, 0, 50, 75, 100]),
        purge: random.pick(&[Purge::None, Purge::DontNeed, Purge::Free, Purge::Unmap]),
        purge_delay_ns: random.pick(&[0, 1_000, 100_000]),
        purge_spans: random.per_mille(500),
        purge_curve: random.pick(PurgeCurve::ALL),
        free_order: random.pick(FreeOrder::ALL),
        slab_choice: random.pick(SlabChoice::ALL),
        front_cache: random.pick(&[0, 0, 0, 1, 16, 255]),
        warm_slabs: random.below(3) as u32,
        huge_cache_bytes: random.pick(&[0, 1 << 20, 64 << 20]),
        startup_touch_bytes: if random.per_mille(150) { random.below(quarter * superslab_bytes) } else { 0 },
        // Chosen so that SuperSlabs and huge blocks reuse each other's memory wherever that is sound.
        huge_page_bytes: match huge {
            Huge::Hugetlb | Huge::HugetlbPlain => HUGE_PAGE_BYTES,
            _ => superslab_bytes,
        },
        ..policy
    }
}
