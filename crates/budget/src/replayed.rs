//! Rows of real allocators: replays a trace until two runs are equal.

use std::path::Path;

use hksim_engine::TouchRule;
use hksim_explore::digest::Digest;
use hksim_explore::inputs::Trace;
use hksim_replay::compare::{Allocator, Found, Spread};
use hksim_replay::{Measure, ReplaySpec, Replayed, Target, replay};
use serde_json::json;

use crate::checksum::checksum;
use crate::error::BudgetError;
use crate::metric::Metric;
use crate::row::{Figures, Measured, MetricRange, Subject};
use crate::run::{Design, Held};
use crate::timed::ns_per_call;

/// Replays of a trace at most.
const RUNS_MAX: usize = 5;

/// A figure of a replay.
type Figure = fn(&Replayed) -> Option<u64>;

/// What is measured, with the name of the figure in the replay's result.
const FIGURES: [(Metric, &str, Figure); 4] = [
    (Metric::Faults, "faults", |run| run.faults),
    (Metric::Traps, "traps", |run| run.traps),
    (Metric::RssPeak, "rss_bytes_peak", |run| run.rss_bytes_peak),
    (Metric::RssBytesEnd, "rss_bytes_end", |run| run.rss_bytes_end),
];

/// Replays a trace on the allocator of a design.
pub(crate) fn replayed(
    design: &Design,
    allocator: &Allocator,
    path: &Path,
    trace: &Trace,
) -> Result<Held, BudgetError> {
    let target = here(design, allocator)?;
    let touch = TouchRule::usual(trace.header.touch);
    let spec = spec(path, target, touch);
    let runs = runs(&spec)?;
    check_known(design, &runs)?;
    let is_timed = design.limits.iter().any(|limit| limit.metric == Metric::NsPerCall);
    let ns_per_call = is_timed.then(|| ns_per_call(&spec)).transpose()?;
    let environment = runs.first().map(|run| &run.environment);
    let inputs = Digest::of(&json!({
        "touch": touch,
        "kernel": environment.map(|machine| &machine.kernel_release),
        "thp": environment.map(|machine| (&machine.thp_enabled, &machine.mthp_enabled)),
    }));
    let figures = Figures { ns_per_call, ..figures(&runs) };
    Ok(Held { subject: subject(allocator, target), inputs, figures, measured: Some(measured(&runs)) })
}

/// What a design is replayed on.
pub(crate) fn here<'a>(design: &Design, allocator: &'a Allocator) -> Result<&'a Target, BudgetError> {
    match &allocator.found {
        Found::Here(target) => Ok(target),
        Found::Missing(why) => Err(BudgetError::Missing { design: design.name.clone(), why: why.clone() }),
    }
}

/// A replay of a trace.
pub(crate) fn spec(path: &Path, target: &Target, touch: TouchRule) -> ReplaySpec {
    ReplaySpec { measure: Measure::PAGES, ..ReplaySpec::ordered(path, target.clone(), touch) }
}

/// Replays until two runs in succession are equal.
fn runs(spec: &ReplaySpec) -> Result<Vec<Replayed>, BudgetError> {
    let is_same = |one: &Replayed, other: &Replayed| FIGURES.iter().all(|(_, _, figure)| figure(one) == figure(other));
    let mut runs: Vec<Replayed> = Vec::new();
    while runs.len() < RUNS_MAX {
        runs.push(replay(spec)?);
        if let [.., one, other] = runs.as_slice()
            && is_same(one, other)
        {
            break;
        }
    }
    Ok(runs)
}

/// Checks that all limited figures were measured.
fn check_known(design: &Design, runs: &[Replayed]) -> Result<(), BudgetError> {
    for (metric, name, figure) in FIGURES {
        let is_limited = design.limits.iter().any(|limit| limit.metric == metric);
        let Some(run) = runs.iter().find(|run| is_limited && figure(run).is_none()) else { continue };
        let reason = run.skipped.iter().find(|skipped| skipped.figure.split(", ").any(|of| of == name));
        let why = reason.map_or("not measured on this machine", |skipped| skipped.reason.as_str());
        return Err(design.unknown(metric, why));
    }
    Ok(())
}

fn spread(runs: &[Replayed], figure: Figure) -> Option<Spread<u64>> {
    Spread::of(runs.iter().map(figure))
}

/// The medians.
fn figures(runs: &[Replayed]) -> Figures {
    let median = |figure: Figure| spread(runs, figure).map(|spread| spread.median);
    let [faults, traps, rss_bytes_peak, rss_bytes_end] = FIGURES.map(|(_, _, figure)| median(figure));
    let requests_failed = median(|run| Some(run.requests_failed)).unwrap_or(0);
    Figures { faults, traps, rss_bytes_peak, rss_bytes_end, requests_failed, ..Figures::default() }
}

fn measured(runs: &[Replayed]) -> Measured {
    let range = |(metric, _, figure): (Metric, &str, Figure)| {
        let Spread { min, max, .. } = spread(runs, figure)?;
        (min < max).then_some(MetricRange { metric, low: min as f64, high: max as f64 })
    };
    Measured { runs: runs.len() as u32, ranges: FIGURES.into_iter().filter_map(range).collect() }
}

fn subject(allocator: &Allocator, target: &Target) -> Subject {
    let library = match target {
        Target::Malloc { preload, .. } => preload.clone(),
        Target::Native(_) | Target::Design { .. } => None,
    };
    let library_checksum = library.as_ref().and_then(|path| checksum(path).ok());
    Subject::Allocator { on: allocator.name.clone(), library, library_checksum }
}
