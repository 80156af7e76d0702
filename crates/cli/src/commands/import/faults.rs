//! `hksim import --faults`: explains the page faults of any program.

use std::path::Path;

use anyhow::{Result, bail};
use hksim_trace::import::faults::{FaultReport, read};
use serde::Serialize;

use super::Args;
use crate::output::{OutputArgs, file, note, screen, warn};
use crate::pictures;
use hksim_reports::{chart, faults};
use hksim_results::Stamp;

#[derive(Debug, Serialize)]
struct Explained {
    #[serde(flatten)]
    stamp: Stamp,
    file: String,
    #[serde(flatten)]
    report: FaultReport,
}

/// Explains the output of `perf script`.
///
/// # Errors
/// The input has no page faults with addresses, or the output cannot be written.
pub fn run(args: &Args, script: &Path) -> Result<()> {
    let output = OutputArgs { format: args.format.into(), output: args.output.clone() };
    output.check(&[args.plot.as_deref()], &[Some(script), args.maps.as_deref()])?;
    if file::is_standard(script) && args.maps.as_deref().is_some_and(file::is_standard) {
        bail!("--maps -: standard input is the script; copy /proc/PID/maps to a file");
    }
    let report = read(script, &args.faults_options())?;
    if !report.has_mappings {
        warn("the script has no mappings, so regions are unknown; print it with --show-mmap-events, or give --maps");
    }
    if let Some(path) = &args.plot {
        pictures::write(path, &chart::faults::sketch(&script.display().to_string(), &report))?;
        note(&format!("drew {}", path.display()));
    }
    let explained = Explained { stamp: Stamp::here(), file: script.display().to_string(), report };
    let text = || faults::text(&explained.file, &explained.report, screen::columns());
    output.emit(&explained, &explained.report.regions, text)
}
