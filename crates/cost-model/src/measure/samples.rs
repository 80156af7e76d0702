//! The samples of the rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use hksim_linux_probe::area::timed;
use hksim_linux_probe::cpu_modes::{CpuModes, ModeSamples};

use crate::profile::{Cost, Operation};

/// Below this many looks an operation's own share of kernel time is no better than that of all of them.
const LOOKS_MIN: u64 = 100;

/// The times of operations, split into kernel and user time.
pub(super) struct Samples {
    modes: Option<CpuModes>,
    all: ModeSamples,
    of: BTreeMap<Operation, Found>,
    /// What the yardstick took, by round.
    rounds_ns: Vec<f64>,
    skipped: BTreeMap<Operation, String>,
}

/// Whether somebody looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    On,
    Off,
}

#[derive(Default)]
struct Found {
    /// By what the round's yardstick took.
    relative: Vec<f64>,
    looks: ModeSamples,
}

impl Samples {
    /// Nothing yet, by the clock alone.
    pub(super) fn by_clock() -> Samples {
        Samples {
            modes: None,
            all: ModeSamples::default(),
            of: BTreeMap::new(),
            rounds_ns: Vec::new(),
            skipped: BTreeMap::new(),
        }
    }

    /// Nothing yet, with looks; where the kernel lets nobody look, `None`.
    pub(super) fn by_looks() -> Option<Samples> {
        let modes = CpuModes::open().ok()?;
        Some(Samples { modes: Some(modes), ..Samples::by_clock() })
    }

    /// A round begins, and the machine is so fast. What is noted until the next one is taken by it: a processor changes its
    /// speed, and with it that of all operations.
    pub(super) fn begin_round(&mut self, yardstick: Duration) {
        self.rounds_ns.push(yardstick.as_nanos() as f64);
    }

    /// What the yardstick took in most rounds.
    fn yardstick_ns(&self) -> f64 {
        Cost::of(self.rounds_ns.clone(), 1.0).map_or(f64::NAN, |cost| cost.median_ns)
    }

    /// Looks from now on, where it is for looks, or no more.
    pub(super) fn look(&self, look: Look) {
        match (&self.modes, look) {
            (Some(modes), Look::On) => modes.enable(),
            (Some(modes), Look::Off) => modes.disable(),
            (None, _) => {}
        }
    }

    /// Times so many operations, which `run` performs.
    pub(super) fn time<T>(&mut self, operation: Operation, number: u64, run: impl FnOnce() -> T) -> T {
        let (result, spent, looks) = self.timed(run);
        self.note(operation, number, spent, looks);
        result
    }

    /// The same, counted only where `is_it` says afterwards, outside the clock, that `run` did what it should.
    pub(super) fn time_if<T>(
        &mut self,
        operation: Operation,
        number: u64,
        run: impl FnOnce() -> T,
        is_it: impl FnOnce(T) -> bool,
    ) -> bool {
        let (result, spent, looks) = self.timed(run);
        let is_it = is_it(result);
        if is_it {
            self.note(operation, number, spent, looks);
        }
        is_it
    }

    /// The time of what `run` does, which is not noted, and whose time it was.
    pub(super) fn timed<T>(&mut self, run: impl FnOnce() -> T) -> (T, Duration, ModeSamples) {
        self.modes.as_mut().map(CpuModes::take);
        let (result, spent) = timed(run);
        (result, spent, self.modes.as_mut().map(CpuModes::take).unwrap_or_default())
    }

    /// Notes the time of so many operations.
    pub(super) fn note(&mut self, operation: Operation, number: u64, spent: Duration, looks: ModeSamples) {
        let found = self.of.entry(operation).or_default();
        let round_ns = self.rounds_ns.last().copied().unwrap_or(f64::NAN);
        found.relative.push(spent.as_nanos() as f64 / number as f64 / round_ns);
        found.looks.add(looks);
        self.all.add(looks);
    }

    pub(super) fn skip(&mut self, operation: Operation, reason: impl Into<String>) {
        self.skipped.entry(operation).or_insert_with(|| reason.into());
    }

    /// The kernel's share of all that was timed.
    pub(super) fn kernel_share(&self) -> Option<f64> {
        self.all.kernel_share()
    }

    /// The kernel's time of each operation, by the shares that `looked` found, and what was not timed at all. Without
    /// looks all time counts as the kernel's.
    pub(super) fn finish(self, looked: Option<&Samples>) -> (BTreeMap<Operation, Cost>, BTreeMap<Operation, String>) {
        let share_of = |operation: &Operation| {
            let looked = looked.filter(|_| *operation != Operation::MemsetResident)?;
            let own = looked.of.get(operation).map(|found| found.looks).filter(|looks| looks.total() >= LOOKS_MIN);
            own.unwrap_or(looked.all).kernel_share()
        };
        let yardstick_ns = self.yardstick_ns();
        let costs: BTreeMap<Operation, Cost> = self
            .of
            .into_iter()
            .filter_map(|(operation, found)| {
                let rounds_ns = found.relative.into_iter().map(|time| time * yardstick_ns).collect();
                Some((operation, Cost::of(rounds_ns, share_of(&operation).unwrap_or(1.0))?))
            })
            .collect();
        let mut skipped = self.skipped;
        skipped.retain(|operation, _| !costs.contains_key(operation));
        (costs, skipped)
    }
}
