//! Rows of policies and other designs: simulates them.

use hksim_cost_model::Profile;
use hksim_designs::Label;
use hksim_explore::described::Described;
use hksim_explore::digest::Digest;
use hksim_explore::error::ExploreError;
use hksim_explore::flags::{BaseKernel, RunConfig};
use hksim_explore::inputs::Trace;
use hksim_explore::plan::Plan;
use hksim_explore::priced::{self, Priced};
use hksim_explore::runs::{Listener, setup_of};
use hksim_policy::Policy;
use hksim_sim::tlb::Geometry;
use hksim_sim::{SimConfig, SimReport};
use hksim_time_model::not_calibrated;
use hksim_trace::header::TouchSource;
use serde_json::json;

use crate::error::BudgetError;
use crate::metric::Metric;
use crate::row::{Figures, Subject};
use crate::run::{Design, Held, Machine};

/// What describes an allocator that is simulated, as the subject of a row.
pub(crate) trait Simulated: Described {
    fn subject(self) -> Subject;
}

impl Simulated for Policy {
    fn subject(self) -> Subject {
        Subject::Policy { policy: Box::new(self) }
    }
}

impl Simulated for Label {
    fn subject(self) -> Subject {
        Subject::Design { policy: Box::new(self) }
    }
}

/// Simulates every allocator on every trace, each with the program and the kernel of its configuration. The results are
/// ordered by trace, then by allocator.
pub(crate) fn simulate<P: Simulated>(
    traces: Vec<Trace>,
    allocators: &[(P, &RunConfig)],
    machine: Machine<'_>,
    listener: &dyn Listener,
) -> Result<Vec<Held>, BudgetError> {
    let Machine { core, profile } = machine;
    if allocators.is_empty() {
        return Ok(Vec::new());
    }
    let setup = |trace: &Trace, (allocator, config): &(P, &RunConfig)| {
        let counted = allocator.counted(profile);
        let setup = setup_of(allocator.clone(), config, trace, BaseKernel::AsItComes)?;
        listener.simulates(&allocator.of_modes(), &setup.kernel);
        Ok::<_, ExploreError>(SimConfig { tlb: core, counted, ..setup })
    };
    let plan = Plan::new(traces, |trace| allocators.iter().map(|allocator| setup(trace, allocator)).collect())?;
    let all: Vec<usize> = (0..plan.rows()).collect();
    let reports = plan.simulate(&all, None, &*listener.begin())?;
    Ok(reports.into_iter().map(|report| simulated(report, core, profile)).collect())
}

fn simulated<P: Simulated>(report: SimReport<P>, core: Option<&'static Geometry>, profile: Option<&Profile>) -> Held {
    let subject = report.policy.clone().subject();
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
        killed_at_limit_bytes: known.killed_at_limit_bytes,
        tlb_misses: known.tlb_misses,
        system_time: known.system_time,
        ns_per_call: known.ns_per_call,
        parts_ns_per_call: known.parts_ns_per_call,
    };
    Held { subject, inputs, figures, measured: None }
}

/// The digest of the inputs that a row does not show: the program's assumptions, the kernel, the TLB and the
/// profile.
fn inputs<P>(report: &SimReport<P>, core: Option<&'static Geometry>, profile: Option<&Profile>) -> Digest {
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
