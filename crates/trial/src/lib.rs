#![doc = include_str!("../README.md")]

mod contestant;
mod error;
mod job;
mod keeper;
mod machine;
mod marks;
mod output;
mod run;
mod sampling;
mod serving;
mod tree;

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::OnceLock;

use hksim_linux_mm::ThpMode;
use hksim_replay::compare::{Allocator, Outcome};
use hksim_results::trial::Trial;
use hksim_timing::{Arrangement, Effort, Plan as TimingPlan, Timings, time};
use hksim_validate::Listener;
use hksim_validate::memory::Supervision;

use contestant::{Contestant, Shared};

pub use error::{MarkError, RunError, TrialError};
pub use keeper::{KEEPER_ARGUMENT, keeper_main};
pub use machine::Machine;
pub use marks::mark;

/// The program that is tried. It runs in this process's working directory and environment, without a terminal.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Its standard input; `None` for an empty one.
    pub input: Option<PathBuf>,
}

/// How it is tried.
pub struct Plan<'a> {
    /// Huge-page modes, each of which every allocator is tried with; none: only the machine's present one.
    pub thp: &'a [ThpMode],
    /// When the rounds end.
    pub effort: Effort,
    /// The seed of the order of runs.
    pub seed: u64,
    /// The load and the end of a run.
    pub supervision: &'a Supervision,
    /// Is told what happens.
    pub listener: &'a dyn Listener,
}

impl Plan<'_> {
    /// The number of rows with so many allocators besides the present one.
    pub fn rows(&self, allocators: usize) -> usize {
        1 + self.thp.len().max(1) * (allocators + 1) - usize::from(self.thp.is_empty())
    }
}

/// Tries a program: as it is, with each huge-page mode, and under each allocator with each mode. First each row is
/// sampled in one run, then come the timed rounds. `done` is called after each sampled run and each timed round.
///
/// # Errors
/// The program or its input does not exist.
pub fn trial(
    program: &Program,
    allocators: &[Allocator],
    plan: &Plan<'_>,
    done: &dyn Fn(),
) -> Result<Trial, TrialError> {
    let name = program.words.first().map(OsString::as_os_str).unwrap_or_default();
    hksim_record::find_program(name)?;
    if let Some(path) = &program.input {
        File::open(path).map_err(|source| TrialError::Input { path: path.clone(), source })?;
    }
    let modes: Vec<Option<ThpMode>> = match plan.thp {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let (machine, mode_refused) = Machine::with(&modes, plan.listener);
    let shared = Shared { program, plan, machine: &machine, reference: OnceLock::new() };
    let present = modes.iter().flatten().map(|&mode| (None, Some(mode)));
    let others = allocators.iter().flat_map(|allocator| modes.iter().map(move |&mode| (Some(allocator), mode)));
    let rows = [(None, None)].into_iter().chain(present).chain(others);
    let mut contestants: Vec<Contestant<'_>> = rows
        .map(|(allocator, mode)| {
            let mut contestant = Contestant::new(&shared, allocator, mode);
            if let Some(why) = mode_refused.as_ref().filter(|_| mode.is_some_and(|mode| machine.must_set(mode))) {
                contestant.end(Outcome::Skipped, why.clone());
            }
            contestant
        })
        .collect();
    sample(&mut contestants, done);
    let (contestants, timings) = timed(contestants, plan, done);
    let first = contestants.first().map(Contestant::outputs);
    let rows = first.map_or(Vec::new(), |first| contestants.into_iter().map(|row| row.finish(&first)).collect());
    Ok(Trial {
        rows,
        rounds: timings.rounds,
        runs_per_round: shared.reference.get().map_or(1, |first| first.runs),
        precision: Some(plan.effort.precision).filter(|precision| *precision > 0.0),
        ended: timings.ended,
        seed: plan.seed,
        same_again: timings.same_again(),
        core_shared_share: timings.core_shared_share,
    })
}

/// The sampled run of each row. If the first fails, the others have nothing to be compared with.
fn sample(contestants: &mut [Contestant<'_>], done: &dyn Fn()) {
    let mut has_first = true;
    for (at, contestant) in contestants.iter_mut().enumerate().filter(|(_, contestant)| contestant.runs_on()) {
        match has_first {
            true => contestant.sample(),
            false => contestant.end(Outcome::Skipped, "there is no first row to compare with".to_string()),
        }
        has_first &= at > 0 || contestant.runs_on();
        done();
    }
}

/// The timed rounds of the rows that still run.
fn timed<'a>(
    contestants: Vec<Contestant<'a>>,
    plan: &Plan<'_>,
    done: &dyn Fn(),
) -> (Vec<Contestant<'a>>, Timings<RunError>) {
    let subjects: Vec<&Contestant<'_>> = contestants.iter().filter(|contestant| contestant.runs_on()).collect();
    let (effort, seed) = (plan.effort, plan.seed);
    // The sampled runs have warmed the file cache.
    let plan = TimingPlan { effort, warm_up_rounds: 0, arrangement: Arrangement::InTurn, seed };
    let timings = time(&subjects, &plan, &mut |_| done());
    let mut subject = 0;
    let with_times = |contestant: Contestant<'a>| {
        if !contestant.runs_on() {
            return contestant;
        }
        subject += 1;
        contestant.timed(&timings, subject - 1)
    };
    let contestants = contestants.into_iter().map(with_times).collect();
    (contestants, timings)
}
