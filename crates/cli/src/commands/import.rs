//! `hksim import`: converts traces of other tools.

mod faults;

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use hksim_text::nearest;
use hksim_trace::import::faults::FaultOptions;
use hksim_trace::import::{Format as Source, ImportReport, OnDoubt, Options, import};
use serde::Serialize;

use crate::memory;
use crate::output::trace::{rest_of_totals, write_new};
use crate::output::{Format, plain, print, render, units};
use hksim_results::Stamp;

/// Arguments of `import`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim import heaptrack.app.zst -o app.hkt\n  hksim import --faults perf.txt --plot faults.svg"
)]
pub struct Args {
    /// Convert this trace: plain, gz, bz2, xz, zstd or a zip archive (- for standard input, which cannot be zip)
    #[arg(value_name = "FILE", required_unless_present = "faults")]
    trace: Option<PathBuf>,
    /// Explain the page faults in this output of `perf script` by region, reason and time (- for standard input)
    #[arg(long, value_name = "SCRIPT", conflicts_with_all = ["trace", "from"])]
    faults: Option<PathBuf>,
    /// With --faults: read mappings that the script lacks from this copy of /proc/PID/maps
    #[arg(long, value_name = "FILE", requires = "faults")]
    maps: Option<PathBuf>,
    /// With --faults: draw the faults over time as SVG or PNG
    #[arg(long, value_name = "PICTURE", requires = "faults", value_parser = crate::pictures::parse_picture)]
    plot: Option<PathBuf>,
    /// Read this format, as listed in docs/reference/import.md [default: recognised from the content]
    #[arg(long, value_name = "KIND")]
    from: Option<String>,
    /// Take this process, if the trace has several [default: the first]
    #[arg(long, value_name = "N")]
    pid: Option<u64>,
    /// Import also a file whose events do not fit together
    #[arg(long, conflicts_with = "faults")]
    force: bool,
    /// Write the trace to this file; with --faults, write the report
    #[arg(short, long, value_name = "FILE.hkt", required_unless_present = "faults")]
    output: Option<PathBuf>,
    /// Print the report in this format
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Args {
    fn faults_options(&self) -> FaultOptions {
        FaultOptions { process: self.pid, maps: self.maps.clone() }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Imported {
    #[serde(flatten)]
    pub stamp: Stamp,
    pub file: String,
    #[serde(flatten)]
    pub report: ImportReport,
}

/// Converts the trace, or explains faults.
///
/// # Errors
/// The input is not a trace of a known format, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    if let Some(script) = &args.faults {
        return faults::run(args, script);
    }
    let (Some(trace), Some(output)) = (&args.trace, &args.output) else {
        bail!("name the trace, and the output with -o")
    };
    memory::refuse(trace)?;
    let source = args.from.as_deref().map(|name| {
        Source::from_name(name).ok_or_else(|| {
            let names = Source::names();
            anyhow!("--from {name}: unknown format; formats are {names}{}", nearest::question(name, names.split(", ")))
        })
    });
    let on_doubt = if args.force { OnDoubt::Import } else { OnDoubt::Refuse };
    let options = Options { format: source.transpose()?, process: args.pid, on_doubt };
    let report = write_new(output, &[trace], |path| import(trace, &options, path))?;
    let imported = Imported { stamp: Stamp::here(), file: output.display().to_string(), report };
    print(&render(args.format, &imported, &[&imported], || table(&imported))?)
}

pub(super) fn table(imported: &Imported) -> String {
    let Imported { file, report, .. } = imported;
    let member = report.archive_member.as_ref().map(|name| format!(" (member {})", plain(name))).unwrap_or_default();
    let (amount, unit) = if report.lines > 0 { (report.lines, "line") } else { (report.bytes, "byte") };
    let (events, read) = (units::of(report.events, "event"), units::of(amount, unit));
    let rest = rest_of_totals(report.threads, report.objects_peak);
    let mut text = format!("{file}: {events} from {read} of {}{member}, {rest}\n", report.format);
    text += &hksim_reports::trace_info::quality_lines(&report.quality);
    text += &format!("{:<22}of the known calls are in the trace unchanged\n", share(report.complete_share));
    if !report.not_recorded.is_empty() {
        text += &format!("{:<22}{}\n", "not in the source", report.not_recorded.join(", "));
    }
    report.notes.iter().for_each(|note| text += &format!("{:<22}{}\n", "note", plain(note)));
    text
}

/// A share in percent, never rounded up to 100 %.
fn share(share: f64) -> String {
    if share >= 1.0 { "100 %".to_string() } else { format!("{:.2} %", (share * 1e4).floor() / 1e2) }
}
