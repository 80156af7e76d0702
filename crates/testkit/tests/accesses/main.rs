//! Checks, operation by operation, that every page access of the native memory also happens in the simulator.
//!
//! Native accesses are observed by page protection ([`traced`]), simulated ones by an observer ([`recorded`]). All
//! writes must agree, and so must reads outside the metadata. The simulator may report extra reads of metadata. They
//! cost nothing, because metadata pages are present and written before the policy reads them.

#[path = "../common/designs.rs"]
mod designs;
mod recorded;
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

use recorded::AccessRecorder;
use traced::Traced;

type Native = Driver<Allocator<MmapMemory<Traced>, RunGeometry>>;
type Simulated = Driver<Allocator<SimMemory<AccessRecorder>, RunGeometry>>;

/// Two instances of the same allocator, at the same point of the same trace.
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
        let memory = SimMemory::new(plan.layout, &plan.geometry, AccessRecorder::default());
        let allocator = Allocator::new(memory, plan.geometry.clone(), plan.policy, &plan.layout);
        let simulated = Driver::new(allocator, threads, objects_peak, touch);
        traced::take();
        let pair = Pair { native, simulated, layout: plan.layout, known: BTreeSet::new() };
        pair.simulated.allocator().mem.observer().0.clear();
        // From here on every write is reported, as after a fork.
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

    /// Performs an event on both instances. An error describes the difference.
    fn step(&mut self, event: &Event) -> Result<(), String> {
        self.native.step(event).map_err(|error| error.to_string())?;
        let native = traced::take();
        self.simulated.step(event).map_err(|error| error.to_string())?;
        self.simulated.allocator().mem.flush_meta_writes();
        let simulated = std::mem::take(&mut self.simulated.allocator().mem.observer().0);
        for (&page, access) in &native {
            let recorded = simulated.get(&page).copied().unwrap_or_default();
            let is_new = self.known.insert(page);
            if access.writes != recorded.writes {
                return Err(format!("page {page:#x}: {access:?} natively, {recorded:?} simulated"));
            }
            if self.is_metadata(page) {
                continue;
            }
            if !simulated.contains_key(&page)
                || is_new && (!recorded.touched || access.reads_first != recorded.reads_first)
            {
                return Err(format!("page {page:#x}: {access:?} natively, {recorded:?} simulated, new: {is_new}"));
            }
        }
        for (page, recorded) in simulated {
            if !native.contains_key(&page) && (recorded.writes || !self.is_metadata(page)) {
                return Err(format!("page {page:#x}: no access natively, {recorded:?} simulated"));
            }
            self.simulated.allocator().mem.forked(page..page + 1);
        }
        Ok(())
    }
}

/// A random policy with one arena, in which only accesses install pages.
fn traceable_policy(random: &mut Random) -> Policy {
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
fn every_native_access_also_happens_in_the_simulator() {
    for seed in 0xACCE55..0xACCE55 + 12 * test_scale() {
        let mut random = Random::new(seed);
        let bytes_max = random.pick(&[5_000, 300_000, 3 << 20]);
        let trace = random_trace(seed, 2_000, 1 + random.below(4) as u32, bytes_max);
        let touch = random.pick(&TouchRule::ALL);
        let design = traceable_policy(&mut random);
        let what = format!("seed {seed:#x}: {touch:?}, {design:?}");
        let plan = design.prepare().unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut pair = Pair::new(&plan, trace.threads, trace.objects_peak, touch);
        for (index, event) in trace.events.iter().enumerate() {
            pair.step(event).unwrap_or_else(|why| panic!("{what}\nevent {index}, {event:?}: {why}"));
        }
    }
}
