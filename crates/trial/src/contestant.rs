//! One row during a trial.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hksim_embedded::{PRELOAD_VARIABLE, preload_with};
use hksim_linux_mm::ThpMode;
use hksim_replay::compare::{Allocator, Found, Outcome, Spread};
use hksim_replay::{Target, library};
use hksim_results::trial::{PRESENT, Row};
use hksim_text::units::of;
use hksim_timing::{Sample, Subject, Timings, median_with_interval};

use crate::error::RunError;
use crate::job::Job;
use crate::machine::Machine;
use crate::marks::{Mark, over_runs};
use crate::output::Contents;
use crate::run::{Purpose, Run, Watch, run};
use crate::serving::{Variable, is_c_library, is_same, serving};
use crate::{Plan, Program};

/// Processor time that a timed run should have at least: below it, starting a program is a large part of the noise.
const SAMPLE_NS_MIN: u64 = 20_000_000;
/// Maximum number of runs of the program in a timed run, and their elapsed time: a program may mostly wait.
const RUNS_PER_SAMPLE_MAX: u64 = 20;
const SAMPLE_WALL_MAX: Duration = Duration::from_millis(500);
/// Time of a run that is assumed before one is known, for the limit.
const TIME_UNKNOWN: Duration = Duration::from_secs(60);

/// What all rows have in common.
pub(crate) struct Shared<'a> {
    pub(crate) program: &'a Program,
    pub(crate) plan: &'a Plan<'a>,
    pub(crate) machine: &'a Machine,
    /// The first run of the first row.
    pub(crate) reference: OnceLock<Reference>,
}

/// What the other runs are held to.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    status: i32,
    shown: String,
    wall: Duration,
    /// Runs of the program in a timed run.
    pub(crate) runs: u32,
}

/// A row while it is measured.
pub(crate) struct Contestant<'a> {
    shared: &'a Shared<'a>,
    thp: Option<ThpMode>,
    environment: Vec<Variable>,
    /// The library that is preloaded, which all processes should have.
    preloaded: Option<PathBuf>,
    record: Mutex<Record>,
    /// The row so far.
    pub(crate) row: Row,
}

/// What all runs of a row have shown.
#[derive(Debug, Default)]
struct Record {
    stdout: Contents,
    stderr: Contents,
    rss_bytes_peak: Vec<u64>,
    faults: Vec<u64>,
    major_faults: Vec<u64>,
    marks: Vec<Vec<Mark>>,
    processes_stopped: u32,
    was_killed: bool,
}

/// The allocator in a library and its version, if it tells them.
fn identified(path: &Path) -> Option<String> {
    let known = if is_c_library(path) { library::c_library() } else { library::library(path) };
    known.map(|known| format!("{} {}", known.allocator, known.version))
}

