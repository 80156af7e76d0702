//! Candidates measured by replays on this machine.

use std::io;
use std::path::PathBuf;

use hksim_engine::TouchRule;
use hksim_linux_mm::ThpMode;
use hksim_replay::compare::{Allocator, Found, Outcome};
use hksim_replay::{Measure, Mode, ReplaySpec, Target, TimedReplay, replay};
use hksim_timing::{Arrangement, Effort, Plan, Sample, Subject, Timings, time};
use hksim_trial::{Machine, RunError};

use crate::bench::{Bench, Counted, Counts};
use crate::candidate::Candidate;
use crate::predicted::Predictions;

/// A trace to replay.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// Its file.
    pub path: PathBuf,
    /// Its name in results.
    pub name: String,
    /// Its weight.
    pub weight: f64,
    /// How the program touches its blocks.
    pub touch: TouchRule,
}

/// Replays of some traces.
pub struct Replays<'a> {
    /// The traces.
    pub traces: Vec<TraceFile>,
    /// On one thread, or on those of the trace.
    pub mode: Mode,
    /// Looks up an allocator, or says why it is missing.
    pub lookup: &'a dyn Fn(&str) -> Result<Allocator, String>,
    /// The machine's huge-page mode.
    pub machine: Machine,
    /// Why modes other than the machine's cannot be set, if they cannot.
    pub modes_refused: Option<String>,
    /// Pages under modes that cannot be set.
    pub predictions: Predictions,
    /// The seed of the order of runs.
    pub seed: u64,
    /// Is called after each counted run and each timed round.
    pub done: &'a dyn Fn(),
}

impl Replays<'_> {
    /// Why a candidate's mode cannot be set, if it cannot.
    fn refusal(&self, candidate: &Candidate) -> Option<&str> {
        let must_set = candidate.mode.is_some_and(|mode| self.machine.must_set(mode));
        self.modes_refused.as_deref().filter(|_| must_set)
    }

    fn target(&self, candidate: &Candidate) -> Result<(Allocator, Target), String> {
        let allocator = (self.lookup)(&candidate.word)?;
        match allocator.found.clone() {
            Found::Here(target) => Ok((allocator, target)),
            Found::Missing(why) => Err(why),
        }
    }

    fn spec(&self, trace: &TraceFile, on: Target) -> ReplaySpec {
        ReplaySpec { mode: self.mode, measure: Measure::PAGES, ..ReplaySpec::ordered(&trace.path, on, trace.touch) }
    }

    fn counts(&self, trace: &TraceFile, target: &Target, mode: Option<ThpMode>) -> Result<Counts, String> {
        let run =
            under(&self.machine, mode, || replay(&self.spec(trace, target.clone())).map_err(|why| why.to_string()));
        (self.done)();
        let run = run?;
        match run.requests_failed {
            0 => {
                Ok(Counts { rss_bytes_peak: run.rss_bytes_peak, rss_bytes_end: run.rss_bytes_end, faults: run.faults })
            }
            failed => Err(format!("{}: it refused {failed} requests", trace.name)),
        }
    }
}

impl Replays<'_> {
    /// The pages of a candidate whose mode cannot be set.
    fn predicted(&mut self, candidate: &Candidate, trace: usize, target: &Target) -> Result<Counts, String> {
        let (Some(here), Some(mode)) = (self.machine.mode(), candidate.mode) else {
            return Err("this kernel has no huge pages".to_string());
        };
        let measured = self.counts(&self.traces[trace], target, None)?;
        let spec = self.spec(&self.traces[trace], target.clone());
        self.predictions.counts((&candidate.word, trace), &spec, &measured, (here, mode))
    }
}

impl Bench for Replays<'_> {
    fn traces(&self) -> Vec<(String, f64)> {
        self.traces.iter().map(|trace| (trace.name.clone(), trace.weight)).collect()
    }

    fn count(&mut self, candidate: &Candidate) -> Counted {
        let (allocator, target) = match self.target(candidate) {
            Ok(found) => found,
            Err(why) => return Counted::missing(why),
        };
        let refused = self.refusal(candidate).map(str::to_string);
        let counts = (0..self.traces.len()).map(|trace| match refused {
            Some(_) => self.predicted(candidate, trace, &target),
            None => self.counts(&self.traces[trace], &target, candidate.mode),
        });
        let counts = counts.collect::<Result<Vec<Counts>, String>>();
        let counts = match (counts, &refused) {
            (Err(why), Some(refused)) => {
                Err((Outcome::Skipped, format!("{refused}; and its pages cannot be predicted: {why}")))
            }
            (counts, _) => counts.map_err(|why| (Outcome::Failed, why)),
        };
        let assignment = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            format!("{}={}", name.to_string_lossy(), value.to_string_lossy())
        };
        Counted {
            library: allocator.library().map(std::path::Path::to_path_buf),
            version: allocator.identified().map(|library| library.version),
            apply: target.environment().into_iter().map(assignment).collect(),
            predicted: refused,
            counts,
        }
    }

    fn time(&mut self, candidates: &[Candidate], effort: Effort) -> Vec<Timings<String>> {
        let plan = Plan { effort, warm_up_rounds: 0, arrangement: Arrangement::InTurn, seed: self.seed };
        let of_trace = |trace: &TraceFile| {
            let subjects: Vec<InMode<'_>> = candidates
                .iter()
                .map(|candidate| {
                    let replay = self
                        .target(candidate)
                        .and_then(|(_, on)| TimedReplay::of(&self.spec(trace, on)).map_err(|why| why.to_string()));
                    InMode { replay, mode: candidate.mode, machine: &self.machine }
                })
                .collect();
            time(&subjects.iter().collect::<Vec<_>>(), &plan, &mut |_| (self.done)())
        };
        self.traces.iter().map(of_trace).collect()
    }
}

/// A timed replay under a huge-page mode.
struct InMode<'a> {
    replay: Result<TimedReplay, String>,
    mode: Option<ThpMode>,
    machine: &'a Machine,
}

impl Subject for InMode<'_> {
    type Error = String;

    fn run(&self, cpu: Option<usize>) -> Result<Sample, String> {
        let replay = self.replay.as_ref().map_err(Clone::clone)?;
        under(self.machine, self.mode, || replay.run(cpu).map_err(|why| why.to_string()))
    }
}

/// Does something while processes that it starts have a huge-page mode. If all rows have the machine's mode, or huge pages
/// switched off for themselves, nothing is set: a mode that another process changes meanwhile is reported with the result.
fn under<T>(machine: &Machine, mode: Option<ThpMode>, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let told = |why: RunError| why.to_string();
    if machine.sets_modes() {
        machine.prepare(mode).map_err(told)?;
    }
    let done = if mode == Some(ThpMode::Never) { without_huge_pages(work) } else { work() };
    if machine.sets_modes() {
        machine.check(mode).map_err(told)?;
    }
    done
}

/// Does something while this process has huge pages switched off, which its children inherit.
fn without_huge_pages<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let cannot = |why: io::Error| format!("cannot switch huge pages off for a process: {why}");
    switch_huge_pages(false).map_err(cannot)?;
    let done = work();
    switch_huge_pages(true).map_err(cannot)?;
    done
}

fn switch_huge_pages(on: bool) -> io::Result<()> {
    let [off, none] = [libc::c_ulong::from(!on), 0];
    // SAFETY: the option takes a number and three zeros.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, off, none, none, none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
