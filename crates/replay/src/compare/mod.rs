//! The runs of a comparison: each allocator once per round, and the figures over all rounds.

mod environment;
mod lists;
mod lookup;
mod settings;
mod spread;

use std::path::{Path, PathBuf};

use hksim_engine::{MemoryPolicyRule, TouchRule};
use hksim_policy::Policy;
use hksim_trace::event::Op;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use serde::Serialize;

use crate::{Measure, Mode, ReplayError, ReplaySpec, Replayed, Skipped, Target, replay};
use environment::Run;

pub use environment::Surroundings;
pub use lists::expanded;
pub use lookup::{LookupError, lookup, meaning};
pub use spread::Spread;

/// An allocator that was looked up.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// Its name.
    pub name: String,
    /// The target of a replay, or the reason why it is missing.
    pub found: Found,
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

    /// The policy, if the allocator has one.
    pub fn policy(&self) -> Option<&Policy> {
        match &self.found {
            Found::Here(Target::Native(policy)) => Some(policy),
            _ => None,
        }
    }
}

/// Rounds before the first counted one. They warm the file cache and the kernel's free memory.
pub const WARM_UP_RUNS: u32 = 1;

/// How a comparison is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The trace.
    pub trace: &'a Path,
    /// How the program touches its blocks.
    pub touch: TouchRule,
    /// One thread or those of the trace.
    pub mode: Mode,
    /// Counted rounds.
    pub runs: u32,
}

/// The status of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was measured.
    Measured,
    /// It is missing on this machine.
    Skipped,
    /// It crashed.
    Failed,
}

/// Memory after some events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Events done.
    pub event: u64,
    /// Requested bytes of live objects.
    pub live_bytes: u64,
    /// Resident bytes, the median of the runs.
    pub rss_bytes: Option<u64>,
}

/// The figures of an allocator; those that could not be measured are null.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// `ru_minflt` of the window.
    pub faults: Option<Spread<u64>>,
    /// Page-fault exceptions of the window.
    pub traps: Option<Spread<u64>>,
    /// Peak resident bytes.
    pub rss_bytes_peak: Option<Spread<u64>>,
    /// Resident bytes at the end.
    pub rss_bytes_end: Option<Spread<u64>>,
    /// Peak page-table memory.
    pub page_table_bytes_peak: Option<Spread<u64>>,
    /// Allocator calls per second of driving time.
    pub ops_per_s: Option<Spread<f64>>,
    /// User seconds.
    pub user_s: Option<Spread<f64>>,
    /// System seconds.
    pub sys_s: Option<Spread<f64>>,
    /// Requests that the allocator refused.
    pub requests_failed: Option<Spread<u64>>,
}

/// One allocator.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name on the command line.
    pub allocator: String,
    /// The preloaded library.
    pub library: Option<PathBuf>,
    /// The policy, if it has one.
    pub policy: Option<Policy>,
    /// Its status.
    pub outcome: Outcome,
    /// Why there are no figures, if there are none.
    pub reason: Option<String>,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Residency over the events.
    pub timeline: Vec<Sample>,
    /// Figures that are null or limited, and why.
    pub skipped: Vec<Skipped>,
}

/// An allocator during the comparison: its runs so far, or the reason why it has no more runs.
struct Contestant<'a> {
    allocator: &'a Allocator,
    runs: Vec<Replayed>,
    ended: Option<(Outcome, String)>,
}

/// Runs all rounds, and calls `done` after each run: there are [`WARM_UP_RUNS`] more than the counted ones. Returns the rows and the environment.
///
/// # Errors
/// A run cannot start: the trace is damaged, or a library has no allocator.
pub fn rows(
    allocators: &[Allocator],
    plan: &Plan<'_>,
    done: &dyn Fn(),
) -> Result<(Vec<Row>, Surroundings), ReplayError> {
    let mut contestants: Vec<Contestant<'_>> = allocators.iter().map(Contestant::new).collect();
    for round in 0..WARM_UP_RUNS + plan.runs {
        for contestant in &mut contestants {
            contestant.run(plan, round >= WARM_UP_RUNS)?;
            done();
        }
    }
    let events = contestants.iter().find_map(|contestant| contestant.runs.first());
    let events: Vec<u64> = events.map_or(Vec::new(), |run| run.marks.iter().map(|mark| mark.event).collect());
    let live = live_bytes(plan.trace, &events)?;
    let surroundings = Surroundings::of(&counted(&contestants, plan.runs as usize));
    Ok((contestants.into_iter().map(|contestant| contestant.row(&live)).collect(), surroundings))
}

