//! Runs of the simulator for run configurations.

use anyhow::Result;
use hksim_engine::TouchRule;
use hksim_sim::{Addresses, SimConfig, Sweep, sweep};
use rayon::prelude::*;

use crate::flags::{BaseKernel, RunConfig};
use crate::inputs::Trace;
use crate::output::progress::Progress;

/// The simulator's setup for a run configuration on a trace.
///
/// # Errors
/// The host's settings cannot be read.
pub fn setup(config: &RunConfig, trace: &Trace, base: BaseKernel) -> Result<SimConfig> {
    Ok(SimConfig {
        policy: config.policy,
        touch: config.touch_rule(trace.header.touch),
        kernel: config.kernel(base)?,
        memory_policy: config.memory_policy,
        tlb: None,
        addresses: Addresses::default(),
        forks: Vec::new(),
        file: trace.input.file.clone(),
    })
}

/// Simulates each setup of each trace on the current rayon pool. Rows are in the order of the traces, then of their
/// setups.
///
/// # Errors
/// A trace is damaged, or a policy is invalid.
pub fn simulate_all(traces: &[(Trace, Vec<SimConfig>)]) -> Result<Sweep> {
    let events = traces.iter().map(|(trace, setups)| trace.summary.events.saturating_mul(setups.len() as u64));
    let progress = Progress::events(events.sum());
    let advance = |events| progress.advance(events);
    let parts = traces
        .par_iter()
        .map(|(trace, setups)| sweep(std::slice::from_ref(&trace.input), setups, &advance))
        .collect::<Result<Vec<Sweep>, _>>()?;
    let mut whole = Sweep { rows: Vec::new(), pareto: Vec::new() };
    for part in parts {
        let first = whole.rows.len();
        whole.pareto.extend(part.pareto.into_iter().map(|row| first + row));
        whole.rows.extend(part.rows);
    }
    Ok(whole)
}

/// The touch rules whose results bound those of an unknown access pattern.
pub const BRACKET: [TouchRule; 5] =
    [TouchRule::None, TouchRule::First, TouchRule::All, TouchRule::ReadThenAll, TouchRule::AllAtDeath];
