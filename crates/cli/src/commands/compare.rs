//! `hksim compare`: replays a trace on several allocators, side by side.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use hksim_engine::TouchRule;
use hksim_replay::Mode;
use hksim_replay::compare::{self, Comparison, Outcome, Plan, WARM_UP_RUNS};
use hksim_sim::report::TouchLabel;

use crate::allocators;
use crate::flags::timing::TimingArgs;
use crate::inputs;
use crate::output::columns::ColumnsArgs;
use crate::output::progress::Progress;
use crate::output::{OutputArgs, screen, table, warn};
use crate::pictures::{self, parse_picture};
use hksim_reports::chart::comparison;
use hksim_reports::comparison as text;
use hksim_results::Stamp;
use hksim_results::replay::ComparisonReport;

/// Exit status when an allocator failed.
const CHECK_FAILED: u8 = 1;

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "POLICY is a preset or a policy file, followed by any number of +FLAG=VALUE. Without a preset or file, \
                       the first + is omitted: native:hakmem+huge=never, native:huge=never. Other allocators \
                       take settings: jemalloc:thp=always+narenas=1. A list of values, or a range that doubles, is one \
                       allocator for each: jemalloc:dirty_decay_ms=0,1000, glibc:mmap_threshold=128K..64M.\n\nExamples:\n  hksim compare app.hkt\n  hksim compare app.hkt --allocators glibc,native,native:huge=never --precision 0.5%\n  hksim compare app.hkt --runs 20 --duet"
)]
pub struct Args {
    /// Replay this trace
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    /// Compare these allocators: glibc, mimalloc, jemalloc, gperftools, tbbmalloc, native, native:POLICY or LIB.so
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "glibc,mimalloc,jemalloc,gperftools,native"
    )]
    allocators: Vec<String>,
    /// Replay on one thread in trace order (ordered) or on the trace's own threads (threaded)
    #[arg(long, value_name = "MODE", default_value = "ordered", value_parser = super::replay::parse_mode)]
    mode: Mode,
    /// Select which bytes of its blocks the program touches [default: recorded if the trace has touches, else all]
    #[arg(long, value_name = "RULE", value_parser = parse_touch)]
    touch: Option<TouchRule>,
    /// Draw the result as SVG or PNG [name if omitted: hksim-compare.svg]
    #[arg(long, value_name = "PICTURE", num_args = 0..=1, require_equals = true, default_missing_value = "hksim-compare.svg", value_parser = parse_picture)]
    plot: Option<PathBuf>,
    /// Also time allocations and frees apart, by samples in runs of their own
    #[arg(long, help_heading = "Timing")]
    apart: bool,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    columns: ColumnsArgs,
}

fn parse_touch(word: &str) -> Result<TouchRule, String> {
    TouchRule::from_word(word).ok_or_else(|| format!("rules are {}", TouchRule::ALL.map(TouchRule::word).join(", ")))
}

/// Replays on every allocator, in turn.
///
/// # Errors
/// Bad input; a run that cannot start.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.output.check(&[args.plot.as_deref()], &[])?;
    args.columns.check(&args.output, &text::COLUMNS, &[])?;
    let trace = inputs::file(&args.trace)?;
    let named = |word: &String| allocators::as_programs_have_it(allocators::named("allocators", word)?);
    let allocators =
        compare::expanded(&args.allocators).context("--allocators")?.iter().map(named).collect::<Result<Vec<_>>>()?;
    let source = trace.header.touch;
    let rule = args.touch.unwrap_or(TouchRule::usual(source));
    let (effort, arrangement, seed) =
        (args.timing.rounds.effort(), args.timing.arrangement(args.mode)?, args.timing.rounds.seed());
    let plan =
        Plan { trace: &args.trace, touch: rule, mode: args.mode, effort, arrangement, seed, is_apart: args.apart };
    let rounds = allocators.len() as u64 * u64::from(plan.counted_runs()) + u64::from(WARM_UP_RUNS + effort.rounds_max);
    let progress = Progress::of(rounds, "counted runs and timed rounds at most");
    let comparison = compare::compare(&allocators, &plan, &|| progress.advance(1))?;
    drop(progress);
    let Comparison { rows, rounds, method, surroundings } = comparison;
    let report = ComparisonReport {
        stamp: Stamp::here(),
        trace: trace.label(),
        events: trace.summary.events,
        touch: TouchLabel { rule, source: rule.source(source) },
        mode: args.mode,
        runs: rounds,
        warm_up_runs: WARM_UP_RUNS,
        counted_runs: plan.counted_runs(),
        timing: method,
        environment: surroundings,
        rows,
    };
    args.output.emit(&report, &report.rows, || table(&report, &args.columns))?;
    if let Some(path) = &args.plot {
        pictures::write(path, &comparison::of_report(&report))?;
    }
    let has_failed = report.rows.iter().any(|row| row.outcome == Outcome::Failed);
    Ok(if has_failed { ExitCode::from(CHECK_FAILED) } else { ExitCode::SUCCESS })
}

/// The whole report, or the chosen columns of its table.
fn table(report: &ComparisonReport, columns: &ColumnsArgs) -> String {
    if !columns.is_given() {
        return text::text(report, screen::columns());
    }
    // The table is printed alone, but a row that is missing would not be noticed.
    text::missing(&report.rows).iter().for_each(|line| warn(line));
    table::text(&columns.lines(&text::figures(&report.rows)))
}
