//! Designs that are held to a budget: simulates them.

use hksim_cost_model::Profile;
use hksim_sim::tlb::Geometry;
use hksim_sim::{SimConfig, SimReport};
use hksim_trace::error::TraceError;
use hksim_trace::header::TouchSource;
use hksim_trace::info::Info;
use serde_json::json;

use crate::budget::{Allowed, Budget, Metric, Row};
use crate::digest::Digest;
use crate::error::ExploreError;
use crate::flags::{BaseKernel, RunConfig};
use crate::inputs::Trace;
use crate::plan::Plan;
use crate::priced::{self, Priced};
use crate::runs::{Listener, setup};
use hksim_time_model::not_calibrated;

/// A design of the budget: its name, its configuration and its limits.
pub type Named = (String, RunConfig, Vec<Allowed>);

/// Simulates every design on every trace, with the TLB of a core and the costs of a machine if they are given. Rows are
/// ordered by trace, then by design.
///
/// # Errors
/// A trace is incomplete or damaged, or a limited figure will not be known.
pub fn rows(
    budget: &Budget,
    traces: Vec<Trace>,
    designs: &[Named],
    (core, profile): (Option<&'static Geometry>, Option<&Profile>),
    listener: &dyn Listener,
) -> Result<Vec<Row>, ExploreError> {
    if let Some(trace) = traces.iter().find(|trace| !trace.summary.complete) {
        return Err(ExploreError::Budget(format!(
            "{}: the trace is incomplete, so a budget cannot be checked with it; record it again",
            trace.name()
        )));
    }
    check_misses(&traces, core, designs)?;
    check_times(profile, designs)?;
    let allocations = traces.iter().map(allocations).collect::<Result<Vec<u64>, _>>()?;
    let checksums: Vec<Option<String>> = traces.iter().map(|trace| trace.label().checksum).collect();
    let configs: Vec<RunConfig> = designs.iter().map(|(_, config, _)| config.clone()).collect();
    let setup = |trace: &Trace, config: &RunConfig| {
        let counted = priced::counted(&config.policy, profile);
        let setup = SimConfig { tlb: core, counted, ..setup(config, trace, BaseKernel::AsItComes)? };
        listener.simulates(&setup.policy, &setup.kernel);
        Ok::<_, ExploreError>(setup)
    };
    let plan = Plan::new(traces, |trace| configs.iter().map(|config| setup(trace, config)).collect())?;
    let all: Vec<usize> = (0..plan.rows()).collect();
    let reports = plan.simulate(&all, None, &*listener.begin())?;
    let row = |(index, report): (usize, SimReport)| {
        let (trace, design) = (index / designs.len(), index % designs.len());
        Row {
            trace: budget.traces[trace].display().to_string(),
            checksum: checksums[trace].clone(),
            design: designs[design].0.clone(),
            policy: report.policy,
            inputs: inputs(&report, core, profile),
            allocations: allocations[trace],
            figures: priced::figures(&Priced::new(report, profile)),
        }
    };
    Ok(reports.into_iter().enumerate().map(row).collect())
}

/// The digest of the inputs that a row does not show: the program's assumptions, the kernel, the TLB and the
/// profile.
fn inputs(report: &SimReport, core: Option<&'static Geometry>, profile: Option<&Profile>) -> Digest {
    let (touch, memory_policy) = (report.touch, report.memory_policy.rule);
    let core = core.map(|core| core.name);
    Digest::of(
        &json!({"touch": touch, "memory_policy": memory_policy, "kernel": report.kernel, "tlb": core, "profile": profile}),
    )
}

/// Checks, before the work starts, that limited TLB misses will be known.
fn check_misses(traces: &[Trace], core: Option<&'static Geometry>, designs: &[Named]) -> Result<(), ExploreError> {
    let limits_misses = |allowed: &Vec<Allowed>| allowed.iter().any(|allowed| allowed.metric == Metric::TlbMisses);
    let Some((name, _, _)) = designs.iter().find(|(_, _, allowed)| limits_misses(allowed)) else { return Ok(()) };
    if core.is_none() {
        return Err(ExploreError::Budget(format!("design.{name}: tlb_misses: needs `tlb`, the core to model")));
    }
    match traces.iter().find(|trace| trace.header.touch != TouchSource::FullStream) {
        Some(trace) => Err(ExploreError::Budget(format!(
            "{}: tlb_misses: the trace does not have every access of the program; record it with --accesses full",
            trace.name()
        ))),
        None => Ok(()),
    }
}

/// Checks, before the work starts, that limited times will be known.
fn check_times(profile: Option<&Profile>, designs: &[Named]) -> Result<(), ExploreError> {
    let limits_time = |allowed: &[Allowed]| allowed.iter().any(|allowed| allowed.metric == Metric::NsPerCall);
    for (name, config, _) in designs.iter().filter(|(_, _, allowed)| limits_time(allowed)) {
        let missing = match (profile, not_calibrated(&config.policy)) {
            (None, _) => "needs `profile`, a file that `hksim calibrate -o` wrote".to_string(),
            (Some(profile), _) if profile.memory.is_none() => "the profile has no costs of memory".to_string(),
            (Some(_), Some(setting)) => format!("the instructions of the allocator were not measured with {setting}"),
            (Some(_), None) => continue,
        };
        return Err(ExploreError::Budget(format!("design.{name}: ns_per_call: {missing}")));
    }
    Ok(())
}

/// Calls that allocate.
fn allocations(trace: &Trace) -> Result<u64, TraceError> {
    let info = Info::of(&mut *(trace.input.open)()?)?;
    Ok(info.mallocs + info.callocs + info.reallocs + info.aligned_allocs)
}
