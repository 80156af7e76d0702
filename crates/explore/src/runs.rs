//! Runs of the simulator for run configurations.

use hksim_conformance::HostError;
use hksim_engine::TouchRule;
use hksim_linux_mm::KernelConfig;
use hksim_policy::Policy;
use hksim_sim::report::MainFigures;
use hksim_sim::sweep::SweepProgress;
use hksim_sim::{Addresses, Counted, SimConfig, SimError, SimReport};
use rayon::prelude::*;

use crate::described::Described;
use crate::flags::{BaseKernel, RunConfig};
use crate::inputs::Trace;
use crate::memory_limit;

/// The simulator's setup for a run configuration on a trace.
///
/// # Errors
/// The host's settings cannot be read.
pub fn setup(config: &RunConfig, trace: &Trace, base: BaseKernel) -> Result<SimConfig, HostError> {
    setup_of(config.policy, config, trace, base)
}

/// The simulator's setup for an allocator with the program and the kernel of a run configuration.
///
/// # Errors
/// The host's settings cannot be read.
pub fn setup_of<P>(policy: P, config: &RunConfig, trace: &Trace, base: BaseKernel) -> Result<SimConfig<P>, HostError> {
    let kernel = config.kernel(base)?;
    Ok(SimConfig {
        policy,
        touch: config.touch_rule(trace.header.touch),
        kernel,
        memory_policy: config.memory_policy,
        tlb: None,
        addresses: Addresses::default(),
        forks: Vec::new(),
        counted: Counted::Pages,
        file: trace.input.file.clone(),
    })
}

/// Is told what is simulated.
pub trait Listener: Sync {
    /// A batch of simulations begins, whose progress is told to the result.
    fn begin(&self) -> Box<dyn SweepProgress + '_>;
    /// This policy is in the batch, on this kernel.
    fn simulates(&self, _policy: &Policy, _kernel: &KernelConfig) {}
}

/// Tells nobody.
impl Listener for () {
    fn begin(&self) -> Box<dyn SweepProgress + '_> {
        Box::new(())
    }
}

/// Simulates each setup of each trace on the current rayon pool. Rows are in the order of the traces, then of their
/// setups. Setups with a memory limit are simulated several times, to find the least limit.
///
/// # Errors
/// A trace is damaged, or a policy is invalid.
pub fn simulate_all<P: Described>(
    traces: &[(Trace, Vec<SimConfig<P>>)],
    progress: &dyn SweepProgress,
) -> Result<Vec<SimReport<P>>, SimError> {
    of_each(traces, |trace, setups| {
        let mut reports = P::sweep(&trace.input, setups, progress, &|_, _| {})?;
        memory_limit::complete(trace, setups, &mut reports)?;
        Ok(reports)
    })
}

/// The same without the search for the least memory limit: each setup is simulated once.
///
/// # Errors
/// As for [`simulate_all`].
pub fn simulate_once<P: Described>(
    traces: &[(Trace, Vec<SimConfig<P>>)],
    progress: &dyn SweepProgress,
) -> Result<Vec<SimReport<P>>, SimError> {
    of_each(traces, |trace, setups| P::sweep(&trace.input, setups, progress, &|_, _| {}))
}

fn of_each<P: Described>(
    traces: &[(Trace, Vec<SimConfig<P>>)],
    simulate: impl Fn(&Trace, &[SimConfig<P>]) -> Result<Vec<SimReport<P>>, SimError> + Sync,
) -> Result<Vec<SimReport<P>>, SimError> {
    let parts = traces.par_iter().map(|(trace, setups)| simulate(trace, setups));
    let parts: Vec<Result<Vec<SimReport<P>>, SimError>> = parts.collect();
    Ok(parts.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

/// The touch rules whose results bound those of an unknown access pattern.
pub const BRACKET: [TouchRule; 5] =
    [TouchRule::None, TouchRule::First, TouchRule::All, TouchRule::ReadThenAll, TouchRule::AllAtDeath];

/// A simulation with assumed touches, and the same under every other assumption. Only the first counts more than pages.
pub fn bracketed<P: Clone>(headline: &SimConfig<P>) -> Vec<SimConfig<P>> {
    let others = BRACKET.into_iter().filter(|&rule| rule != headline.touch);
    let others = others.map(|touch| SimConfig { touch, tlb: None, counted: Counted::Pages, ..headline.clone() });
    std::iter::once(headline.clone()).chain(others).collect()
}

/// The first row, with the figures of all rows if there are several.
pub fn with_bracket<P>(rows: Vec<SimReport<P>>) -> Option<SimReport<P>> {
    let words = rows.iter().map(|row| (row.touch.rule.word().to_string(), MainFigures::from(row)));
    let bracket = if rows.len() > 1 { words.collect() } else { Default::default() };
    let headline = rows.into_iter().next()?;
    Some(SimReport { by_touch_rule: bracket, ..headline })
}
