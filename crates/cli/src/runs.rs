//! Choices made into runs of the simulator.

use anyhow::Result;
use hksim_engine::TouchRule;
use hksim_sim::report::SCHEMA;
use hksim_sim::{Addresses, SimConfig, Sweep, sweep};
use rayon::prelude::*;

use crate::flags::{BaseKernel, Choice};
use crate::inputs::Trace;
use crate::output::progress::Progress;

/// What to simulate for a choice on a trace.
///
/// # Errors
/// The host does not say how it is set up.
pub fn setup(choice: &Choice, trace: &Trace, base: BaseKernel) -> Result<SimConfig> {
    Ok(SimConfig {
        policy: choice.policy,
        touch: choice.touch_rule(trace.header.touch),
        kernel: choice.kernel(base)?,
        memory_policy: choice.memory_policy,
        tlb: None,
        addresses: Addresses::default(),
        forks: Vec::new(),
        file: trace.input.file.clone(),
    })
}

/// Simulates each setup of each trace, on the workers of the current rayon pool. Rows are in the order of traces, then of their setups.
///
/// # Errors
/// The first trace that is damaged, or design that cannot be.
pub fn simulate_all(traces: &[(Trace, Vec<SimConfig>)]) -> Result<Sweep> {
    let events = traces.iter().map(|(trace, setups)| trace.summary.events.saturating_mul(setups.len() as u64));
    let progress = Progress::events(events.sum());
    let advance = |events| progress.advance(events);
    let parts = traces
        .par_iter()
        .map(|(trace, setups)| sweep(std::slice::from_ref(&trace.input), setups, &advance))
        .collect::<Result<Vec<Sweep>, _>>()?;
    let mut whole = Sweep { schema: SCHEMA, rows: Vec::new(), pareto: Vec::new() };
    for part in parts {
        let first = whole.rows.len();
        whole.pareto.extend(part.pareto.into_iter().map(|row| first + row));
        whole.rows.extend(part.rows);
    }
    Ok(whole)
}

/// The rules between which an unknown access pattern lies.
pub const BRACKET: [TouchRule; 5] =
    [TouchRule::None, TouchRule::First, TouchRule::All, TouchRule::ReadThenAll, TouchRule::AllAtDeath];
