//! `hksim trace` for memory recordings: cut, anonymise, verify.

use std::path::Path;

use anyhow::{Result, bail};
use hksim_memory_trace::{CopiedTotals, Cut};
use hksim_trace::tools::{Finding, Verified};
use serde::Serialize;

use crate::output::trace::TraceOut;
use crate::output::units;
use hksim_results::Stamp;

/// The result of a tool that writes a recording.
#[derive(Debug, Serialize)]
struct ToolReport {
    #[serde(flatten)]
    stamp: Stamp,
    tool: &'static str,
    file: String,
    #[serde(flatten)]
    totals: CopiedTotals,
}

/// Writes the beginning of a recording. `keep` is `None` if the part has another start, or leaves something out.
///
/// # Errors
/// The part is not a beginning or has no events, the input is damaged, or the output cannot be written.
pub fn cut(path: &Path, keep: Option<Cut>, out: &TraceOut) -> Result<()> {
    let Some(keep) = keep else {
        bail!(
            "{}: a memory recording can only be cut at its end, because its mappings and pages depend on all earlier \
             events; use --to TIME or --events ..N",
            path.display()
        );
    };
    let totals = out.write(&[path], |to| hksim_memory_trace::cut(path, to, keep))?;
    print_report("cut", out, totals)
}

/// Writes a recording without names.
///
/// # Errors
/// The input is damaged, or the output cannot be written.
pub fn anonymise(path: &Path, out: &TraceOut) -> Result<()> {
    let totals = out.write(&[path], |to| hksim_memory_trace::anonymise(path, to))?;
    print_report("anonymise", out, totals)
}

fn print_report(tool: &'static str, out: &TraceOut, totals: CopiedTotals) -> Result<()> {
    let file = out.output.display().to_string();
    let report = ToolReport { stamp: Stamp::here(), tool, file, totals };
    out.print_report(&report, || {
        let end = if totals.complete { "" } else { "; the end of the recording is left out" };
        format!("{}: {}, {}{end}\n", report.file, units::of(totals.events, "event"), units::time(totals.duration_ns))
    })
}

/// Checks a recording. The result is in the terms of traces.
///
/// # Errors
/// The input cannot be read.
pub fn verify(path: &Path) -> Result<Verified> {
    let hksim_memory_trace::Verified { valid, events, duration_ns, damage, findings } =
        hksim_memory_trace::verify(path)?;
    let finding = |finding: hksim_memory_trace::Finding| {
        let hksim_memory_trace::Finding { description, events, first_event } = finding;
        Finding { description, events, first_event }
    };
    Ok(Verified { valid, events, duration_ns, damage, findings: findings.into_iter().map(finding).collect() })
}
