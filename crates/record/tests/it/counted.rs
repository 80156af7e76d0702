//! Counts per function equal those of an independent counter preloaded into the same program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hksim_trace::event::{AllocCall, Event, Op};
use tempfile::TempDir;

use crate::support::{compile, events, have, record_words, scratch};

const FUNCTIONS: [&str; 7] = ["malloc", "calloc", "realloc", "aligned", "free", "free_null", "usable"];
/// Number of runs of the counter. These differ from each other because of the address layout. The recording may differ
/// from them by as much.
const COUNTER_RUNS: usize = 3;

type Counts = BTreeMap<&'static str, u64>;

fn recorded_counts(events: &[Event]) -> Counts {
    let mut counts: Counts = FUNCTIONS.iter().map(|&name| (name, 0)).collect();
    for event in events {
        let name = match event.op {
            Op::Alloc { call, .. } | Op::AllocFailed { call, .. } => match call {
                AllocCall::Malloc => "malloc",
                AllocCall::Calloc => "calloc",
                AllocCall::Realloc | AllocCall::Reallocarray => "realloc",
                _ => "aligned",
            },
            Op::Realloc { .. } | Op::ReallocFree { .. } | Op::ReallocUnknown { .. } | Op::ReallocFailed { .. } => {
                "realloc"
            }
            Op::Free { .. } | Op::FreeUnknown => "free",
            Op::FreeNull => "free_null",
            Op::UsableSize { .. } => "usable",
            _ => continue,
        };
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// Places the counter where the recorder would be unpacked, and its files where the session would be. Python's own
/// calls depend on the length of each environment variable, so the paths must have equal lengths.
struct CounterPlace {
    library: PathBuf,
    base: PathBuf,
    _unpacked: TempDir,
}

impl CounterPlace {
    fn new(dir: &Path) -> Self {
        let counter = compile(dir, "counter", &["-shared", "-fPIC"]);
        let unpacked = tempfile::Builder::new().prefix("hksim-record-").tempdir().expect("a directory");
        let library = unpacked.path().join("preload.so");
        fs::copy(counter, &library).expect("the counter in its place");
        let session = dir.join(".app.hkt.recording-COUNTS");
        fs::create_dir(&session).expect("a folder");
        Self { library, base: session.join("0".repeat(32)), _unpacked: unpacked }
    }

    /// Counts of one run. setarch executes the program in its own process, so the process id is that of setarch.
    fn run(&self, script: &str) -> Counts {
        let mut child = Command::new("setarch")
            .args(["-R", "sh", "-c", script])
            .env("LD_PRELOAD", &self.library)
            .env("HKSIM_RECORD_SESSION", &self.base)
            .spawn()
            .expect("the program starts");
        let status = child.wait().expect("the program ends");
        assert!(status.success(), "{script}");
        let file = PathBuf::from(format!("{}.{}", self.base.display(), child.id()));
        let bytes = fs::read(&file).expect("the counter's file");
        fs::remove_file(file).expect("it goes");
        let values = bytes.chunks_exact(8).map(|long| u64::from_le_bytes(long.try_into().expect("8 bytes")));
        FUNCTIONS.iter().copied().zip(values).collect()
    }
}

fn check(dir: &Path, program: &str) {
    let counter = CounterPlace::new(dir);
    let printed = |name: &str| dir.join(name);
    let script = |name: &str| format!("PYTHONHASHSEED=0 exec {program} > {}", printed(name).display());
    let runs: Vec<Counts> = (0..COUNTER_RUNS).map(|_| counter.run(&script("counted"))).collect();
    let report = record_words(dir, ["setarch", "-R", "sh", "-c", &script("recorded")]);
    let trace = &report.traces[0];
    let recorded = recorded_counts(&events(trace));
    assert!(recorded["malloc"] > 1000, "the program makes many calls: {recorded:?}");
    for name in FUNCTIONS {
        let counted: Vec<u64> = runs.iter().map(|run| run[name]).collect();
        let (least, most) = (counted.iter().min().copied(), counted.iter().max().copied());
        assert!(
            Some(recorded[name]) >= least && Some(recorded[name]) <= most,
            "{program}: {name}: recorded {}, counted {counted:?}",
            recorded[name]
        );
    }
    assert_eq!((trace.quality.unknown_frees, trace.quality.events_lost), (0, 0), "{program}");
    let [counted, recorded] = ["counted", "recorded"].map(|name| fs::read(printed(name)).expect("the program prints"));
    assert_eq!(counted, recorded, "{program}: its output is unchanged");
}

#[test]
fn python_is_counted_alike() {
    let python = "/usr/bin/python3";
    if !have(python) || !have("setarch") {
        return;
    }
    let dir = scratch();
    // Python lists the directory of its script, so the directory must contain the same files in every run.
    let jobs = scratch();
    let job = jobs.path().join("job.py");
    let text = "import json\n\
                table = [{'name': 'n%d' % i, 'values': list(range(i % 50)), 'half': i / 2} for i in range(3000)]\n\
                text = json.dumps(table)\n\
                print(len(text), sum(len(row['values']) for row in json.loads(text)))\n";
    fs::write(&job, text).expect("the job");
    check(dir.path(), &format!("env PYTHONMALLOC=malloc {python} {}", job.display()));
}

#[test]
fn sqlite_is_counted_alike() {
    if !have("sqlite3") || !have("setarch") {
        return;
    }
    let dir = scratch();
    let job = dir.path().join("job.sql");
    let text = "create table t(a integer primary key, b text);\n\
                with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)\n\
                insert into t select i, printf('%d-%d', i, i * i) from n;\n\
                create index tb on t(b);\n\
                select count(*), max(b) from t where b like '1%';\n";
    fs::write(&job, text).expect("the job");
    check(dir.path(), &format!("sqlite3 :memory: '.read {}'", job.display()));
}
