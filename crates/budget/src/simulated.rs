//! Rows of policies: simulates them.

use hksim_cost_model::Profile;
use hksim_explore::digest::Digest;
use hksim_explore::error::ExploreError;
use hksim_explore::flags::{BaseKernel, RunConfig};
use hksim_explore::inputs::Trace;
use hksim_explore::plan::Plan;
use hksim_explore::priced::{self, Priced};
use hksim_explore::runs::{Listener, setup};
use hksim_sim::tlb::Geometry;
use hksim_sim::{SimConfig, SimReport};
use hksim_time_model::not_calibrated;
use hksim_trace::header::TouchSource;
use serde_json::json;

use crate::error::BudgetError;
use crate::metric::Metric;
use crate::row::{Figures, Subject};
use crate::run::{Design, Held, Machine};

/// Simulates every policy on every trace. The results are ordered by trace, then by policy.
pub(crate) fn simulate(
    traces: Vec<Trace>,
    policies: &[&RunConfig],
    machine: Machine<'_>,
    listener: &dyn Listener,
) -> Result<Vec<Held>, BudgetError> {
    let Machine { core, profile } = machine;
    if policies.is_empty() {
        return Ok(Vec::new());
    }
    let setup = |trace: &Trace, config: &RunConfig| {
        let counted = priced::counted(&config.policy, profile);
        let setup = SimConfig { tlb: core, counted, ..setup(config, trace, BaseKernel::AsItComes)? };
        listener.simulates(&setup.policy, &setup.kernel);
        Ok::<_, ExploreError>(setup)
    };
    let plan = Plan::new(traces, |trace| policies.iter().map(|config| setup(trace, config)).collect())?;
    let all: Vec<usize> = (0..plan.rows()).collect();
    let reports = plan.simulate(&all, None, &*listener.begin())?;
    Ok(reports.into_iter().map(|report| simulated(report, core, profile)).collect())
}

fn simulated(report: SimReport, core: Option<&'static Geometry>, profile: Option<&Profile>) -> Held {
    let subject = Subject::Policy { policy: Box::new(report.policy) };
    let inputs = inputs(&report, core, profile);
    let (faults, traps, rss_bytes_end) = (report.faults, report.traps, report.rss_bytes_end);
    let known = priced::figures(&Priced::new(report, profile));
    let figures = Figures {
        installs: Some(known.installs),
        faults: Some(faults),
        traps: Some(traps),
        rss_bytes_peak: Some(known.rss_bytes_peak),
        rss_bytes_end: Some(rss_bytes_end),
        live_bytes_end: None,
        vmas_peak: Some(known.vmas_peak),
        requests_failed: known.requests_failed,
        tlb_misses: known.tlb_misses,
        system_time: known.system_time,
        ns_per_call: known.ns_per_call,
        parts_ns_per_call: known.parts_ns_per_call,
    };
    Held { subject, inputs, figures, measured: None }
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
pub(crate) fn check_misses(design: &Design, traces: &[Trace], core: Option<&Geometry>) -> Result<(), BudgetError> {
    if !design.limits.iter().any(|limit| limit.metric == Metric::TlbMisses) {
        return Ok(());
    }
    if core.is_none() {
        return Err(design.unknown(Metric::TlbMisses, "needs `tlb`, the core to model"));
    }
    match traces.iter().find(|trace| trace.header.touch != TouchSource::FullStream) {
        Some(trace) => Err(BudgetError::File {
            file: trace.name().into(),
            why: "tlb_misses: the trace does not have every access of the program; record it with --accesses full"
                .into(),
        }),
        None => Ok(()),
    }
}

/// Checks, before the work starts, that limited times per call will be known.
pub(crate) fn check_times(design: &Design, config: &RunConfig, profile: Option<&Profile>) -> Result<(), BudgetError> {
    if !design.limits.iter().any(|limit| limit.metric == Metric::NsPerCall) {
        return Ok(());
    }
    let missing = match (profile, not_calibrated(&config.policy)) {
        (None, _) => return Ok(()),
        (Some(profile), _) if profile.memory.is_none() => "the profile has no costs of memory".to_string(),
        (Some(_), Some(setting)) => format!("the instructions of the allocator were not measured with {setting}"),
        (Some(_), None) => return Ok(()),
    };
    Err(design.unknown(Metric::NsPerCall, &missing))
}
