//! `hksim advise`: chooses a design for several traces, within limits, and says how far the choice generalises.

mod on;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use hksim_explore::advise::{Request, advise};
use hksim_explore::figures::Figure;
use hksim_explore::knobs::settings;
use hksim_explore::priced::counted;
use hksim_explore::question::Limit;
use hksim_explore::search::{Axis, Effort, Space};
use hksim_explore::space::built_in;
use hksim_replay::library;
use hksim_reports::advice;
use hksim_sim::Counted;

use crate::flags::between::between;
use crate::flags::table::Subject;
use crate::flags::timing::RoundsArgs;
use crate::flags::{HugeList, PolicyArgs};
use crate::inputs;
use crate::memory;
use crate::output::table::text;
use crate::output::{OutputArgs, screen};
use crate::question::QuestionArgs;
use crate::runs::{OnScreen, on_workers};
use crate::system_time::ProfileArgs;
use hksim_explore::inputs::Trace;
use hksim_explore::laboratory::Simulations;
use hksim_results::Stamp;
use hksim_results::advise::{Advised, Search};

/// Exit status if no design meets the limits.
const NO_DESIGN: u8 = 1;

/// Arguments of `advise`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim advise app.hkt other.hkt\n  hksim advise app.hkt --goal installs --limit rss+10% --limit vmas+0%\n  hksim advise app.hkt --superslab 1M,2M,4M --huge never,thp --format json -o advice.json\n  hksim advise app.hkt --on glibc,jemalloc,mimalloc --limit rss+5%\n  hksim advise app.hkt --on glibc,jemalloc:dirty_decay_ms=0,1000 --thp never,always --trial -- ./app"
)]
pub struct Args {
    /// Choose a design for these traces together
    #[arg(value_name = "TRACE.hkt", required = true)]
    traces: Vec<PathBuf>,
    /// Exclude designs beyond a limit on any trace: rss+10%, "rss 64M"
    ///
    /// A percentage is of the baseline. Every figure can be limited: "vmas 1000".
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    limit: Vec<Limit>,
    /// Try at most this many designs of a space that is too large for all of them, or rows of --on
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = between(2u32, 100_000), hide_short_help = true)]
    tries: u32,
    #[command(flatten)]
    on: on::OnArgs,
    #[command(flatten)]
    rounds: RoundsArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    question: QuestionArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Run this many simulations at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = between(1u16, 1024), help_heading = "Options", hide_short_help = true)]
    jobs: Option<u16>,
}

/// Advises. The exit status is 1 if no design meets the limits.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.output.check(&[], &[args.profile.path()])?;
    if let Some(path) = args.traces.iter().find(|path| memory::is_recording(path)) {
        bail!(
            "{}: a memory recording has no allocator to choose; use `hksim sweep` for kernel settings",
            path.display()
        );
    }
    if !args.on.on.is_empty() {
        return on::run(args);
    }
    if args.rounds.have_end() {
        bail!("--runs, --precision and --budget are about replays: name allocators with --on, or leave them out");
    }
    let profile = args.profile.read(&args.output)?;
    let traces = inputs::files(&args.traces)?;
    let base = args.policy.base()?;
    let has_time = counted(&base.policy, profile.as_ref()) == Counted::Time;
    let goal = if has_time { Figure::Time } else { Figure::Installs };
    let question = args.question.asked(&traces, profile.as_ref())?.or(goal);
    for limit in &args.limit {
        args.question.check_known(limit.figure, &traces, profile.as_ref())?;
    }
    let labels = traces.iter().map(Trace::label).collect();
    let space = space(&args.policy)?;
    let seed = args.rounds.given_seed().unwrap_or(1);
    let effort = Effort { points_max: args.tries as usize, seed };
    let weights = question.weights.of_traces(traces.len())?;
    let mut lab = Simulations::new(traces, weights, &space, base, profile.as_ref(), args.question.core(), &OnScreen)?;
    let request = Request { question: &question, limits: &args.limit, space: &space, effort };
    let advice = on_workers(args.jobs, || Ok(advise(&mut lab, &request)?))?;
    if let Some(why) = lab.refusal().filter(|_| advice.designs == 0) {
        return Err(anyhow::Error::from(why).context("no combination of these values is a design"));
    }
    let version = |allocator: &str| library::installed(allocator).map(|library| library.version);
    let offer = advice.winner.as_ref().map(|winner| settings(&winner.policy, version)).unwrap_or_default();
    let has_winner = advice.winner.is_some();
    let search = Search { points: space.points(), tries: args.tries, seed };
    let result = Advised {
        stamp: Stamp::here(),
        traces: labels,
        question,
        search,
        advice,
        settings: offer.settings,
        settings_refused: offer.refused,
    };
    args.output.emit(&result, &result.advice.front, || text(&advice::lines(&result, screen::columns())))?;
    Ok(if has_winner { ExitCode::SUCCESS } else { ExitCode::from(NO_DESIGN) })
}

/// The space that the flags span. Flags with one value are axes, too, so that every design has them. If no flag of the
/// allocator has several values, the built-in space supplies the other axes.
fn space(policy: &PolicyArgs) -> Result<Space> {
    let base = policy.base()?;
    let mut axes = Vec::new();
    let mut is_chosen = false;
    for (flag, words) in policy.lists(HugeList::All, &base)? {
        let reason = match flag.subject {
            Subject::Program => "and tests the other assumptions itself",
            Subject::Kernel => "because it chooses an allocator's design; `hksim sweep` compares kernel settings",
            Subject::Policy => "",
        };
        if !reason.is_empty() && words.len() > 1 {
            let list = words.join(&flag.separator().to_string());
            bail!("--{} {list}: advise takes one value, {reason}", flag.name);
        }
        is_chosen |= words.len() > 1;
        axes.push(Axis { flag: flag.name.to_string(), words });
    }
    if !is_chosen {
        let given: Vec<String> = axes.iter().map(|axis| axis.flag.clone()).collect();
        axes.extend(built_in(&base.policy).axes.into_iter().filter(|axis| !given.contains(&axis.flag)));
    }
    Ok(Space { axes })
}
