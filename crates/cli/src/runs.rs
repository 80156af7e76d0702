//! Runs of the simulator for run configurations.

use anyhow::{Context, Result};
use hksim_engine::TouchRule;
use hksim_sim::report::MainFigures;
use hksim_sim::sweep::SweepProgress;
use hksim_sim::{Addresses, SimConfig, SimError, SimReport, sweep};
use rayon::prelude::*;

use crate::flags::{BaseKernel, RunConfig};
use crate::host;
use crate::inputs::Trace;
use crate::output::progress::Progress;

/// The simulator's setup for a run configuration on a trace.
///
/// # Errors
/// The host's settings cannot be read.
pub fn setup(config: &RunConfig, trace: &Trace, base: BaseKernel) -> Result<SimConfig> {
    let kernel = config.kernel(base)?;
    host::note_unasked(&config.policy, &kernel.thp);
    Ok(SimConfig {
        policy: config.policy,
        touch: config.touch_rule(trace.header.touch),
        kernel,
        memory_policy: config.memory_policy,
        tlb: None,
        addresses: Addresses::default(),
        forks: Vec::new(),
        file: trace.input.file.clone(),
    })
}

impl SweepProgress for Progress {
    fn expect(&self, events: u64) {
        self.expect_more(events);
    }

    fn done(&self, events: u64) {
        self.advance(events);
    }
}

/// Does work on this many workers, by default one per core.
///
/// # Errors
/// The workers cannot be started, or the work fails.
pub fn on_workers<T: Send>(jobs: Option<u16>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let workers = rayon::ThreadPoolBuilder::new().num_threads(jobs.map_or(0, usize::from)).build();
    workers.context("cannot start the worker threads; try a smaller --jobs")?.install(work)
}

/// Simulates each setup of each trace on the current rayon pool. Rows are in the order of the traces, then of their
/// setups.
///
/// # Errors
/// A trace is damaged, or a policy is invalid.
pub fn simulate_all(traces: &[(Trace, Vec<SimConfig>)]) -> Result<Vec<SimReport>> {
    let progress = Progress::events(0);
    let parts: Vec<Result<Vec<SimReport>, SimError>> =
        traces.par_iter().map(|(trace, setups)| sweep(&trace.input, setups, &progress)).collect();
    Ok(parts.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

/// The touch rules whose results bound those of an unknown access pattern.
pub const BRACKET: [TouchRule; 5] =
    [TouchRule::None, TouchRule::First, TouchRule::All, TouchRule::ReadThenAll, TouchRule::AllAtDeath];

/// A simulation with assumed touches, and the same under every other assumption.
pub fn bracketed(headline: &SimConfig) -> Vec<SimConfig> {
    let others = BRACKET.into_iter().filter(|&rule| rule != headline.touch);
    let others = others.map(|touch| SimConfig { touch, tlb: None, ..headline.clone() });
    std::iter::once(headline.clone()).chain(others).collect()
}

/// The first row, with the figures of all rows if there are several.
pub fn with_bracket(rows: Vec<SimReport>) -> Option<SimReport> {
    let words = rows.iter().map(|row| (row.touch.rule.word().to_string(), MainFigures::from(row)));
    let bracket = if rows.len() > 1 { words.collect() } else { Default::default() };
    let headline = rows.into_iter().next()?;
    Some(SimReport { by_touch_rule: bracket, ..headline })
}