/// All counted runs, in order.
fn counted<'a>(contestants: &'a [Contestant<'a>], rounds: usize) -> Vec<Run<'a>> {
    let of_round = |at: usize| {
        contestants.iter().filter_map(move |contestant| {
            let environment = &contestant.runs.get(at)?.environment;
            Some(Run { round: at + 1, allocator: &contestant.allocator.name, environment })
        })
    };
    (0..rounds).flat_map(of_round).collect()
}

impl<'a> Contestant<'a> {
    fn new(allocator: &'a Allocator) -> Contestant<'a> {
        let ended = match &allocator.found {
            Found::Here(_) => None,
            Found::Missing(why) => Some((Outcome::Skipped, why.clone())),
        };
        Contestant { allocator, runs: Vec::new(), ended }
    }

    fn run(&mut self, plan: &Plan<'_>, counts: bool) -> Result<(), ReplayError> {
        let (Found::Here(on), None) = (&self.allocator.found, &self.ended) else { return Ok(()) };
        let (trace, on) = (plan.trace.to_path_buf(), on.clone());
        let measure = Measure { pages: counts, time: true };
        let (touch, mode, forks, memory_policy) = (plan.touch, plan.mode, Vec::new(), MemoryPolicyRule::default());
        match replay(&ReplaySpec { trace, on, touch, memory_policy, mode, measure, stop_at: None, forks }) {
            Ok(run) if counts => self.runs.push(run),
            Ok(_) => {}
            Err(why @ (ReplayError::Signal { .. } | ReplayError::NoResult { .. })) => {
                self.ended = Some((Outcome::Failed, why.to_string()));
            }
            Err(why) => return Err(why),
        }
        Ok(())
    }

    fn row(self, live: &[(u64, u64)]) -> Row {
        let (outcome, reason) = match self.ended {
            Some((outcome, reason)) => (outcome, Some(reason)),
            None => (Outcome::Measured, None),
        };
        let runs = if outcome == Outcome::Measured { self.runs } else { Vec::new() };
        Row {
            allocator: self.allocator.name.clone(),
            library: self.allocator.library().map(Path::to_path_buf),
            policy: self.allocator.policy().copied(),
            outcome,
            reason,
            figures: Figures::of(&runs),
            timeline: if runs.is_empty() { Vec::new() } else { timeline(&runs, live) },
            skipped: runs.into_iter().next().map(|run| run.skipped).unwrap_or_default(),
        }
    }
}

impl Figures {
    fn of(runs: &[Replayed]) -> Figures {
        let counts = |figure: fn(&Replayed) -> Option<u64>| Spread::of(runs.iter().map(figure));
        let rates = |figure: fn(&Replayed) -> Option<f64>| Spread::of(runs.iter().map(figure));
        Figures {
            faults: counts(|run| run.faults),
            traps: counts(|run| run.traps),
            rss_bytes_peak: counts(|run| run.rss_bytes_peak),
            rss_bytes_end: counts(|run| run.rss_bytes_end),
            page_table_bytes_peak: counts(|run| run.page_table_bytes_peak),
            ops_per_s: rates(|run| run.ops_per_s),
            user_s: rates(|run| run.user_s),
            sys_s: rates(|run| run.sys_s),
            requests_failed: counts(|run| Some(run.requests_failed)),
        }
    }
}

fn timeline(runs: &[Replayed], live: &[(u64, u64)]) -> Vec<Sample> {
    let rss_bytes = |mark: usize| {
        let bytes = runs.iter().map(|run| run.marks.get(mark).and_then(|mark| mark.rss_bytes));
        Spread::of(bytes).map(|spread| spread.median)
    };
    let sample = |(mark, &(event, live_bytes))| Sample { event, live_bytes, rss_bytes: rss_bytes(mark) };
    live.iter().enumerate().map(sample).collect()
}

/// Requested bytes of live objects after each of these numbers of events, which must be ascending.
fn live_bytes(trace: &Path, events: &[u64]) -> Result<Vec<(u64, u64)>, ReplayError> {
    let mut reader = TraceReader::open(trace)?;
    let mut sizes = vec![0u64; reader.summary().objects_peak as usize];
    let (mut done, mut live) = (0, 0);
    let mut wanted = events.iter().copied().peekable();
    let mut found = Vec::with_capacity(events.len());
    while let Some(batch) = reader.next_batch()? {
        for event in batch {
            if let (Some(object), Some(bytes)) = (event.op.object(), bytes_after(&event.op)) {
                let size = &mut sizes[object.0 as usize];
                live = live - *size + bytes;
                *size = bytes;
            }
            done += 1;
            if wanted.next_if_eq(&done).is_some() {
                found.push((done, live));
            }
        }
    }
    Ok(found)
}

/// The object and its size after an event that changes the size.
fn bytes_after(op: &Op) -> Option<u64> {
    match *op {
        Op::Alloc { size, .. } | Op::Realloc { size, .. } | Op::ReallocUnknown { size, .. } => Some(size),
        Op::Free { .. } | Op::ReallocFree { .. } => Some(0),
        _ => None,
    }
}
