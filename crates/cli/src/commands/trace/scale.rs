//! `hksim trace scale`: scales the times, the sizes or the number of copies of a trace.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use hksim_policy::units::{parse_count_32, parse_time};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use hksim_trace::tools::{Factor, MergeInput, ScaleSizes, ScaleTime, merge, rewrite};
use serde::Serialize;

use super::{ToolReport, open};
use crate::output::trace::TraceOut;

/// Maximum number of copies: each copy reads the trace separately.
const COPIES_MAX: u32 = 256;

/// Arguments of `trace scale`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim trace scale app.hkt --time 0.5 -o fast.hkt\n  hksim trace scale app.hkt --copies 4 --stagger 100ms -o four.hkt"
)]
pub struct Args {
    /// Scale this trace
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    /// Multiply all times; 2 halves the event rate
    #[arg(long, value_name = "X", group = "what", value_parser = parse_factor)]
    time: Option<Factor>,
    /// Multiply all requested sizes, rounding up; touches keep their share of the object
    #[arg(long, value_name = "X", group = "what", value_parser = parse_factor)]
    size: Option<Factor>,
    /// Create this many copies that run side by side, each with its own threads and objects
    #[arg(long, value_name = "N", group = "what", value_parser = parse_count_32)]
    copies: Option<u32>,
    /// Start each copy this much later than the previous one
    #[arg(long, value_name = "TIME", requires = "copies", value_parser = parse_time, default_value = "0")]
    stagger: u64,
    #[command(flatten)]
    out: TraceOut,
}

fn parse_factor(word: &str) -> Result<Factor, String> {
    let factor = word.parse().ok().and_then(Factor::new);
    factor.ok_or_else(|| format!("`{word}` is not a factor; write a number from 0.000001 to 1000000"))
}

#[derive(Debug, Serialize)]
struct Nothing {}

/// Scales.
///
/// # Errors
/// The input is not a trace, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let inputs = [args.trace.as_path()];
    let mut reader = open(&args.trace)?;
    let summary = match (args.time, args.size, args.copies) {
        (Some(factor), ..) => args.out.write(&inputs, |path| rewrite(&mut reader, &mut ScaleTime(factor), path))?,
        (_, Some(factor), _) => args.out.write(&inputs, |path| rewrite(&mut reader, &mut ScaleSizes(factor), path))?,
        (.., Some(copies)) => {
            let copies = copies_of(args, copies)?;
            args.out.write(&inputs, |path| merge(copies, path))?
        }
        _ => bail!("say what to scale: --time X, --size X or --copies N"),
    };
    ToolReport::print("scale", &args.out, summary, Nothing {}, "")
}

fn copies_of(args: &Args, copies: u32) -> Result<Vec<MergeInput>> {
    if copies == 0 || copies > COPIES_MAX {
        bail!("--copies {copies}: must be from 1 to {COPIES_MAX}; scale the result again for more");
    }
    let copy = |number: u32| {
        let offset_ns = args.stagger.checked_mul(u64::from(number));
        let offset_ns = offset_ns.ok_or_else(|| anyhow!("--stagger: the last copy would begin after 2^64 ns"))?;
        let source: Box<dyn EventSource> = Box::new(TraceReader::open(&args.trace)?);
        Ok(MergeInput { source, offset_ns })
    };
    (0..copies).map(copy).collect()
}
