//! A comparison: counted runs of each allocator, timed rounds of all, and the figures over all runs.

mod contestant;
mod environment;
mod lists;
mod lookup;
mod settings;
mod spread;
mod timeline;

use std::path::{Path, PathBuf};

use hksim_engine::TouchRule;
use hksim_policy::Policy;
use hksim_timing::{Arrangement, Effort, Ended, Estimate, Plan as TimingPlan, Timings, time};
use serde::{Deserialize, Serialize};

use crate::library::{Library, c_library, library};
use crate::{Environment, Measure, Mode, ReplayError, ReplaySpec, Skipped, Target, TimedReplay, Times};
use contestant::{Contestant, counted};
use environment::Run;

pub use environment::Surroundings;
pub use lists::{RangeError, expanded};
pub use lookup::{LookupError, in_folder, lookup, meaning, settings_of};
pub use spread::Spread;
pub use timeline::{Live, Sample, live_bytes};

/// An allocator that was looked up.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// Its name.
    pub name: String,
    /// Its policy, if it is hksim's own allocator.
    pub own: Option<Own>,
    /// The target of a replay, or the reason why it is missing.
    pub found: Found,
}

/// hksim's own allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its policy.
    pub policy: Policy,
    /// The code that runs.
    pub code: Code,
}

/// The code of hksim's own allocator that a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The preloaded object of `hksim run`, with sizes of slices and SuperSlabs as constants.
    Constant,
    /// The preloaded object, with these sizes from the policy, which takes more instructions.
    RunTime,
    /// The allocator inside the replay: no program can run on the policy.
    InReplay,
}

/// The result of a lookup.
#[derive(Clone, Debug)]
pub enum Found {
    /// A trace can be replayed on it.
    Here(Target),
    /// It is missing on this machine; the text has the reason and how to install it.
    Missing(String),
}

impl Allocator {
    /// The library to preload.
    pub fn library(&self) -> Option<&Path> {
        match &self.found {
            Found::Here(Target::Malloc { preload, .. }) => preload.as_deref(),
            _ => None,
        }
    }

    /// Which allocator its library is, and which version of it, if the library says so.
    pub fn identified(&self) -> Option<Library> {
        match &self.found {
            Found::Here(Target::Malloc { preload: Some(path), .. }) => library(path),
            Found::Here(Target::Malloc { preload: None, .. }) => c_library(),
            _ => None,
        }
    }
}

/// Rounds before the first timed one. They warm the file cache and the kernel's free memory.
pub const WARM_UP_RUNS: u32 = 1;

/// Maximum number of runs of each allocator in which pages and modes are counted. Counts vary less than times.
pub const COUNTED_RUNS_MAX: u32 = 5;

/// How a comparison is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The trace.
    pub trace: &'a Path,
    /// How the program touches its blocks.
    pub touch: TouchRule,
    /// One thread or those of the trace.
    pub mode: Mode,
    /// When the timed rounds end. There are no more counted runs than timed ones.
    pub effort: Effort,
    /// Which timed runs happen at the same time.
    pub arrangement: Arrangement,
    /// The seed of the order of timed runs.
    pub seed: u64,
    /// Whether allocations and frees are timed apart.
    pub is_apart: bool,
}

impl Plan<'_> {
    /// Counted runs of each allocator.
    pub fn counted_runs(&self) -> u32 {
        self.effort.rounds_max.min(COUNTED_RUNS_MAX)
    }

    /// The replay on an allocator. Only its pages are measured: other runs are timed.
    fn spec(&self, on: Target) -> ReplaySpec {
        ReplaySpec { mode: self.mode, measure: Measure::PAGES, ..ReplaySpec::ordered(self.trace, on, self.touch) }
    }
}

/// The status of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was measured.
    Measured,
    /// It is missing on this machine.
    Skipped,
    /// It crashed.
    Failed,
    /// Its pages were predicted, and its times are not known.
    Predicted,
}

/// The figures of an allocator; those that could not be measured are null.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// `ru_minflt` of the window.
    pub faults: Option<Spread<u64>>,
    /// Page-fault exceptions of the window.
    pub traps: Option<Spread<u64>>,
    /// Peak resident bytes: their growth since the first call, and the bytes that the allocator took before it
    /// ([`Replayed::startup_bytes`](crate::Replayed::startup_bytes)).
    pub rss_bytes_peak: Option<Spread<u64>>,
    /// Resident bytes at the end, likewise.
    pub rss_bytes_end: Option<Spread<u64>>,
    /// Peak page-table memory.
    pub page_table_bytes_peak: Option<Spread<u64>>,
    /// Allocator calls per second of driving time.
    pub ops_per_s: Option<Spread<f64>>,
    /// Requests that the allocator refused.
    pub requests_failed: Option<Spread<u64>>,
}

