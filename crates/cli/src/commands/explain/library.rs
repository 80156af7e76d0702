//! `explain --on`: which decision of a malloc library causes its faults.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use hksim_attribution::breakdown::CauseKey;
use hksim_attribution::remedies::{Question, Trials};
use hksim_attribution::{AttributionError, Explained, explain, huge_pages};
use hksim_explore::inputs::Trace;
use hksim_replay::compare::Found;
use hksim_replay::library::{c_library, library};
use hksim_replay::{HugePages, ReplayError, ReplaySpec, Target};
use hksim_reports::library_explanation;
use hksim_results::explain::Names;
use hksim_results::explain_library::{LibraryAgainst, LibraryExplanation, LibraryInputs};
use hksim_sim::report::TouchLabel;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use super::Args;
use crate::allocators;
use crate::flags::table::Subject;
use crate::flags::{HugeList, PolicyArgs, RunConfig};
use crate::output::table::text;
use crate::output::{screen, warn};
use crate::runs::OnScreen;

/// Explains a replay on a library, or the difference between two. Where page faults cannot be recorded, says so.
///
/// # Errors
/// Bad input, or the replay cannot be recorded.
pub fn run(args: &Args, on: &str, trace: &Trace, path: &Path, config: &RunConfig) -> Result<()> {
    let huge = huge(&args.policy)?;
    let touch = config.touch_rule(trace.header.touch);
    let spec = |flag: &str, word: &str| -> Result<ReplaySpec> {
        let spec = ReplaySpec::ordered(path, target(flag, word)?, touch);
        Ok(ReplaySpec { memory_policy: config.memory_policy, ..spec })
    };
    let first = spec("on", on)?;
    let second = args.against.as_deref().map(|word| spec("against", word)).transpose()?;
    let explained = match explain(&first, huge) {
        Err(AttributionError::Replay(ReplayError::Refused { message })) => {
            warn(&format!("skipped: {message}"));
            return Ok(());
        }
        explained => explained?,
    };
    let reader = TraceReader::open(path)?;
    let names = Names::of(reader.footer());
    let against = args.against.as_deref().zip(second).map(|(word, second)| -> Result<LibraryAgainst> {
        Ok(LibraryAgainst::new(word, &explained, &explain(&second, huge)?, &names))
    });
    let against = against.transpose()?;
    let question = Question { trace, spec: &first, huge, config, listener: &OnScreen };
    let trials = trials(&question, &explained, args.causes)?;
    let (preload, known) = match &first.on {
        Target::Malloc { preload: Some(preload), .. } => (Some(preload.clone()), library(preload)),
        _ => (None, c_library()),
    };
    let source = touch.source(trace.header.touch);
    let inputs = LibraryInputs {
        trace: trace.label(),
        events: trace.summary.events,
        touch: TouchLabel { rule: touch, source },
        allocator: on.to_string(),
        library: preload,
        version: known.map(|known| format!("{} {}", known.allocator, known.version)),
    };
    let result = LibraryExplanation::new(inputs, &explained, (args.causes, trials), &names, against);
    if args.stacks.is_requested() {
        args.stacks.write(&names.profile(&explained.breakdown.site))?;
    }
    explained.functions.notes().iter().chain(&names.notes()).for_each(|line| warn(line));
    args.output.emit(&result, &result.rows(), || text(&library_explanation::lines(&result, screen::columns())))
}

/// The huge pages of the replays. Flags that configure neither these nor the program have no effect on a replay.
fn huge(policy: &PolicyArgs) -> Result<HugePages> {
    let flags = policy.lists(HugeList::All, &policy.base()?)?;
    let other = flags.iter().find(|(flag, _)| flag.name != "thp" && flag.subject != Subject::Program);
    if let Some(name) = policy.allocator_flag().or(other.map(|(flag, _)| flag.name)) {
        bail!("--{name} is about hksim's own designs and the simulated kernel; leave it out with --on");
    }
    let mode = flags.iter().find(|(flag, _)| flag.name == "thp").and_then(|(_, words)| words.first());
    mode.map_or(Ok(HugePages::AsTheyAre), |mode| huge_pages(mode).map_err(|why| anyhow!("--thp: {why}")))
}

/// The remedies for so many causes.
fn trials(question: &Question<'_>, explained: &Explained, causes: usize) -> Result<Trials> {
    let largest: Vec<CauseKey> =
        explained.breakdown.largest_causes().iter().take(causes).map(|(key, _)| *key).collect();
    if largest.is_empty() {
        return Ok(Trials::default());
    }
    Ok(question.tried(explained, &largest)?)
}

/// The library that a word names.
fn target(flag: &str, word: &str) -> Result<Target> {
    match allocators::named(flag, word)?.found {
        Found::Here(on @ Target::Malloc { .. }) => Ok(on),
        Found::Here(_) => {
            bail!(
                "--{flag} {word}: hksim's own allocator is explained by simulation; leave --on out and give its flags"
            )
        }
        Found::Missing(why) => bail!("--{flag} {word}: {why}"),
    }
}
