//! `hksim advise --on`: chooses among allocators that exist, by replays.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use hksim_choose::{Promised, Request, choose, families, promises};
use hksim_explore::inputs::Trace;
use hksim_linux_mm::ThpMode;
use hksim_replay::Environment;
use hksim_reports::choice as text;
use hksim_results::Stamp;
use hksim_results::choice::{Choice, ChoiceReport};
use hksim_results::trial::{PRESENT, TrialReport};
use hksim_trace::header::Origin;

use super::{Args, NO_DESIGN};
use crate::commands::trial::Program;
use crate::flags::supervision::SupervisionArgs;
use crate::flags::{HugeList, PolicyArgs};
use crate::inputs;
use crate::output::{screen, warn};
use crate::replays::{self, Replayed};

/// Flags of the choice among allocators that exist.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Allocators that exist")]
pub struct OnArgs {
    /// Choose among these allocators by replays: glibc,jemalloc,./my.so
    ///
    /// Names are glibc, mimalloc, jemalloc, gperftools, tbbmalloc, rpmalloc, snmalloc and native:POLICY; others are
    /// files. An allocator without settings is tried with those that its version is known to have; one with settings,
    /// such as jemalloc:dirty_decay_ms=0,1000, with these only; each under every mode of --thp.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub on: Vec<String>,
    /// The allocator that the program has now: always a row, and the base of limits
    #[arg(long, value_name = "ALLOCATOR", default_value = "glibc", requires = "on", hide_short_help = true)]
    present: String,
    /// End with a trial of CMD: does the choice keep what it promised?
    ///
    /// CMD runs on the present allocator and on the choice, in 7 rounds even if --budget is short; --runs N bounds them.
    #[arg(long, requires_all = ["on", "command"])]
    trial: bool,
    #[command(flatten)]
    supervision: SupervisionArgs,
    /// The program of --trial, with its arguments
    #[arg(last = true, value_name = "CMD", requires = "trial", hide_short_help = true)]
    command: Vec<OsString>,
}

/// Chooses. The exit status is 1 if no allocator meets the limits.
///
/// # Errors
/// Bad input; the present allocator cannot be measured.
pub fn run(args: &Args) -> Result<ExitCode> {
    let traces = inputs::files(&args.traces)?;
    let question = args.question.measured(traces.len())?;
    let weights = question.weights.of_traces(traces.len())?;
    let modes = modes(&args.policy)?;
    args.on.on.iter().for_each(|word| replays::note_meaning("on", word));
    let families = families(&args.on.on)?;
    let request = Request {
        question: &question,
        limits: &args.limit,
        present: &args.on.present,
        families: &families,
        modes: &modes,
        candidates_max: args.tries as usize,
        effort: args.rounds.effort(),
    };
    let seed = args.rounds.seed();
    let environment = Environment::read();
    let replayed = Replayed { flag: "on", traces: &traces, weights: &weights, modes: &modes, seed };
    let choice = replays::with_bench(&replayed, |bench| Ok(choose(bench, &request)?))?;
    let has_choice = choice.choice.is_some();
    let trial = if args.on.trial { tried(args, &traces, &choice)? } else { None };
    let report = ChoiceReport {
        stamp: Stamp::here(),
        traces: traces.iter().map(Trace::label).collect(),
        question,
        limits: args.limit.clone(),
        seed,
        environment: environment.finish(),
        choice,
        trial,
    };
    args.output.emit(&report, &report.choice.rows, || text::text(&report, screen::columns()))?;
    Ok(if has_choice { ExitCode::SUCCESS } else { ExitCode::from(NO_DESIGN) })
}

/// The huge-page modes to try. Other policy flags are about hksim's own designs.
fn modes(policy: &PolicyArgs) -> Result<Vec<ThpMode>> {
    let mut modes = Vec::new();
    if policy.file().is_some() {
        bail!("--policy is about hksim's own designs; with --on, name it as an allocator: --present native:FILE");
    }
    for (flag, words) in policy.lists(HugeList::All, &policy.base()?)? {
        match flag.name {
            "thp" => modes = words.iter().filter_map(|word| ThpMode::from_word(word)).collect(),
            name => bail!("--{name} is about hksim's own designs; with --on, give it to one: native:{name}=VALUE"),
        }
    }
    Ok(modes)
}

/// The trial of the choice, with its promise; `None` if there is nothing to try.
fn tried(args: &Args, traces: &[Trace], choice: &Choice) -> Result<Option<TrialReport>> {
    let Some(row) = choice.choice.filter(|&row| row > 0).and_then(|row| choice.rows.get(row)) else {
        warn("--trial: there is nothing to try, because the present allocator stays");
        return Ok(None);
    };
    let is_present = row.allocator == args.on.present;
    let modes: Vec<ThpMode> =
        row.setting.iter().filter_map(|setting| ThpMode::from_word(setting.strip_prefix("thp=")?)).collect();
    let allocators = if is_present { Vec::new() } else { vec![replays::program_has("on", &row.allocator)?] };
    let program = Program { command: &args.on.command, input: None, supervision: &args.on.supervision };
    // Whether a promise is kept is known by intervals, so they are worth more time than a short budget.
    let mut report = program.tried(&allocators, &modes, args.rounds.effort().with_interval(), args.rounds.seed())?;
    if let Some(promised) = of_program(traces, &args.on.command).and_then(|trace| Promised::of(choice, trace)) {
        let name = if is_present { PRESENT } else { &row.allocator };
        report.promises = promises(&[promised.on(name)], &report);
    }
    Ok(Some(report))
}

/// The trace that was recorded of this command, or the only one.
fn of_program(traces: &[Trace], command: &[OsString]) -> Option<usize> {
    let is_of = |trace: &Trace| match &trace.header.origin {
        Origin::Recorded { command: recorded, .. } => recorded.iter().map(OsString::from).eq(command.iter().cloned()),
        _ => false,
    };
    let found = traces.iter().position(is_of);
    if found.is_none() {
        warn(
            "--trial: no trace is a recording of exactly this command, so its replays may promise another run's figures",
        );
    }
    found.or_else(|| (traces.len() == 1).then_some(0))
}
