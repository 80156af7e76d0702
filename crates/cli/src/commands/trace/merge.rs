//! `hksim trace merge`: merges several traces into one.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use hksim_policy::units::parse_time;
use hksim_trace::source::EventSource;
use hksim_trace::tools::{MergeInput, child_offset_ns, merge};
use serde::Serialize;

use super::{ToolReport, open};
use crate::output::trace::TraceOut;
use crate::output::units;

/// Arguments of `trace merge`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Threads, objects and addresses of different traces stay separate: the result is one program that \
                       does what all of them did. A process that another of the traces forked begins at its fork; the \
                       others begin at 0, or at the times of --at.\n\nExamples:\n  hksim trace merge a.hkt b.hkt -o both.hkt\n  hksim trace merge a.hkt b.hkt --at 0s,2s -o both.hkt"
)]
pub struct Args {
    /// Merge these traces
    #[arg(value_name = "TRACE.hkt", required = true, num_args = 2..)]
    traces: Vec<PathBuf>,
    /// Start each trace at this time, in the order of the traces
    #[arg(long, value_name = "TIME,TIME...", value_delimiter = ',', value_parser = parse_time)]
    at: Option<Vec<u64>>,
    #[command(flatten)]
    out: TraceOut,
}

#[derive(Debug, Serialize)]
struct Offsets {
    offsets_ns: Vec<u64>,
}

/// Merges.
///
/// # Errors
/// The input is not a trace, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    if args.at.as_ref().is_some_and(|at| at.len() != args.traces.len()) {
        bail!("--at: the number of times differs from the number of traces; give {} times", args.traces.len());
    }
    let offsets_ns = match &args.at {
        Some(at) => at.clone(),
        None => forked_at(&args.traces)?,
    };
    let merging = args.traces.iter().zip(&offsets_ns).map(|(path, &offset_ns)| {
        let source: Box<dyn EventSource> = Box::new(open(path)?);
        Ok(MergeInput { source, offset_ns })
    });
    let merging = merging.collect::<Result<Vec<_>>>()?;
    let inputs: Vec<&Path> = args.traces.iter().map(PathBuf::as_path).collect();
    let summary = args.out.write(&inputs, |path| merge(merging, path))?;
    let begins = args.traces.iter().zip(&offsets_ns).filter(|(_, offset_ns)| **offset_ns > 0);
    let lines = begins.map(|(path, &offset_ns)| format!("{} begins at {}\n", path.display(), units::time(offset_ns)));
    let lines: String = lines.collect();
    ToolReport::print("merge", &args.out, summary, Offsets { offsets_ns }, &lines)
}

/// The time at which each trace's process was forked by the process of an earlier trace; 0 for the others.
fn forked_at(paths: &[PathBuf]) -> Result<Vec<u64>> {
    let mut offsets_ns: Vec<u64> = Vec::with_capacity(paths.len());
    for (at, path) in paths.iter().enumerate() {
        let child = open(path)?;
        let mut found = 0;
        for (parent, parent_offset_ns) in paths[..at].iter().zip(&offsets_ns) {
            if let Some(offset_ns) = child_offset_ns(&mut open(parent)?, child.header())? {
                found = parent_offset_ns.saturating_add(offset_ns);
                break;
            }
        }
        offsets_ns.push(found);
    }
    Ok(offsets_ns)
}
