//! `hksim inspect`: what memory a running process has, and why it is not in huge pages.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use hksim_inspect::inspect;
use hksim_policy::units::parse_time;
use hksim_reports::inspection::{Part, parts};
use hksim_results::Stamp;
use hksim_results::inspect::{Before, InspectResult};

use crate::output::OutputArgs;
use crate::output::table::{Lines, text};

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim inspect 4711\n  hksim inspect $(pidof redis-server) --wait 30s")]
pub struct Args {
    /// Inspect this process; it is neither stopped nor changed
    #[arg(value_name = "PID")]
    pid: u32,
    /// Inspect it again after this time (30s), and show what changed
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    wait: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Inspects a process.
///
/// # Errors
/// There is no such process, or this user may not read it.
pub fn run(args: &Args) -> Result<()> {
    args.output.check(&[], &[])?;
    let begin = Instant::now();
    let mut inspection = inspect(args.pid)?;
    let mut before = None;
    if let Some(wait_ns) = args.wait {
        sleep(Duration::from_nanos(wait_ns));
        let waited_s = begin.elapsed().as_secs_f64();
        let first = std::mem::replace(&mut inspection, inspect(args.pid)?);
        before = Some(Before { waited_s, inspection: Box::new(first) });
    }
    let result = InspectResult { stamp: Stamp::here(), inspection, before };
    args.output.emit(&result, &result.inspection.regions, || shown(&result))
}

fn shown(result: &InspectResult) -> String {
    let lines = parts(result).into_iter().map(|part| match part {
        Part::Lines(lines) => lines,
        Part::Table(table) => table.lines(),
    });
    text(&lines.collect::<Vec<_>>().join(&String::new()))
}
