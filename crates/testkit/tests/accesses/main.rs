//! Every access that the native memory makes is one in the simulator: page by page, operation by operation.
//!
//! The native side is told by the processor ([`traced`]), the simulator's by its hooks ([`noted`]). Writes must agree everywhere. Of
//! reads, those outside the metadata must agree; metadata pages are present and not zero before the policy reads them, so
//! a read there costs nothing, and the simulator may name one too many.

#[path = "../common/designs.rs"]
mod designs;
mod noted;
mod traced;

use hksim_policy::vocabulary::Huge;
use std::collections::BTreeSet;

use designs::random_policy;
use hksim_engine::{Driver, TouchRule};
use hksim_native::MmapMemory;
use hksim_policy::layout::Layout;
use hksim_policy::{Allocator, PAGE_BYTES, Policy, PreparedPolicy, RunGeometry};
use hksim_sim::memory::SimMemory;
use hksim_testkit::events::random_trace;
use hksim_testkit::{Random, test_scale};
use hksim_trace::event::Event;

use noted::Notes;
use traced::Traced;

type Native = Driver<MmapMemory<Traced>, RunGeometry>;
type Simulated = Driver<SimMemory<Notes>, RunGeometry>;

/// The same allocator twice, at the same point of the same trace.
struct Pair {
    native: Native,
    simulated: Simulated,
    layout: Layout,
    /// Pages that were accessed natively since they were mapped.
    known: BTreeSet<u64>,
}

impl Pair {
    fn new(plan: &PreparedPolicy, threads: u32, objects_peak: u32, touch: TouchRule) -> Pair {
        let memory = MmapMemory::new(plan.layout, Traced::default()).unwrap_or_else(|error| panic!("{error}"));
        traced::begin(memory.base(), memory.bytes());
        let allocator = Allocator::new(memory, plan.geometry.clone(), plan.policy, &plan.layout);
        let native = Driver::new(allocator, threads, objects_peak, touch);
        let memory = SimMemory::new(plan.layout, &plan.geometry, Notes::default());
        let allocator = Allocator::new(memory, plan.geometry.clone(), plan.policy, &plan.layout);
        let simulated = Driver::new(allocator, threads, objects_peak, touch);
        traced::take();
        let pair = Pair { native, simulated, layout: plan.layout, known: BTreeSet::new() };
        pair.simulated.allocator().mem.observer().0.clear();
        // Every write counts from here on, as after a fork.
        pair.simulated.allocator().mem.forked(0..plan.layout.bytes() / PAGE_BYTES);
        pair
    }

    fn is_metadata(&self, page: u64) -> bool {
        let at = page * PAGE_BYTES;
        let superslab_mask = (1 << self.layout.superslab_shift) - 1;
        let is_in_band = self.layout.meta_of(0) == self.layout.superslab_of(0);
        at < self.layout.arena
            || is_in_band && ((at - self.layout.arena) & superslab_mask) < u64::from(self.layout.meta_bytes)
    }

    /// One event in both. What differs, in words.
    fn step(&mut self, event: &Event) -> Result<(), String> {
        self.native.step(event).map_err(|error| error.to_string())?;
        let native = traced::take();
        self.simulated.step(event).map_err(|error| error.to_string())?;
        self.simulated.allocator().mem.flush_meta_writes();
        let simulated = std::mem::take(&mut self.simulated.allocator().mem.observer().0);
        for (&page, access) in &native {
            let noted = simulated.get(&page).copied().unwrap_or_default();
            let is_new = self.known.insert(page);
            if access.writes != noted.writes {
                return Err(format!("page {page:#x}: {access:?} natively, {noted:?} simulated"));
            }
            if self.is_metadata(page) {
                continue;
            }
            if !simulated.contains_key(&page) || is_new && (!noted.touched || access.reads_first != noted.reads_first) {
                return Err(format!("page {page:#x}: {access:?} natively, {noted:?} simulated, new: {is_new}"));
            }
        }
        for (page, noted) in simulated {
            if !native.contains_key(&page) && (noted.writes || !self.is_metadata(page)) {
                return Err(format!("page {page:#x}: no access natively, {noted:?} simulated"));
            }
            self.simulated.allocator().mem.forked(page..page + 1);
        }
        Ok(())
    }
}

/// Any design whose pages come with accesses alone, in one arena.
fn followed_design(random: &mut Random) -> Policy {
    let Policy { align, prefault, prefault_scope, prewarm_superslabs, startup_touch_bytes, .. } = Policy::default();
    let huge = random.pick(&[Huge::Never, Huge::Thp, Huge::Collapse]);
    Policy {
        huge,
        huge_page_bytes: 2 << 20,
        align,
        prefault,
        prefault_scope,
        prewarm_superslabs,
        startup_touch_bytes,
        ..random_policy(random)
    }
}

#[test]
fn every_native_access_is_one_in_the_simulator() {
    for seed in 0xACCE55..0xACCE55 + 12 * test_scale() {
        let mut random = Random::new(seed);
        let bytes_max = random.pick(&[5_000, 300_000, 3 << 20]);
        let trace = random_trace(seed, 2_000, 1 + random.below(4) as u32, bytes_max);
        let touch = random.pick(&TouchRule::ALL);
        let design = followed_design(&mut random);
        let what = format!("seed {seed:#x}: {touch:?}, {design:?}");
        let plan = design.prepare().unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut pair = Pair::new(&plan, trace.threads, trace.objects_peak, touch);
        for (index, event) in trace.events.iter().enumerate() {
            pair.step(event).unwrap_or_else(|why| panic!("{what}\nevent {index}, {event:?}: {why}"));
        }
    }
}
