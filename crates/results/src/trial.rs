//! The result of `trial`: a row for each allocator and setting.

use std::path::PathBuf;

use hksim_linux_mm::ThpMode;
use hksim_replay::Environment;
use hksim_replay::compare::{Outcome, Spread};
use hksim_timing::{Ended, Estimate, Verdict};
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// The name of the first row: the program with the allocator that it has without hksim.
pub const PRESENT: &str = "present";

/// The program under one allocator and setting. Figures that were not measured are null.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The allocator as on the command line, or [`PRESENT`].
    pub allocator: String,
    /// The huge-page mode, as a flag: `thp=never`; null for the machine's mode.
    pub setting: Option<String>,
    /// The library that serves the program's `malloc`, as the dynamic linker says; null if it is the program itself.
    pub library: Option<PathBuf>,
    /// The allocator and its version, as the library says: `jemalloc 5.3.0`; null if it does not.
    #[serde(default)]
    pub version: Option<String>,
    /// Whether it was measured.
    pub outcome: Outcome,
    /// Why it has no figures, or why they cannot be compared with those of the first row.
    pub reason: Option<String>,
    /// Processor seconds of a run, in user mode and in the kernel, of all processes; for a server, of the load.
    pub cpu_s: Option<Estimate>,
    /// Elapsed seconds of a run; for a server, of the load.
    pub wall_s: Option<Estimate>,
    /// Processor time relative to the first row: the median of the rounds' ratios.
    pub ratio_to_first: Option<Estimate>,
    /// Whether that is less or more; null for the first row and without intervals.
    pub verdict: Option<Verdict>,
    /// Timed rounds.
    pub rounds: u32,
    /// Peak resident bytes of the largest process, as the kernel counts them.
    pub rss_bytes_peak: Option<Spread<u64>>,
    /// The highest sum of resident bytes of all processes seen in the sampled run, shared pages counted once.
    pub tree_rss_bytes_peak: Option<u64>,
    /// The highest sum of anonymous bytes in huge pages seen in the sampled run.
    pub huge_bytes_peak: Option<u64>,
    /// Resident bytes of all processes of a server after its load, in the sampled run.
    pub tree_rss_bytes_loaded: Option<u64>,
    /// Resident bytes of all processes when the program named a moment, in the order of the moments.
    #[serde(default)]
    pub rss_bytes_at_marks: Vec<AtMark>,
    /// Minor faults of a run, of all processes, from the start to the end.
    pub faults: Option<Spread<u64>>,
    /// Faults that read from a disk.
    pub major_faults: Option<Spread<u64>>,
    /// How the program ended.
    pub status: Option<String>,
    /// Whether it wrote the same to standard output as in the first row, in every run; null if that differs from run to
    /// run in the first row.
    pub equal_output: Option<bool>,
    /// The same of standard error. A difference there is no failure.
    pub equal_stderr: Option<bool>,
    /// Resident and huge bytes over the time of the sampled run.
    pub timeline: Vec<Point>,
    /// What else was seen.
    pub notes: Vec<String>,
}

impl Row {
    /// A row without figures.
    pub fn new(allocator: &str, thp: Option<ThpMode>) -> Row {
        Row {
            allocator: allocator.to_string(),
            setting: thp.map(|mode| format!("thp={}", mode.word())),
            library: None,
            version: None,
            outcome: Outcome::Measured,
            reason: None,
            cpu_s: None,
            wall_s: None,
            ratio_to_first: None,
            verdict: None,
            rounds: 0,
            rss_bytes_peak: None,
            tree_rss_bytes_peak: None,
            huge_bytes_peak: None,
            tree_rss_bytes_loaded: None,
            rss_bytes_at_marks: Vec::new(),
            faults: None,
            major_faults: None,
            status: None,
            equal_output: None,
            equal_stderr: None,
            timeline: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// The memory of all processes of a program at a moment that it named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtMark {
    /// The name.
    pub mark: String,
    /// Resident bytes over all runs, shared pages counted once.
    pub rss_bytes: Spread<u64>,
}

/// The result of a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// The rows. The first is the program as it is.
    pub rows: Vec<Row>,
    /// Timed rounds.
    pub rounds: u32,
    /// Runs of the program in each timed run: short programs run several times.
    pub runs_per_round: u32,
    /// The requested precision: half the interval of a ratio, as a share of the ratio. Null if only a number of rounds
    /// was requested.
    pub precision: Option<f64>,
    /// Why the rounds ended.
    pub ended: Ended,
    /// The seed of the order of runs.
    pub seed: u64,
    /// The ratio of a second run of the first row in each round to its first run: the method's own error.
    pub same_again: Option<Estimate>,
    /// The share of looks, one before each run, that found other work on the processor's core: beside it, times are up to three
    /// times as long. 0 also if it never paused; null without runs, and if nothing shows it on this processor.
    #[serde(default)]
    pub core_shared_share: Option<f64>,
}

/// The memory of all processes of a program at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the start.
    pub at_s: f64,
    /// Resident bytes of all processes, shared pages counted once.
    pub rss_bytes: u64,
    /// Bytes of anonymous memory in huge pages.
    pub huge_bytes: u64,
}

/// What replays promise for a program, beside what was measured on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// The row of the trial.
    pub allocator: String,
    /// Its huge-page mode, as a flag.
    pub setting: Option<String>,
    /// Processor seconds that a replay of the recording takes longer than on the present allocator; negative if less.
    pub cpu_s_change: Option<Estimate>,
    /// Processor seconds by which the replay's process takes longer to start and to end; null for a server, whose times are
    /// those of the load.
    #[serde(default)]
    pub start_end_s_change: Option<Estimate>,
    /// The program's processor time relative to the present allocator, if it changes by both.
    pub ratio_promised: Option<Estimate>,
    /// The measured one.
    pub ratio_measured: Option<Estimate>,
    /// Whether the two intervals overlap; null if one has too few rounds for an interval.
    pub is_ratio_kept: Option<bool>,
    /// Peak resident bytes of the program, if they change by as much as those of the replay.
    pub rss_bytes_promised: Option<u64>,
    /// The lowest and the highest measured peak.
    pub rss_bytes_measured: Option<(u64, u64)>,
    /// Whether the promised peak is within 2 % of these.
    pub is_rss_kept: Option<bool>,
}

/// The trial with its figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrialReport {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Where it ran.
    pub directory: Option<PathBuf>,
    /// Its standard input; null if that was empty.
    pub input: Option<PathBuf>,
    /// Whether times are those of a server's load.
    pub is_server: bool,
    /// The machine at the start, and modes that changed until the end.
    pub environment: Environment,
    /// The rows, and how they were timed.
    #[serde(flatten)]
    pub trial: Trial,
    /// What replays of a recording promise, for the rows that were replayed.
    #[serde(default)]
    pub promises: Vec<Promise>,
}