/// One allocator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name on the command line.
    pub allocator: String,
    /// The preloaded library.
    pub library: Option<PathBuf>,
    /// The version of the library, or of the C library; null if it does not tell.
    #[serde(default)]
    pub version: Option<String>,
    /// The policy, if it has one.
    pub policy: Option<Policy>,
    /// The code that runs, if it is hksim's own allocator.
    pub code: Option<Code>,
    /// Its status.
    pub outcome: Outcome,
    /// Why there are no figures, if there are none.
    pub reason: Option<String>,
    /// Its processor times.
    #[serde(flatten)]
    pub times: Times,
    /// Its other figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Residency over the events.
    pub timeline: Vec<Sample>,
    /// Figures that are null or limited, and why.
    pub skipped: Vec<Skipped>,
}

/// How the times were measured, and how exactly.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Method {
    /// The requested precision: half the interval of a ratio, as a share of the ratio. Null if only a number of rounds
    /// was requested.
    pub precision: Option<f64>,
    /// Why the rounds ended.
    pub ended: Ended,
    /// The seed of the order of runs.
    pub seed: u64,
    /// Whether each allocator ran at the same time as the first one.
    pub is_duet: bool,
    /// The ratio of a second run of the first allocator to its first run: the method's own error.
    pub same_again: Option<Estimate>,
    /// The share of looks, one before each run, that found other work on the processor's core: beside it, times are up to three
    /// times as long. 0 also if it never paused; null without runs, and if nothing shows it on this processor.
    #[serde(default)]
    pub core_shared_share: Option<f64>,
    /// The times of a replay without an allocator and without touches.
    pub harness: Times,
}

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// One row for each allocator.
    pub rows: Vec<Row>,
    /// Timed rounds.
    pub rounds: u32,
    /// How the times were measured.
    pub method: Method,
    /// The machine.
    pub surroundings: Surroundings,
}

/// Compares allocators. `done` is called after each counted run, and after each timed round.
///
/// # Errors
/// A run cannot start: the trace is damaged, or a library has no allocator.
pub fn compare(allocators: &[Allocator], plan: &Plan<'_>, done: &dyn Fn()) -> Result<Comparison, ReplayError> {
    let mut contestants: Vec<Contestant<'_>> = allocators.iter().map(Contestant::new).collect();
    for _ in 0..plan.counted_runs() {
        for contestant in &mut contestants {
            contestant.count(plan)?;
            done();
        }
    }
    let environment = Environment::read();
    let timings = timed(&contestants, plan, done)?;
    let environment = environment.finish();
    let method = Method {
        precision: Some(plan.effort.precision).filter(|precision| *precision > 0.0),
        ended: timings.ended,
        seed: plan.seed,
        is_duet: plan.arrangement != Arrangement::InTurn,
        same_again: timings.same_again(),
        core_shared_share: timings.core_shared_share,
        harness: timings.subjects.len().checked_sub(1).map(|last| Times::of(&timings, last)).unwrap_or_default(),
    };
    let rounds = timings.rounds;
    for (contestant, times) in contestants.iter_mut().filter(|contestant| contestant.runs_on()).zip(times(timings)) {
        contestant.note_times(times)?;
    }
    let events = contestants.iter().find_map(|contestant| contestant.counts.first());
    let events: Vec<u64> = events.map_or(Vec::new(), |run| run.marks.iter().map(|mark| mark.event).collect());
    let live = live_bytes(plan.trace, &events)?;
    let mut runs = counted(&contestants);
    let in_timed_rounds = Run { round: rounds as usize, allocator: "timed rounds", environment: &environment };
    runs.extend((!runs.is_empty()).then_some(in_timed_rounds));
    let surroundings = Surroundings::of(&runs);
    drop(runs);
    let rows = contestants.into_iter().map(|contestant| contestant.row(&live)).collect();
    Ok(Comparison { rows, rounds, method, surroundings })
}

/// Times all allocators that still run, and the replay without an allocator, which is the last subject.
fn timed(
    contestants: &[Contestant<'_>],
    plan: &Plan<'_>,
    done: &dyn Fn(),
) -> Result<Timings<ReplayError>, ReplayError> {
    let specs = contestants.iter().filter_map(|contestant| contestant.spec(plan));
    let mut subjects = specs.map(|spec| TimedReplay::of(&spec)).collect::<Result<Vec<_>, _>>()?;
    if !subjects.is_empty() {
        subjects.push(TimedReplay::harness(&plan.spec(Target::C_LIBRARY))?);
    }
    let Plan { effort, arrangement, seed, .. } = *plan;
    let plan = TimingPlan { effort, warm_up_rounds: WARM_UP_RUNS, arrangement, seed };
    Ok(time(&subjects.iter().collect::<Vec<_>>(), &plan, &mut |_| done()))
}

/// The times of each subject and its speed, or why it failed.
fn times(timings: Timings<ReplayError>) -> impl Iterator<Item = Result<(Times, Option<Spread<f64>>), ReplayError>> {
    let times: Vec<Times> = (0..timings.subjects.len()).map(|subject| Times::of(&timings, subject)).collect();
    timings.subjects.into_iter().zip(times).map(|(subject, times)| match subject.failure {
        Some(why) => Err(why),
        None => Ok((times, Spread::of(subject.samples.iter().map(|sample| Some(sample.calls_per_s()))))),
    })
}
