//! `hksim trial`: runs a real program under several allocators and huge-page modes, side by side.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use hksim_choose::{Promised, promises};
use hksim_explore::inputs::Trace;
use hksim_linux_mm::ThpMode;
use hksim_replay::Environment;
use hksim_replay::compare::{self, Allocator, Outcome};
use hksim_reports::trial as text;
use hksim_results::Stamp;
use hksim_results::trial::{PRESENT, Promise, TrialReport};
use hksim_timing::Effort;
use hksim_trial::Plan;

use crate::flags::supervision::SupervisionArgs;
use crate::flags::timing::RoundsArgs;
use crate::inputs;
use crate::memory::validate::OnScreen;
use crate::output::columns::ColumnsArgs;
use crate::output::progress::Progress;
use crate::output::{OutputArgs, screen, table, warn};
use crate::replays::{self, Replayed};

/// Exit status when a row failed.
const CHECK_FAILED: u8 = 1;
/// The allocators that are tried if neither they nor modes are given.
const ALLOCATORS: [&str; 4] = ["mimalloc", "jemalloc", "gperftools", "native"];

/// Arguments of `trial`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The first row is the program as it is. Allocators are named as in `hksim compare`, with settings and \
                       lists of their values.\n\nExamples:\n  hksim trial -- sort big.txt\n  hksim trial --allocators jemalloc:dirty_decay_ms=0,1000,./my.so -- python3 job.py\n  hksim trial --thp never,always --precision 0.5% -- ./batch\n  hksim trial --ready 'redis-cli ping' --load 'redis-benchmark -q -n 100000' -- redis-server --save ''"
)]
pub struct Args {
    /// Try these allocators: glibc, mimalloc, jemalloc, gperftools, tbbmalloc, native, native:POLICY or LIB.so [default:
    /// mimalloc,jemalloc,gperftools,native; with --thp none]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    allocators: Option<Vec<String>>,
    /// Try each allocator with these huge-page modes: never (for the program's processes), madvise, always (for the
    /// machine, which needs root unless it has that mode; the mode is restored)
    #[arg(long, value_name = "MODES", value_delimiter = ',', value_parser = parse_mode)]
    thp: Vec<ThpMode>,
    /// Replay this recording of the program on each allocator, too, and check what that promised
    #[arg(long, value_name = "TRACE.hkt")]
    recording: Option<PathBuf>,
    /// Give the program this file as its standard input [default: an empty one]
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    #[command(flatten)]
    supervision: SupervisionArgs,
    #[command(flatten)]
    rounds: RoundsArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    columns: ColumnsArgs,
    /// Run this program with these arguments, in this directory, each time
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn parse_mode(word: &str) -> Result<ThpMode, String> {
    ThpMode::from_word(word).ok_or_else(|| format!("modes are {}", ThpMode::WORDS.map(|(word, _)| word).join(", ")))
}

/// Tries the program.
///
/// # Errors
/// Bad input; the program does not exist.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.output.check(&[], &[args.stdin.as_deref()])?;
    args.columns.check(&args.output, &text::COLUMNS, &[])?;
    let words = args.allocators.clone().unwrap_or_else(|| match args.thp.is_empty() {
        true => ALLOCATORS.map(String::from).to_vec(),
        false => Vec::new(),
    });
    let words = compare::expanded(&words).context("--allocators")?;
    let allocators = words.iter().filter(|word| *word != PRESENT);
    let allocators = allocators.map(|word| replays::program_has("allocators", word)).collect::<Result<Vec<_>>>()?;
    let recording = args.recording.as_deref().map(inputs::file).transpose()?;
    let program = Program { command: &args.command, input: args.stdin.as_deref(), supervision: &args.supervision };
    let mut report = program.tried(&allocators, &args.thp, args.rounds.effort(), args.rounds.seed())?;
    if let Some(recording) = &recording {
        report.promises = promised(recording, args, &report)?;
    }
    args.output.emit(&report, &report.trial.rows, || table(&report, &args.columns))?;
    let has_failed = report.trial.rows.iter().any(|row| row.outcome == Outcome::Failed);
    Ok(if has_failed { ExitCode::from(CHECK_FAILED) } else { ExitCode::SUCCESS })
}

/// What replays of a recording promise for the rows of a trial.
fn promised(recording: &Trace, args: &Args, report: &TrialReport) -> Result<Vec<Promise>> {
    let traces = std::slice::from_ref(recording);
    let replayed = Replayed { flag: "allocators", traces, weights: &[1.0], modes: &args.thp, seed: report.trial.seed };
    let rows = report.trial.rows.iter().skip(1).filter(|row| row.outcome == Outcome::Measured);
    let promised =
        replays::with_bench(&replayed, |bench| Ok(Promised::by_replays(bench, rows, args.rounds.effort())?))?;
    Ok(promises(&promised, report))
}

/// A program to try, in this directory.
pub struct Program<'a> {
    pub command: &'a [OsString],
    /// Its standard input; `None` for an empty one.
    pub input: Option<&'a Path>,
    pub supervision: &'a SupervisionArgs,
}

impl Program<'_> {
    /// Tries it under allocators and huge-page modes.
    ///
    /// # Errors
    /// It does not exist.
    pub fn tried(&self, allocators: &[Allocator], thp: &[ThpMode], effort: Effort, seed: u64) -> Result<TrialReport> {
        let supervision = self.supervision.supervision();
        let plan = Plan { thp, effort, seed, supervision: &supervision, listener: &OnScreen };
        let input = self.input.map(Path::to_path_buf);
        let program = hksim_trial::Program { words: self.command.to_vec(), input: input.clone() };
        let total = plan.rows(allocators.len()) as u64 + u64::from(effort.rounds_max);
        let progress = Progress::of(total, "sampled runs and timed rounds at most");
        let environment = Environment::read();
        let trial = hksim_trial::trial(&program, allocators, &plan, &|| progress.advance(1))?;
        Ok(TrialReport {
            stamp: Stamp::here(),
            program: self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            directory: std::env::current_dir().ok(),
            input,
            is_server: self.supervision.has_load(),
            environment: environment.finish(),
            trial,
            promises: Vec::new(),
        })
    }
}

/// The whole report, or the chosen columns of its table.
fn table(report: &TrialReport, columns: &ColumnsArgs) -> String {
    if !columns.is_given() {
        return text::text(report, screen::columns());
    }
    // The table is printed alone, but a row that is missing would not be noticed.
    text::missing(&report.trial.rows).iter().for_each(|line| warn(line));
    table::text(&columns.lines(&text::figures(&report.trial.rows)))
}
