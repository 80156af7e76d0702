//! `hksim trace verify`: checks the integrity of a trace.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use hksim_trace::tools::{Verified, repair, verify};
use serde::Serialize;

use crate::memory;
use crate::output::trace::write_new;
use crate::output::{Format, plain, print, render, units};
use hksim_results::Stamp;

/// Arguments of `trace verify`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim trace verify app.hkt\n  hksim trace verify app.hkt --repair repaired.hkt"
)]
pub struct Args {
    /// Check this trace
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    /// Write the events before the first damage to this trace
    #[arg(long, value_name = "FILE.hkt")]
    repair: Option<PathBuf>,
    /// Print the report in this format
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    stamp: Stamp,
    file: String,
    #[serde(flatten)]
    verified: Verified,
    repaired: Option<String>,
}

/// Checks the trace. The exit code is 1 if it is damaged or truncated, even if it is repaired.
///
/// # Errors
/// The input is not a trace, or the repaired trace cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (from, is_recording) = (&args.trace, memory::is_recording(&args.trace));
    let verified = if is_recording { memory::tools::verify(from)? } else { verify(from)? };
    // With a damaged header there is nothing to write.
    let repaired = args.repair.as_ref().filter(|_| verified.valid || verified.events > 0);
    match repaired {
        Some(wanted) if is_recording => {
            write_new(wanted, &[from], |to| hksim_memory_trace::repair(from, to).map(drop))?;
        }
        Some(wanted) => write_new(wanted, &[from], |to| repair(from, to).map(drop))?,
        None => {}
    }
    let sound = verified.valid;
    let repaired = repaired.map(|path| path.display().to_string());
    let report = Report { stamp: Stamp::here(), file: from.display().to_string(), verified, repaired };
    print(&render(args.format, &report, &[&report], || table(&report, is_recording))?)?;
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(report: &Report, is_recording: bool) -> String {
    let Report { file, verified, repaired, .. } = report;
    let (events, time) = (units::count(verified.events), units::time(verified.duration_ns));
    let mut text = match &verified.damage {
        None => format!("{file}: sound, {events} events, {time}\n"),
        Some(damage) => {
            let damage = plain(damage.strip_prefix(&format!("{file}: ")).unwrap_or(damage));
            format!("{file}: NOT sound: {damage}\n{events} events before the damage are usable, {time}\n")
        }
    };
    for finding in &verified.findings {
        let (count, first) = (units::count(finding.events), units::count(finding.first_event));
        text += &format!("{count:<14}{}, first at event {first}\n", plain(finding.description));
    }
    let (suffix, kind) = if is_recording { ("hkm", "recording") } else { ("hkt", "trace") };
    match (repaired, verified.valid) {
        (Some(repaired), _) => text += &format!("{repaired}: written with these {events} events\n"),
        (None, false) if verified.events > 0 => {
            text += &format!("--repair FILE.{suffix} writes them to a new {kind}\n");
        }
        (None, _) => {}
    }
    text
}