impl<'a> Contestant<'a> {
    /// The program as it is (without an allocator), or under an allocator.
    pub(crate) fn new(shared: &'a Shared<'a>, allocator: Option<&Allocator>, thp: Option<ThpMode>) -> Contestant<'a> {
        let row = Row::new(allocator.map_or(PRESENT, |allocator| &allocator.name), thp);
        let mut contestant =
            Contestant { shared, thp, environment: Vec::new(), preloaded: None, record: Mutex::default(), row };
        if let Err(why) = contestant.set_allocator(allocator) {
            contestant.end(Outcome::Skipped, why);
        }
        contestant
    }

    /// Sets the allocator's environment, and checks that the program has that allocator then.
    fn set_allocator(&mut self, allocator: Option<&Allocator>) -> Result<(), String> {
        let words = &self.shared.program.words;
        let Some(allocator) = allocator else {
            self.row.library = serving(words, &[]).unwrap_or_default();
            return Ok(());
        };
        let (preload, variables) = match &allocator.found {
            Found::Missing(why) => return Err(why.clone()),
            Found::Here(Target::Malloc { preload, variables }) => (preload, variables),
            Found::Here(Target::Native(_) | Target::Design { .. }) => {
                return Err("no program can run on this policy, which only replays can follow".to_string());
            }
        };
        // A program that is linked to another allocator has glibc's if glibc is loaded before it. So have the programs that
        // this one starts.
        let preload = preload.clone().or_else(library::c_library_file);
        let preloaded = preload.iter().map(|library| (OsString::from(PRELOAD_VARIABLE), Some(preload_with(library))));
        let variables = variables.iter().map(|(name, value)| (name.into(), Some(value.into())));
        self.environment = preloaded.chain(variables).collect();
        let found = serving(words, &self.environment)?;
        let found = found.ok_or("the dynamic linker does not say which library serves the program's malloc")?;
        match &preload {
            Some(library) if !is_same(library, &found) => {
                Err(format!("{} is preloaded, but {} serves the program's malloc", library.display(), found.display()))
            }
            None if !is_c_library(&found) => Err(format!(
                "the program's malloc is that of {}, which it is linked to or which is preloaded",
                found.display()
            )),
            _ => {
                // Mappings have the name of the file itself, not that of a link to it.
                let file = |library: &PathBuf| library.canonicalize().unwrap_or_else(|_| library.clone());
                (self.preloaded, self.row.library) = (preload.as_ref().map(file), Some(found));
                Ok(())
            }
        }
    }

    /// Ends the row for a reason.
    pub(crate) fn end(&mut self, outcome: Outcome, why: String) {
        (self.row.outcome, self.row.reason) = (outcome, Some(why));
    }

    /// Whether it has no reason to end.
    pub(crate) fn runs_on(&self) -> bool {
        self.row.reason.is_none()
    }

    /// The sampled run, of which the processes and their memory are looked at.
    pub(crate) fn sample(&mut self) {
        match self.sampled() {
            Ok(run) => {
                self.row.tree_rss_bytes_peak = Some(run.seen.rss_bytes_peak).filter(|&bytes| bytes > 0);
                self.row.huge_bytes_peak = self.row.tree_rss_bytes_peak.map(|_| run.seen.huge_bytes_peak);
                self.row.tree_rss_bytes_loaded = run.loaded.map(|memory| memory.shared_out_bytes);
                self.row.status = Some(run.status());
                let unserved = run.seen.unserved();
                if !unserved.is_empty() {
                    self.row.notes.push(format!("without the allocator's library ran {}", unserved.join(", ")));
                }
                self.row.timeline = run.seen.timeline;
            }
            Err(why) => self.end(Outcome::Failed, why.to_string()),
        }
    }

    fn sampled(&self) -> Result<Run, RunError> {
        let run = self.run_once(Purpose::Sampled(self.preloaded.as_deref()))?;
        match (&self.preloaded, run.seen.largest_unserved()) {
            (Some(library), Some(program)) => {
                Err(RunError::Unserved { program, library: library.display().to_string() })
            }
            _ => Ok(run),
        }
    }

    /// Runs the program once, and holds it to the first run of the first row.
    fn run_once(&self, purpose: Purpose<'_>) -> Result<Run, RunError> {
        let Shared { program, plan, machine, reference } = self.shared;
        machine.prepare(self.thp)?;
        let job = Job {
            words: program.words.clone(),
            environment: self.environment.clone(),
            input: program.input.clone(),
            huge_pages_off: self.thp == Some(ThpMode::Never),
            is_server: plan.supervision.load.is_some(),
        };
        let known = reference.get().map_or(TIME_UNKNOWN, |first| first.wall);
        let begin = Instant::now();
        let run = run(&job, &Watch { supervision: plan.supervision, listener: plan.listener, known }, purpose)?;
        let wall = begin.elapsed();
        machine.check(self.thp)?;
        let first = reference.get_or_init(|| Reference {
            status: run.ended.status,
            shown: run.status(),
            wall,
            runs: if job.is_server { 1 } else { runs_per_sample(run.cpu_ns, wall) },
        });
        if run.ended.status != first.status {
            let (own, said) = (run.status(), run.stderr.last_line());
            return Err(RunError::Status { own, first: first.shown.clone(), said });
        }
        self.record.lock().unwrap_or_else(PoisonError::into_inner).add(&run);
        Ok(run)
    }

    /// The row with the figures of its timed runs.
    pub(crate) fn timed(mut self, timings: &Timings<RunError>, subject: usize) -> Contestant<'a> {
        let times = &timings.subjects[subject];
        if let Some(why) = &times.failure {
            self.end(Outcome::Failed, why.to_string());
            return self;
        }
        let per_run = |figure: fn(&Sample) -> u64| {
            median_with_interval(times.samples.iter().map(|sample| figure(sample) as f64 / 1e9 / sample.calls as f64))
        };
        let row = &mut self.row;
        (row.cpu_s, row.wall_s) = (per_run(|sample| sample.cpu_ns), per_run(|sample| sample.wall_ns));
        (row.ratio_to_first, row.verdict) = (times.ratio_to_first(), timings.verdict(subject));
        row.rounds = times.rounds();
        self
    }

    /// The finished row. `first` is the first one.
    pub(crate) fn finish(mut self, first: &Outputs) -> Row {
        self.row.version = self.row.library.as_deref().and_then(identified);
        let record = self.record.get_mut().unwrap_or_else(PoisonError::into_inner);
        let row = &mut self.row;
        let spread = |figures: &[u64]| Spread::of(figures.iter().copied().map(Some));
        row.rss_bytes_peak = spread(&record.rss_bytes_peak);
        (row.faults, row.major_faults) = (spread(&record.faults), spread(&record.major_faults));
        let (at_marks, notes) = over_runs(&record.marks);
        row.rss_bytes_at_marks = at_marks;
        row.notes.extend(notes);
        if record.processes_stopped > 0 {
            let all = of(record.processes_stopped.into(), "process");
            row.notes.push(format!("up to {all} outlived the program by 2 s in each run and were stopped"));
        }
        if record.was_killed {
            row.notes.push("processes did not end after their signal and were killed".to_string());
        }
        if record.faults.is_empty() {
            return self.row;
        }
        row.equal_output = record.stdout.equal_to(&first.stdout);
        row.equal_stderr = record.stderr.equal_to(&first.stderr);
        if row.equal_output == Some(false) && row.reason.is_none() {
            row.outcome = Outcome::Failed;
            row.reason = Some(format!("other output: {}", record.stdout.difference(&first.stdout)));
        }
        self.row
    }

    /// What the row wrote in all its runs.
    pub(crate) fn outputs(&self) -> Outputs {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        Outputs { stdout: record.stdout.clone(), stderr: record.stderr.clone() }
    }
}

