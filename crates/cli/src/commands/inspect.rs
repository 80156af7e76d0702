//! `hksim inspect`: what memory a running process has, and why it is not in huge pages.

use std::time::Duration;

use anyhow::Result;
use hksim_policy::units::parse_time;
use hksim_reports::inspection;
use hksim_results::inspect::InspectResult;

use crate::output::{OutputArgs, screen};

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim inspect 4711\n  hksim inspect 4711 --wait 30s --format json")]
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
    let result = InspectResult::of(args.pid, args.wait.map(Duration::from_nanos))?;
    args.output.emit(&result, &result.inspection.regions, || inspection::text(&result, screen::columns()))
}
