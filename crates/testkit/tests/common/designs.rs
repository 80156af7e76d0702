//! Random policies from the whole policy space, in the form that the command line accepts. (`testkit/src/spread.rs` has
//! policies with small arenas.)

use hksim_policy::Policy;
use hksim_policy::vocabulary::{
    Align, Carve, FreeOrder, Header, Huge, MetaPlace, Prefault, PrefaultScope, Purge, PurgeCurve, SlabChoice,
};
use hksim_testkit::Random;
use hksim_testkit::spread::random_classes;

/// A random policy with an arena of 64 MiB.
pub fn random_policy(random: &mut Random) -> Policy {
    let superslab_shift = 16 + random.below(10);
    let slab_least = (superslab_shift - 9).max(14);
    let cache_superslabs = random.below(9) as u32;
    let huge = random.pick(Huge::ALL);
    Policy {
        superslab_bytes: 1 << superslab_shift,
        slab_bytes: 1 << (slab_least + random.below((superslab_shift - slab_least).min(3) + 1)),
        classes: random_classes(random),
        header: random.pick(Header::ALL),
        header_bytes: random.pick(&[1, 16]),
        huge,
        huge_page_bytes: if huge == Huge::Thp { random.pick(&[64 << 10, 512 << 10, 2 << 20]) } else { 2 << 20 },
        align: match huge {
            Huge::Hugetlb | Huge::HugetlbPlain => Align::Arena,
            _ => random.pick(Align::ALL),
        },
        prefault: random.pick(Prefault::ALL),
        prefault_scope: random.pick(PrefaultScope::ALL),
        prewarm_superslabs: if superslab_shift < 23 { random.below(3) as u32 } else { 0 },
        cache_superslabs,
        huge_heaps: random.pick(&[0, 1, 2, 8]),
        huge_fill_percent: random.pick(&[0, 0, 50, 75, 100]),
        purge: random.pick(Purge::ALL),
        purge_delay_ns: random.pick(&[0, 20_000, 100_000_000]),
        purge_spans: random.per_mille(500),
        purge_curve: random.pick(PurgeCurve::ALL),
        free_order: random.pick(FreeOrder::ALL),
        slab_choice: random.pick(SlabChoice::ALL),
        front_cache: random.pick(&[0, 0, 1, 16, 255]),
        warm_slabs: random.below(3) as u32,
        meta: random.pick(MetaPlace::ALL),
        carve: random.pick(Carve::ALL),
        startup_touch_bytes: random.pick(&[0, 0, 3 << 20]),
        huge_cache_bytes: random.pick(&[0, 1 << 20, 64 << 20]),
        arena_bytes: 64 << 20,
    }
}
