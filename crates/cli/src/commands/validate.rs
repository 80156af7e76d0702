//! `hksim validate`: checks predictions against measurements.

mod time;
mod view;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hksim_cost_model::Profile;
use hksim_policy::vocabulary::Align;
use hksim_replay::Mode;
use hksim_sim::SimConfig;
use hksim_trace::header::Origin;
use tempfile::TempDir;

use crate::flags::between::between;
use crate::flags::timing::PrecisionArgs;
use crate::flags::{BaseKernel, DesignArgs, HostPolicyArgs, HugeList, RunConfig};
use crate::forks::ForkArgs;
use crate::inputs::{self, Replayable};
use crate::memory;
use crate::memory::again::AgainArgs;
use crate::memory::settings::MemoryArgs;
use crate::output::OutputArgs;
use crate::output::progress::Progress;
use crate::runs::{setup, setup_of};
use crate::system_time::ProfileArgs;
use hksim_designs::Label;
use hksim_explore::described::Described;
use hksim_explore::inputs::Trace;
use hksim_results::validate::Validation;
use hksim_validate::{Row, Verdict, judge_system_time, validate, validate_threads};

/// Exit status when a check failed.
const CHECK_FAILED: u8 = 1;

/// The heading of flags about the replay.
const REPLAY: &str = "Replay";

/// Arguments of `validate`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim validate app.hkt\n  hksim validate app.hkt --time --header none,light --purge none\n  hksim validate app.hkm --thp always --set-modes -- ./app input\n  hksim validate app.hkt --huge=never,thp --mode threaded\n  hksim validate app.hkt --on glibc,jemalloc:dirty_decay_ms=0,./my.so"
)]
pub struct Args {
    /// Replay these traces [default: two built-in workloads, random-mixed and server]
    #[arg(value_name = "TRACE.hkt")]
    pub traces: Vec<PathBuf>,
    /// Policies to check
    #[command(flatten)]
    pub policy: HostPolicyArgs,
    #[command(flatten)]
    design: DesignArgs,
    /// Check replays on these malloc libraries instead: glibc,./my.so
    ///
    /// They are named as in `compare --allocators`: jemalloc:dirty_decay_ms=0. What `sweep --allocators` predicts from a recorded
    /// replay is compared with further replays.
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["time", "fork_at"])]
    on: Vec<String>,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    again: AgainArgs,
    /// With a memory recording (.hkm) or --on: set the machine's modes as --thp, --mthp and --zero-page say (needs root);
    /// they are restored at the end, even if the run is killed
    #[arg(long, hide_short_help = true, help_heading = REPLAY)]
    set_modes: bool,
    /// Replay on one thread in trace order (ordered), or several times on the trace's own threads (threaded)
    #[arg(long, value_name = "MODE", help_heading = REPLAY, default_value = "ordered", value_parser = super::replay::parse_mode)]
    mode: Mode,
    /// Compare predicted with measured times of the designs instead, in rounds of replays
    ///
    /// Needs the costs of this machine (hksim calibrate, or --profile). The first design is the one that the others are
    /// compared with. Replays do not wait: designs that purge after a delay are timed without purges.
    #[arg(long, help_heading = time::HEADING)]
    time: bool,
    #[command(flatten)]
    precision: PrecisionArgs,
    /// With --mode threaded: replay this many times [default: 9]; with --time: time this many rounds; with a memory
    /// recording or --on: run the program or the replay this many times [default: 3]
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = REPLAY, value_parser = between(2u32, 1000))]
    runs: Option<u32>,
    #[command(flatten)]
    forks: ForkArgs,
    #[command(flatten)]
    profile: ProfileArgs,
    /// Destination of the result
    #[command(flatten)]
    pub output: OutputArgs,
}

impl Args {
    /// What to validate by page operations.
    fn of_memory<'a>(&'a self, profile: Option<&'a Profile>) -> memory::validate::Request<'a> {
        memory::validate::Request {
            policy: self.policy.with_kernel_flags(),
            memory: &self.memory,
            runs: self.runs.unwrap_or(memory::validate::RUNS),
            set_modes: self.set_modes,
            profile,
            output: &self.output,
        }
    }

    /// Replays on the trace's own threads; `None` for one replay in trace order.
    fn threaded_runs(&self) -> Result<Option<u32>> {
        const RUNS: u32 = 9;
        let runs = match self.mode {
            Mode::Threaded => self.runs.unwrap_or(RUNS),
            Mode::Ordered if self.runs.is_some() => {
                bail!("--runs: a replay in trace order is exact and runs once; add --mode threaded")
            }
            Mode::Ordered => return Ok(None),
        };
        if self.forks.are_asked() {
            bail!("--fork-at: only an ordered replay can fork; use --mode ordered");
        }
        if self.profile.path().is_some() {
            bail!("--profile: times are compared for ordered replays only; use --mode ordered");
        }
        Ok(Some(runs))
    }
}