/// How often a program of this processor and elapsed time runs in a timed run.
fn runs_per_sample(cpu_ns: u64, wall: Duration) -> u32 {
    let fitting = SAMPLE_WALL_MAX.as_nanos() / wall.as_nanos().max(1);
    let wanted = SAMPLE_NS_MIN.div_ceil(cpu_ns.max(1)).clamp(1, RUNS_PER_SAMPLE_MAX);
    wanted.min(fitting.max(1) as u64) as u32
}

/// What a row wrote in all its runs.
pub(crate) struct Outputs {
    stdout: Contents,
    stderr: Contents,
}

impl Record {
    fn add(&mut self, run: &Run) {
        self.stdout.add(run.stdout.content);
        self.stderr.add(run.stderr.content);
        self.rss_bytes_peak.push(run.ended.rss_bytes_peak);
        self.faults.push(run.ended.minor_faults);
        self.major_faults.push(run.ended.major_faults);
        self.marks.push(run.marks.clone());
        self.processes_stopped = self.processes_stopped.max(run.ended.processes_stopped);
        self.was_killed |= run.ended.was_killed;
    }
}

impl Subject for Contestant<'_> {
    type Error = RunError;

    fn run(&self, _cpu: Option<usize>) -> Result<Sample, RunError> {
        let runs = self.shared.reference.get().map_or(1, |first| first.runs);
        let mut sum = Sample { calls: u64::from(runs), ..Sample::default() };
        for _ in 0..runs {
            let run = self.run_once(Purpose::Timed)?;
            sum.cpu_ns += run.cpu_ns;
            sum.wall_ns += run.wall_ns;
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_programs_run_several_times_unless_they_wait() {
        let runs = |cpu_ms: u64, wall_ms| runs_per_sample(cpu_ms * 1_000_000, Duration::from_millis(wall_ms));
        assert_eq!([runs(0, 1), runs(1, 2), runs(7, 8), runs(20, 21), runs(90, 99)], [20, 20, 3, 1, 1]);
        assert_eq!([runs(1, 100), runs(1, 400), runs(1, 4000)], [5, 1, 1]);
    }
}
