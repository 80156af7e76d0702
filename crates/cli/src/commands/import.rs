//! `hksim import`: traces of other programs.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use hksim_trace::error::TraceError;
use hksim_trace::import::{ImportReport, Kind, import};
use serde::Serialize;

use crate::output::file::Staged;
use crate::output::{Format, print, render, units};

/// Arguments of `import`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace of another program: plain, xz, zstd or a zip archive
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// Its format (script, android); recognised without
    #[arg(long, value_name = "KIND")]
    from: Option<String>,
    /// Trace to write
    #[arg(short, long, value_name = "FILE.hkt")]
    output: PathBuf,
    /// Form of the report on standard output
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Imported {
    schema: u32,
    file: String,
    #[serde(flatten)]
    report: ImportReport,
}

/// Converts the trace.
///
/// # Errors
/// Input that is no trace of a known format; output that cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let known = || Kind::ALL.map(Kind::name).join(", ");
    let kind = args.from.as_deref().map(|name| {
        Kind::from_name(name).ok_or_else(|| anyhow!("--from {name}: unknown format; formats are {}", known()))
    });
    let kind = kind.transpose()?;
    let same = |a: Option<PathBuf>, b: Option<PathBuf>| a.is_some() && a == b;
    if same(fs::canonicalize(&args.trace).ok(), fs::canonicalize(&args.output).ok()) {
        return Err(TraceError::SameFile { path: args.trace.clone() }.into());
    }
    let staged = Staged::new(&args.output)?;
    let report = import(&args.trace, kind, staged.path()).map_err(|why| staged.rename_error(why))?;
    staged.keep()?;
    let imported = Imported { schema: hksim_sim::report::SCHEMA, file: args.output.display().to_string(), report };
    print(&render(args.format, &imported, &[&imported], || table(&imported))?)
}

fn table(imported: &Imported) -> String {
    let Imported { file, report, .. } = imported;
    let member = report.member.as_ref().map(|name| format!(" (member {name})")).unwrap_or_default();
    let [lines, events, objects] = [report.lines, report.events, u64::from(report.objects_peak)].map(units::count);
    let mut text = format!(
        "{file}: {events} events from {lines} lines of {}{member}, {} threads, up to {objects} objects live at once\n",
        report.kind.name(),
        report.threads
    );
    text += &super::info::quality_lines(&report.quality);
    text
}
