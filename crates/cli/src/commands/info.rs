//! `hksim info`: what a trace holds.

mod view;

use std::path::PathBuf;

use anyhow::Result;
use hksim_trace::hkt::TraceReader;
use hksim_trace::info::Info;
use hksim_trace::source::EventSource;

pub use view::{origin_text, quality_lines, touch_text};

use crate::chart;
use crate::output::{OutputArgs, note};

/// Arguments of `info`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace to read
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    /// Draw live bytes over time
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Counts a trace.
///
/// # Errors
/// Input that is no trace; output that cannot be written.
pub fn run(args: &Args) -> Result<()> {
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
    let history = &reader.header().history;
    args.output.emit(&info, &[&info], || view::table(&info, history, truncated.as_deref()))
}
