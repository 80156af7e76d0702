//! The times of all rounds, and the samples of the processor mode.

use std::collections::BTreeMap;
use std::time::Duration;

use hksim_linux_probe::area::timed;
use hksim_linux_probe::core_sharing::CoreWatch;
use hksim_linux_probe::cpu_modes::{CpuModes, ModeSamples};

use crate::profile::{Cost, Operation, SHARE_MIN};

/// Minimum number of samples for an operation's own share of kernel time. With fewer samples, the share of all
/// operations together is as good an estimate.
const SAMPLES_MIN: u64 = 50;

/// The times of operations, split into kernel and user time.
pub(super) struct Samples {
    modes: Option<CpuModes>,
    all: ModeSamples,
    of: BTreeMap<Operation, Timings>,
    /// The time of the yardstick in each round.
    rounds_ns: Vec<f64>,
    skipped: BTreeMap<Operation, String>,
    /// Looks after each operation. Operations take too long to wait until nothing else runs on the core.
    pub(super) core: CoreWatch,
}

/// Whether the processor mode is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampling {
    On,
    Off,
}

#[derive(Default)]
struct Timings {
    /// For each round: the time of an operation, divided by the round's yardstick.
    per_yardstick: Vec<f64>,
    /// The same with the kernel's records of the memory in the nearest caches, if that was timed, too.
    near_per_yardstick: Vec<f64>,
    samples: ModeSamples,
}

impl Samples {
    /// Times operations by the clock alone, without sampling.
    pub(super) fn by_clock() -> Samples {
        Samples {
            modes: None,
            all: ModeSamples::default(),
            of: BTreeMap::new(),
            rounds_ns: Vec::new(),
            skipped: BTreeMap::new(),
            core: CoreWatch::default(),
        }
    }

    /// Times operations and samples the processor mode. `None` if the kernel does not permit sampling.
    pub(super) fn by_sampling() -> Option<Samples> {
        let modes = CpuModes::open().ok()?;
        Some(Samples { modes: Some(modes), ..Samples::by_clock() })
    }

    /// Begins a round. `yardstick` is the time that the yardstick takes now. All times of the round are relative to it,
    /// because the processor's speed changes over time and affects all operations alike.
    pub(super) fn begin_round(&mut self, yardstick: Duration) {
        self.rounds_ns.push(yardstick.as_nanos() as f64);
    }

    /// The median time of the yardstick.
    fn yardstick_ns(&self) -> f64 {
        Cost::of(self.rounds_ns.clone(), 1.0).map_or(f64::NAN, |cost| cost.median_ns)
    }

    /// Switches sampling on or off. Without effect on [`Samples::by_clock`].
    pub(super) fn set_sampling(&self, sampling: Sampling) {
        match (&self.modes, sampling) {
            (Some(modes), Sampling::On) => modes.enable(),
            (Some(modes), Sampling::Off) => modes.disable(),
            (None, _) => {}
        }
    }

    /// Times `run`, which performs `number` operations.
    pub(super) fn time<T>(&mut self, operation: Operation, number: u64, run: impl FnOnce() -> T) -> T {
        let (result, spent, samples) = self.timed(run);
        self.note(operation, number, spent, samples);
        result
    }

    /// Like [`Samples::time`], but discards the time unless `is_valid` confirms the result of `run`. The check is not
    /// timed.
    pub(super) fn time_if<T>(
        &mut self,
        operation: Operation,
        number: u64,
        run: impl FnOnce() -> T,
        is_valid: impl FnOnce(T) -> bool,
    ) -> bool {
        let (result, spent, samples) = self.timed(run);
        let is_valid = is_valid(result);
        if is_valid {
            self.note(operation, number, spent, samples);
        }
        is_valid
    }

    /// Calls `run`. Returns its result, its time and the samples of its mode, and records nothing.
    pub(super) fn timed<T>(&mut self, run: impl FnOnce() -> T) -> (T, Duration, ModeSamples) {
        self.modes.as_mut().map(CpuModes::take);
        let (result, spent) = timed(run);
        let modes = self.modes.as_mut().map(CpuModes::take).unwrap_or_default();
        self.core.look();
        (result, spent, modes)
    }

    /// Times `run`, which performs `number` operations on memory whose records in the kernel are in the nearest caches. The
    /// low end of the cost is that of these times.
    pub(super) fn time_near<T>(&mut self, operation: Operation, number: u64, run: impl FnOnce() -> T) -> T {
        let (result, spent) = timed(run);
        self.note_near(operation, spent.as_nanos() as f64 / number as f64);
        result
    }

    /// Records the time of an operation as [`Samples::time_near`] does.
    pub(super) fn note_near(&mut self, operation: Operation, ns: f64) {
        let round_ns = self.rounds_ns.last().copied().unwrap_or(f64::NAN);
        self.of.entry(operation).or_default().near_per_yardstick.push(ns / round_ns);
    }

    /// The time of an operation in this round, in nanoseconds.
    pub(super) fn last_ns(&self, operation: Operation) -> Option<f64> {
        Some(self.of.get(&operation)?.per_yardstick.last()? * self.rounds_ns.last()?)
    }

    /// Records the time of `number` operations.
    pub(super) fn note(&mut self, operation: Operation, number: u64, spent: Duration, samples: ModeSamples) {
        let timings = self.of.entry(operation).or_default();
        let round_ns = self.rounds_ns.last().copied().unwrap_or(f64::NAN);
        timings.per_yardstick.push(spent.as_nanos() as f64 / number as f64 / round_ns);
        timings.samples.add(samples);
        self.all.add(samples);
    }

    pub(super) fn skip(&mut self, operation: Operation, reason: impl Into<String>) {
        self.skipped.entry(operation).or_insert_with(|| reason.into());
    }

    /// The kernel's share of the time of all operations.
    pub(super) fn kernel_share(&self) -> Option<f64> {
        self.all.kernel_share()
    }

    /// The kernel time of each operation, and the operations that were not timed. The shares of kernel time come from
    /// `sampled`; without it, all time counts as the kernel's.
    pub(super) fn finish(self, sampled: Option<&Samples>) -> (BTreeMap<Operation, Cost>, BTreeMap<Operation, String>) {
        let share_of = |operation: &Operation| {
            if *operation == Operation::RewriteFreed {
                // It raises no fault: the processor marks the entry.
                return Some(SHARE_MIN);
            }
            // One is never in the kernel, and the other one never outside it.
            let is_mixed = !matches!(operation, Operation::MemsetResident | Operation::HostBacking);
            let sampled = sampled.filter(|_| is_mixed)?;
            let own = sampled
                .of
                .get(operation)
                .map(|timings| timings.samples)
                .filter(|samples| samples.total() >= SAMPLES_MIN);
            own.unwrap_or(sampled.all).kernel_share()
        };
        let yardstick_ns = self.yardstick_ns();
        let costs: BTreeMap<Operation, Cost> = self
            .of
            .into_iter()
            .filter_map(|(operation, timings)| {
                let share = share_of(&operation).unwrap_or(1.0);
                let of = |times: Vec<f64>| Cost::of(times.into_iter().map(|time| time * yardstick_ns).collect(), share);
                let (cost, near) = (of(timings.per_yardstick)?, of(timings.near_per_yardstick));
                let low_ns = near.map_or(cost.low_ns, |near| near.low_ns.min(cost.low_ns));
                Some((operation, Cost { low_ns, ..cost }))
            })
            .collect();
        let mut skipped = self.skipped;
        skipped.retain(|operation, _| !costs.contains_key(operation));
        (costs, skipped)
    }
}
