//! `hksim info`: summarises a trace, or tells two apart.

mod by;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use by::ByWord;
use hksim_results::info::{Difference, Stamped, TopSites, WithSites, sites};
use hksim_trace::hkt::TraceReader;
use hksim_trace::info::Info;
use hksim_trace::source::EventSource;

use crate::memory;
use crate::output::{OutputArgs, note, screen, warn};
use crate::pictures;
use crate::stack_files::StackFiles;
use hksim_reports::chart::live;
use hksim_reports::{trace_difference, trace_info};
use hksim_results::Stamp;

/// Arguments of `info`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim info app.hkt\n  hksim info app.hkt --sites=20 --by peak\n  hksim info app.hkt --by peak --folded peak.folded\n  hksim info before.hkt after.hkt --sites"
)]
pub struct Args {
    /// Summarise this trace
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    /// Tell how this trace differs from the first
    #[arg(value_name = "OTHER.hkt", conflicts_with_all = ["plot", "folded", "pprof"])]
    other: Option<PathBuf>,
    /// Draw live bytes over time as SVG or PNG [name if omitted: hksim-info.svg]
    #[arg(long, value_name = "PICTURE", num_args = 0..=1, require_equals = true, default_missing_value = "hksim-info.svg", value_parser = pictures::parse_picture)]
    plot: Option<PathBuf>,
    /// List the top N call sites with functions and lines [N if omitted: 10]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    sites: Option<usize>,
    /// Rank call sites by this figure
    #[arg(long, value_enum, default_value = "bytes")]
    by: ByWord,
    #[command(flatten)]
    stacks: StackFiles,
    #[command(flatten)]
    output: OutputArgs,
}

/// Summarises a trace.
///
/// # Errors
/// The input is not a trace, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let [folded, pprof] = args.stacks.paths();
    args.output.check(&[args.plot.as_deref(), folded, pprof], &[Some(&args.trace), args.other.as_deref()])?;
    args.stacks.check()?;
    if memory::is_recording(&args.trace) {
        let flags = [("plot", args.plot.is_some()), ("folded", folded.is_some()), ("pprof", pprof.is_some())];
        memory::refuse_flags(&args.trace, &flags)?;
        if let Some(other) = &args.other {
            bail!("{}: two memory recordings cannot be compared; name one, or two traces (.hkt)", other.display());
        }
        return memory::info::run(&args.trace, args.sites, args.by.0, &args.output);
    }
    match &args.other {
        Some(other) => compare(args, [&args.trace, other]),
        None => summarise(args),
    }
}

fn compare(args: &Args, paths: [&Path; 2]) -> Result<()> {
    let difference = Difference::of(paths, args.sites.map(|count| (count, args.by.0)))?;
    difference.notes().iter().for_each(|line| warn(line));
    let result = Stamped { stamp: Stamp::here(), result: &difference };
    args.output.emit(&result, difference.rows(), || trace_difference::text(&difference, screen::columns()))
}

fn summarise(args: &Args) -> Result<()> {
    let mut reader = TraceReader::open(&args.trace)?;
    let truncated = reader.tail().map(|tail| tail.to_string());
    if let Some(tail) = &truncated {
        warn(&format!("{}: {tail}", args.trace.display()));
    }
    let info = Info::of(&mut reader)?;
    if let Some(path) = &args.plot {
        pictures::write(path, &live::sketch(&args.trace.display().to_string(), &info))?;
        note(&format!("drew {}", path.display()));
    }
    let top = args.sites.map(|count| TopSites::of_trace(&mut reader, count, args.by.0)).transpose()?;
    if args.stacks.is_requested() {
        args.stacks.write(&sites::profile(&mut reader, args.by.0)?)?;
    }
    top.iter().flat_map(TopSites::notes).for_each(|line| warn(line));
    let history = &reader.header().history;
    let list = || top.as_ref().map(TopSites::table).unwrap_or_default();
    let table = || trace_info::text(&info, history, truncated.as_deref(), screen::columns()) + &list();
    let result = WithSites { stamp: Stamp::here(), info: &info, top: top.as_ref() };
    match &top {
        // The requested rows.
        Some(top) => args.output.emit(&result, &top.rows(), table),
        None => args.output.emit(&result, &[&info], table),
    }
}