/// Predicts, replays and compares.
///
/// # Errors
/// Bad input, or a replay cannot start.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.output.check(&[], &[args.profile.path()])?;
    time::refuse(args)?;
    if args.traces.iter().any(|path| memory::is_recording(path)) {
        args.design.refuse_for_recording()?;
        if !args.on.is_empty() {
            bail!("--on is for traces (.hkt): a memory recording has an allocator already; leave it out");
        }
        let profile = args.profile.read(&args.output)?;
        return memory::validate::run(&args.of_memory(profile.as_ref()), &args.traces, &args.again);
    }
    args.again.refuse_for_trace()?;
    // Replays read files: the built-in traces are written to a directory that lives until the end of this function.
    let folder = if args.traces.is_empty() { Some(temporary_folder()?) } else { None };
    let traces = match &folder {
        Some(folder) => built_in(folder.path())?,
        None => files(&args.traces)?,
    };
    if !args.on.is_empty() {
        args.design.refuse_for_recording()?;
        if args.mode == Mode::Threaded {
            bail!("--on: a replay on a library is predicted in trace order; use --mode ordered");
        }
        let profile = args.profile.read(&args.output)?;
        return memory::validate::on_allocators(&args.of_memory(profile.as_ref()), &args.on, &traces);
    }
    args.memory.refuse_for_trace()?;
    if args.set_modes {
        bail!("--set-modes is for memory recordings (.hkm) and --on; a replay runs under this machine's modes");
    }
    let configs = args.policy.checked()?.configs(HugeList::All)?;
    if args.time {
        return time::run(args, &traces, &configs);
    }
    let designs = args.design.labels(args.policy.checked()?)?;
    if designs.is_empty() {
        return finish(args, rows(args, &traces, &configs)?);
    }
    args.design.refuse(
        "mode threaded",
        args.mode == Mode::Threaded,
        "a design serves one thread at a time; leave it out",
    )?;
    args.design.refuse("profile", args.profile.path().is_some(), "the time of designs is not known; leave it out")?;
    args.threaded_runs()?;
    let each = |replayable: &Replayable| {
        let forks = args.forks.windows(&replayable.trace)?;
        let setups = designs.iter().flat_map(|design| configs.iter().map(move |config| (design, config)));
        let row = |(design, config): (&Label, &RunConfig)| {
            let setup = setup_of(design, config, &replayable.trace, BaseKernel::Host)?;
            let setup = SimConfig { forks: forks.clone(), ..setup };
            Ok(validate(&replayable.path, &replayable.label, &setup)?)
        };
        setups.map(row).collect::<Result<Vec<Row<Label>>>>()
    };
    finish(args, traces.iter().map(each).collect::<Result<Vec<_>>>()?.concat())
}

/// Prints the rows with their verdict, which is the exit status.
fn finish<P: Described>(args: &Args, rows: Vec<Row<P>>) -> Result<ExitCode> {
    let validation = Validation::new(rows);
    args.output.emit(&validation, &validation.rows, || view::table(&validation))?;
    Ok(match validation.verdict {
        Verdict::Failed => ExitCode::from(CHECK_FAILED),
        Verdict::Ok | Verdict::Skipped => ExitCode::SUCCESS,
    })
}

fn rows(args: &Args, traces: &[Replayable], configs: &[RunConfig]) -> Result<Vec<Row>> {
    let runs = args.threaded_runs()?;
    // Measuring times takes seconds for each row, so it must be asked for.
    let profile = args.profile.given()?;
    let progress = Progress::of((traces.len() * configs.len()) as u64, "rows");
    let mut rows = Vec::new();
    for replayable in traces {
        let forks = args.forks.windows(&replayable.trace)?;
        for config in configs {
            let setup = setup(config, &replayable.trace, BaseKernel::Host)?;
            if !forks.is_empty() && setup.policy.align != Align::Arena {
                bail!("--fork-at: needs all SuperSlabs in one reservation; use --align arena");
            }
            let setup = SimConfig { forks: forks.clone(), ..setup };
            let mut row = match runs {
                Some(runs) => validate_threads(&replayable.path, &replayable.label, &setup, runs)?,
                None => validate(&replayable.path, &replayable.label, &setup)?,
            };
            if let Some(profile) = &profile {
                judge_system_time(&replayable.path, &setup, &mut row, profile)?;
            }
            rows.push(row);
            progress.advance(1);
        }
    }
    Ok(rows)
}

fn temporary_folder() -> Result<TempDir> {
    TempDir::with_prefix("hksim-").with_context(|| {
        let place = std::env::temp_dir();
        format!("{}: cannot write the built-in traces; set TMPDIR to a writable directory", place.display())
    })
}

fn built_in(folder: &Path) -> Result<Vec<Replayable>> {
    Trace::built_in()?.into_iter().map(|trace| written(trace, folder)).collect()
}

fn files(paths: &[PathBuf]) -> Result<Vec<Replayable>> {
    let file = |path: &PathBuf| -> Result<Replayable> {
        Ok(Replayable { trace: inputs::file(path)?, path: path.clone(), label: path.display().to_string() })
    };
    paths.iter().map(file).collect()
}

fn written(trace: Trace, folder: &Path) -> Result<Replayable> {
    let label = match &trace.header.origin {
        Origin::Generated { name, .. } => name.clone(),
        Origin::Recorded { .. } | Origin::Imported { .. } => "trace".into(),
    };
    let path = folder.join(format!("{label}.hkt"));
    trace.write(&path)?;
    Ok(Replayable { trace, path, label })
}
