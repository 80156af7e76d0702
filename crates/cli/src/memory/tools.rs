//! `hksim trace` for memory recordings: cut, anonymise, verify.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use hksim_memory_trace::{CopiedTotals, Cut, Verified};
use serde::Serialize;

use crate::output::stamp::Stamp;
use crate::output::trace::{TraceOut, write_new};
use crate::output::{Format, print, render, units};

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
    let report = ToolReport { stamp: Stamp::HERE, tool, file, totals };
    out.print_report(&report, || {
        let end = if totals.complete { "" } else { "; the end of the recording is left out" };
        format!("{}: {}, {}{end}\n", report.file, units::of(totals.events, "event"), units::time(totals.duration_ns))
    })
}

#[derive(Debug, Serialize)]
struct VerifyReport {
    #[serde(flatten)]
    stamp: Stamp,
    file: String,
    #[serde(flatten)]
    verified: Verified,
    repaired: Option<String>,
}

/// Checks a recording. The exit code is 1 if it is damaged or truncated, even if it is repaired.
///
/// # Errors
/// The input cannot be read, or the repaired recording cannot be written.
pub fn verify(path: &Path, repair: Option<&Path>, format: Format) -> Result<ExitCode> {
    let verified = hksim_memory_trace::verify(path)?;
    // With a damaged header there is nothing to write.
    let repaired = repair.filter(|_| verified.valid || verified.events > 0);
    if let Some(wanted) = repaired {
        write_new(wanted, &[path], |to| hksim_memory_trace::repair(path, to))?;
    }
    let is_sound = verified.valid;
    let (file, repaired) = (path.display().to_string(), repaired.map(|path| path.display().to_string()));
    let report = VerifyReport { stamp: Stamp::HERE, file, verified, repaired };
    print(&render(format, &report, &[&report], || table(&report))?)?;
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(report: &VerifyReport) -> String {
    let VerifyReport { file, verified, repaired, .. } = report;
    let (events, time) = (units::count(verified.events), units::time(verified.duration_ns));
    let mut text = match &verified.damage {
        None => format!("{file}: sound, {events} events, {time}\n"),
        Some(damage) => {
            let damage = damage.strip_prefix(&format!("{file}: ")).unwrap_or(damage);
            format!("{file}: NOT sound: {damage}\n{events} events before the damage are usable, {time}\n")
        }
    };
    for finding in &verified.findings {
        let (count, first) = (units::count(finding.events), units::count(finding.first_event));
        text += &format!("{count:<14}{}, first at event {first}\n", finding.description);
    }
    match (repaired, verified.valid) {
        (Some(repaired), _) => text += &format!("{repaired}: written with these {events} events\n"),
        (None, false) if verified.events > 0 => text += "--repair FILE.hkm writes them to a new recording\n",
        (None, _) => {}
    }
    text
}
