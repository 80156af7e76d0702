//! Every listed design, and a third one that is listed here only: each is predicted exactly, on random traces and on
//! programs that do unusual things.

use hksim_designs::{Listed, Setting, Untyped, Values, Visitor, each};
use hksim_engine::{ForkWindow, TouchRule};
use hksim_replay::KnownDesign;
use hksim_testkit::Random;
use hksim_testkit::events::random_trace;
use hksim_trace::event::{AllocCall, Event, InitialTouch, ObjectId, Op, ReallocCall, ThreadId};
use hksim_trace::header::Clock;
use serde_json::Value;

use crate::common::{NoThp, Setup, Trace, free};
use crate::runs::{Runs, RunsSettings};
use crate::settings;

impl Default for RunsSettings {
    fn default() -> RunsSettings {
        RunsSettings { frees_lazily: false, advises_huge: false, moves: true }
    }
}

const fn yes_no(flag: &'static str, field: &'static str, help: &'static str) -> Setting {
    Setting { flag, field, values: Values::YesNo, help }
}

/// The third design. A design in a file of the crate needs this, and its name in the list.
impl Listed for Runs {
    const SUMMARY: &'static str = "size classes in runs of pages";
    const SETTINGS: &'static [Setting] = &[
        yes_no("frees-lazily", "frees_lazily", "Give empty runs back by MADV_FREE"),
        yes_no("advises-huge", "advises_huge", "Advise chunks with MADV_HUGEPAGE"),
        yes_no("moves", "moves", "Move large blocks that grow"),
    ];
}

/// Shows the listed designs to a visitor, then the third.
fn every(visitor: &mut impl Visitor) {
    each(visitor);
    visitor.visit::<Runs>();
}

/// The designs that a replay's child has to know.
pub fn known() -> Vec<KnownDesign> {
    struct Known(Vec<KnownDesign>);
    impl Visitor for Known {
        fn visit<D: Listed>(&mut self) {
            self.0.push(KnownDesign::of::<D>());
        }
    }
    let mut known = Known(Vec::new());
    every(&mut known);
    known.0
}

/// Checks every design on traces that are made from numbers. Stops at the first reason why this machine cannot.
struct Pairs {
    pairs: u64,
    trace: fn(u64) -> Trace,
    touch: fn(u64) -> TouchRule,
    fork: Option<ForkWindow>,
    result: Result<(), String>,
}

impl Pairs {
    fn check(self) -> Result<(), String> {
        let _no_thp = NoThp::new()?;
        let mut pairs = self;
        every(&mut pairs);
        pairs.result
    }

    fn check_design<D: Listed>(&self) -> Result<(), String> {
        let mut installs = 0;
        for seed in 0..self.pairs {
            let settings: Value = settings::random::<D>(&mut Random::new(seed));
            let mut setup = Setup::<Untyped<D>>::without_thp(settings.clone(), (self.touch)(seed))?;
            setup.forks.extend(self.fork);
            let label = format!("{}, seed {seed}, {:?}, {settings}", D::NAME, setup.touch);
            installs += setup.check(&(self.trace)(seed), &label)?.0.report.installs.total;
        }
        eprintln!("{}: {} pairs, seeds from 0, {installs} installs", D::NAME, self.pairs);
        assert!(installs > 0, "{}", D::NAME);
        Ok(())
    }
}

impl Visitor for Pairs {
    fn visit<D: Listed>(&mut self) {
        if self.result.is_ok() {
            self.result = self.check_design::<D>();
        }
    }
}

fn touch(seed: u64) -> TouchRule {
    let rules = [TouchRule::Recorded, TouchRule::All, TouchRule::ReadThenAll, TouchRule::AllAtDeath, TouchRule::First];
    rules[seed as usize % rules.len()]
}

/// 6 pairs of each design; 100 with a scale of 17.
pub fn every_design_is_predicted_exactly_on_random_traces() -> Result<(), String> {
    let pairs = (6 * hksim_testkit::test_scale()).min(100);
    let trace = |seed| Trace::of(&random_trace(9000 + seed, 5_000, 1 + seed as u32 % 5, 400 << 10).events);
    Pairs { pairs, trace, touch, fork: None, result: Ok(()) }.check()
}

/// A program that recorders meet, but random traces do not contain.
struct Odd(Vec<Event>);

impl Odd {
    fn push(&mut self, thread: u32, op: Op) {
        let time_ns = self.0.len() as u64 * Clock::EVENT_NS;
        self.0.push(Event::new(time_ns, ThreadId(thread), op));
    }

    fn allocate(&mut self, thread: u32, object: u32, size: u64, align_log2: u8) {
        let call = if align_log2 > 0 { AllocCall::AlignedAlloc } else { AllocCall::Calloc };
        let (object, initial_touch) = (ObjectId(object), InitialTouch::FirstByte);
        self.push(thread, Op::Alloc { object, size, align_log2, call, initial_touch });
    }

    fn resize(&mut self, object: u32, size: u64) {
        let (object, call, initial_touch) = (ObjectId(object), ReallocCall::Realloc, InitialTouch::FirstByte);
        self.push(1, Op::Realloc { object, size, call, initial_touch });
    }
}

/// Chains of reallocs up and down, alignments up to 2 MiB, empty blocks, blocks that other threads free, and threads that
/// end while their blocks live.
fn odd_program(_seed: u64) -> Trace {
    let mut odd = Odd(Vec::new());
    for object in 0..40u32 {
        odd.allocate(object % 3, object, u64::from(object % 5) * 11, 0);
    }
    odd.push(2, Op::ThreadExit);
    odd.allocate(0, 40, 16, 0);
    for doubling in (4..=23).chain((4..23).rev()).chain(4..=20) {
        odd.resize(40, (1 << doubling) + doubling);
    }
    for (object, align_log2) in (41..59u32).zip(4..=21u8) {
        odd.allocate(object % 2, object, 100 + u64::from(object), align_log2);
    }
    for object in (0..59).rev() {
        odd.push((object + 1) % 2, Op::UsableSize { object: ObjectId(object) });
        odd.push((object + 1) % 2, free(object));
    }
    odd.push(1, Op::ThreadExit);
    Trace::of(&odd.0)
}

pub fn every_design_is_predicted_exactly_on_an_odd_program() -> Result<(), String> {
    Pairs { pairs: 8, trace: odd_program, touch, fork: None, result: Ok(()) }.check()
}

pub fn a_fork_is_predicted_under_every_design() -> Result<(), String> {
    let trace = |seed| Trace::of(&random_trace(9500 + seed, 3_000, 2, 60 << 10).events);
    let fork = Some(ForkWindow { from_event: 1_500, until_event: 2_500 });
    Pairs { pairs: 2, trace, touch: |_| TouchRule::All, fork, result: Ok(()) }.check()
}

/// Blocks of 3 GiB, of which only the first byte is touched.
pub fn blocks_of_gibibytes_are_predicted_under_every_design() -> Result<(), String> {
    let trace = |_| {
        let mut odd = Odd(Vec::new());
        for object in 0..3 {
            let (object, size) = (ObjectId(object), (3 << 30) + 5);
            let (call, initial_touch) = (AllocCall::Malloc, InitialTouch::FirstByte);
            odd.push(0, Op::Alloc { object, size, align_log2: 0, call, initial_touch });
        }
        odd.push(1, free(1));
        Trace::of(&odd.0)
    };
    Pairs { pairs: 4, trace, touch: |_| TouchRule::First, fork: None, result: Ok(()) }.check()
}
