//! `hksim info`: summarises a trace.

pub mod sites;
mod view;

use std::path::PathBuf;

use anyhow::Result;
use hksim_trace::hkt::TraceReader;
use hksim_trace::info::Info;
use hksim_trace::source::EventSource;
use serde::Serialize;
use sites::{By, TopSites};

pub use view::{origin_text, quality_lines, touch_text};

use crate::chart;
use crate::memory;
use crate::output::stamp::Stamp;
use crate::output::{OutputArgs, note};

/// Arguments of `info`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim info app.hkt\n  hksim info app.hkt --sites=20 --by peak\n  hksim info app.hkt --sites --by peak --folded peak.folded"
)]
pub struct Args {
    /// Summarise this trace
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    /// Draw live bytes over time [name if omitted: hksim-info.svg]
    #[arg(long, value_name = "FILE.svg", num_args = 0..=1, require_equals = true, default_missing_value = "hksim-info.svg", value_parser = chart::parse_picture)]
    plot: Option<PathBuf>,
    /// List the top N call sites with functions and lines [N if omitted: 10]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    sites: Option<usize>,
    /// Rank call sites by this figure
    #[arg(long, value_enum, default_value = "bytes", requires = "sites")]
    by: By,
    /// Write the figure of --by for all call sites as folded stacks, for a flame graph
    #[arg(long, value_name = "FILE", requires = "sites")]
    folded: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Summarises a trace.
///
/// # Errors
/// The input is not a trace, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    args.output.check(&[args.plot.as_deref(), args.folded.as_deref()], &[Some(&args.trace)])?;
    if memory::is_recording(&args.trace) {
        memory::refuse_flags(&args.trace, &[("plot", args.plot.is_some()), ("folded", args.folded.is_some())])?;
        return memory::info::run(&args.trace, args.sites, args.by, &args.output);
    }
    let mut reader = TraceReader::open(&args.trace)?;
    let truncated = reader.tail().map(|tail| tail.to_string());
    if let Some(tail) = &truncated {
        note(&format!("{}: {tail}", args.trace.display()));
    }
    let info = Info::of(&mut reader)?;
    if let Some(path) = &args.plot {
        chart::live::write(path, &args.trace.display().to_string(), &info)?;
        note(&format!("drew {}", path.display()));
    }
    let top = args.sites.map(|count| TopSites::of(&mut reader, count, args.by)).transpose()?;
    if let Some(path) = &args.folded {
        sites::write_folded(&mut reader, args.by, path)?;
    }
    top.iter().flat_map(TopSites::notes).for_each(|line| note(line));
    let history = &reader.header().history;
    let list = || top.as_ref().map(TopSites::table).unwrap_or_default();
    let table = || view::table(&info, history, truncated.as_deref()) + &list();
    let result = WithSites { stamp: Stamp::HERE, info: &info, top: top.as_ref() };
    match &top {
        // The requested rows.
        Some(top) => args.output.emit(&result, &top.rows(), table),
        None => args.output.emit(&result, &[&info], table),
    }
}

/// The result with the requested call sites.
#[derive(Serialize)]
struct WithSites<'a> {
    #[serde(flatten)]
    stamp: Stamp,
    #[serde(flatten)]
    info: &'a Info,
    #[serde(flatten)]
    top: Option<&'a TopSites>,
}
