//! The order of events across threads that free and resize each other's blocks. Each recorded free or resize must refer
//! to the block that the program itself logged. The test reads only the CSV form, with its own reader. Threads also
//! begin and end, so that the clock is read at every call in some phases and at every 16th call in others.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use hksim_record::{Exit, Options, RecordedTrace, record};
use hksim_trace::export::{Kind, export};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::support::{LIBRARIES, compile, events, scratch};

const THREADS: [usize; 3] = [2, 4, 16];
/// Number of steps of all threads together, of two to four calls each.
const STEPS: usize = 60_000;
/// Default number of recordings per test.
const RUNS: u64 = 1;
const RUNS_VARIABLE: &str = "HKSIM_HANDOVER_RUNS";
/// A thread's first call requests this size plus the thread's number.
const FIRST_SIZE: u64 = 1_000_003;

/// How a block began or ended, according to the program's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Made,
    Resized,
    ResizedAway,
    Freed,
}

/// One call. A call that ends a block has 0 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    what: What,
    serial: u64,
    bytes: u64,
}

/// The calls of each thread, as the program logged them.
fn logged(log: &Path, threads: usize) -> Vec<Vec<Call>> {
    const ENTRY_BYTES: usize = 24;
    let bytes = fs::read(log).expect("the program's log");
    let calls = |part: &[u8]| {
        let mut calls = Vec::new();
        for entry in part.chunks_exact(ENTRY_BYTES) {
            let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
            let what = match word(0) {
                0 => break,
                1 => What::Made,
                2 => What::Resized,
                3 => What::ResizedAway,
                4 => What::Freed,
                other => panic!("the log has a call numbered {other}"),
            };
            calls.push(Call { what, serial: word(8), bytes: word(16) });
        }
        calls
    };
    bytes.chunks_exact(bytes.len() / threads).map(calls).collect()
}

/// The trace as text, one event per line.
fn csv(trace: &RecordedTrace) -> String {
    let mut reader = TraceReader::open(&trace.path).expect("a readable trace");
    let mut text = Vec::new();
    export(&mut reader, Kind::Csv, Path::new("text"), &mut text).expect("it can be exported");
    String::from_utf8(text).expect("UTF-8")
}

/// The columns of a line of CSV.
struct Columns<'a> {
    names: Vec<&'a str>,
}

impl Columns<'_> {
    fn cells<'b>(&self, line: &'b str) -> Vec<&'b str> {
        line.splitn(self.names.len(), ',').collect()
    }

    fn at(&self, name: &str) -> usize {
        self.names.iter().position(|column| *column == name).expect("a known column")
    }
}

/// Maps threads to workers. Each worker allocates a block whose size contains its number.
fn workers_of(text: &str, workers: usize) -> HashMap<u64, usize> {
    let mut lines = text.lines();
    let columns = Columns { names: lines.next().expect("a first line").split(',').collect() };
    let (thread, op, size) = (columns.at("thread"), columns.at("op"), columns.at("size"));
    let told = lines.filter_map(|line| {
        let cells = columns.cells(line);
        let worker = cells[size].parse::<u64>().ok()?.checked_sub(FIRST_SIZE).filter(|_| cells[op] == "alloc")?;
        (worker < workers as u64).then_some((cells[thread].parse().ok()?, worker as usize))
    });
    told.collect()
}

/// Whether the program itself allocates blocks of this size; the C library uses others.
fn is_logged(bytes: u64) -> bool {
    bytes >= FIRST_SIZE || (bytes.is_power_of_two() && (32..=1024).contains(&bytes))
}

/// Tracks objects through the text and compares each worker's calls with its log. Returns the number of calls compared.
fn compare(text: &str, logs: &[Vec<Call>], place: &str) -> usize {
    let worker_of = workers_of(text, logs.len());
    let mut lines = text.lines();
    let columns = Columns { names: lines.next().expect("a first line").split(',').collect() };
    let (thread, op) = (columns.at("thread"), columns.at("op"));
    let (object, size) = (columns.at("object"), columns.at("size"));
    let mut serial_of: HashMap<u64, u64> = HashMap::new();
    let mut foreign: HashSet<u64> = HashSet::new();
    let mut compared = vec![0; logs.len()];
    for line in lines {
        let cells = columns.cells(line);
        let number = |at: usize| cells[at].parse::<u64>().unwrap_or_default();
        let what = match cells[op] {
            "alloc" => What::Made,
            "realloc" => What::Resized,
            "realloc-free" => What::ResizedAway,
            "free" => What::Freed,
            "header" | "footer" | "thread-start" | "thread-exit" | "free-null" => continue,
            other => panic!("{place}: no worker called {other}: {line}"),
        };
        if what == What::Made && !is_logged(number(size)) {
            foreign.insert(number(object));
            continue;
        }
        if foreign.contains(&number(object)) {
            // The object's number may be reused after its free.
            if matches!(what, What::Freed | What::ResizedAway | What::Made) {
                foreign.remove(&number(object));
            }
            if what != What::Made {
                continue;
            }
        }
        let Some(&worker) = worker_of.get(&number(thread)) else {
            serial_of.remove(&number(object));
            continue;
        };
        let at = compared[worker];
        let expected =
            *logs[worker].get(at).unwrap_or_else(|| panic!("{place}: worker {worker} made {at} calls: {line}"));
        if what == What::Made {
            serial_of.insert(number(object), expected.serial);
        }
        let serial = serial_of.get(&number(object)).copied().unwrap_or_default();
        assert_eq!(Call { what, serial, bytes: number(size) }, expected, "{place}: worker {worker}, call {at}: {line}");
        if matches!(what, What::Freed | What::ResizedAway) {
            serial_of.remove(&number(object));
        }
        compared[worker] += 1;
    }
    let lengths: Vec<usize> = logs.iter().map(Vec::len).collect();
    assert_eq!(compared, lengths, "{place}: calls are missing from the trace");
    compared.iter().sum()
}

/// A program whose threads pass blocks to each other, and its arguments.
struct Program {
    path: PathBuf,
    /// Number of threads.
    threads: usize,
    /// Number of steps of each thread.
    steps: usize,
    /// Part of the path of its allocator.
    allocator: &'static str,
}

impl Program {
    /// Records the program, compares the trace with the log, and returns the trace.
    fn check_once(&self, dir: &Path, environment: &[&str], seed: u64) -> RecordedTrace {
        let &Self { ref path, threads, steps, allocator } = self;
        let place = format!("{allocator} {environment:?}, {threads} threads, seed {seed}");
        let log = dir.join("log");
        let options = Options { output: dir.join("app.hkt"), ..Options::default() };
        let mut words: Vec<OsString> = vec!["env".into()];
        words.extend(environment.iter().map(OsString::from));
        words.extend([path.into(), log.as_os_str().into()]);
        words.extend([threads.to_string(), steps.to_string(), seed.to_string()].map(OsString::from));
        let report = record(&options, &words).unwrap_or_else(|why| panic!("{place}: {why}"));
        assert_eq!(report.exit, Some(Exit::Code(0)), "{place}");
        let own = path.to_string_lossy();
        let trace = report.traces.into_iter().find(|trace| trace.command.first().is_some_and(|word| *word == own));
        let trace = trace.expect("the program's trace");
        let served = trace.allocator.as_ref().expect("the allocator is known").to_string_lossy();
        assert!(served.contains(allocator), "{place}: served by {served}");
        let compared = compare(&csv(&trace), &logged(&log, threads), &place);
        assert!(compared > 2 * steps * threads.min(3), "{place}: {compared} calls");
        let quality = trace.quality;
        assert_eq!(
            (quality.unknown_frees, quality.reuse_repaired, quality.events_lost),
            (0, 0, 0),
            "{place}: {quality:?}"
        );
        let header = TraceReader::open(&trace.path).expect("a readable trace").footer().quality;
        assert_eq!(header, quality, "{place}: the file has the counts of repairs");
        eprintln!("{place}: {compared} calls as logged; {} events waited for another thread's", quality.parked);
        trace
    }
}

fn runs() -> u64 {
    env::var(RUNS_VARIABLE).map_or(RUNS, |runs| runs.parse().expect("a number of runs"))
}

/// Compiler arguments that link an allocator; `None` if it is not installed.
fn linked(library: Option<&str>) -> Option<Vec<String>> {
    let Some(path) = library.map(|library| Path::new(LIBRARIES).join(library)) else {
        return Some(Vec::new());
    };
    if !path.exists() {
        eprintln!("skipped: {} is not installed", path.display());
        return None;
    }
    Some(vec!["-Wl,--no-as-needed".to_string(), path.to_string_lossy().into_owned()])
}

fn check(allocator: &'static str, library: Option<&str>, environments: &[&[&str]]) {
    let Some(flags) = linked(library) else {
        return;
    };
    let dir = scratch();
    let path = compile(dir.path(), "handover", &flags.iter().map(String::as_str).collect::<Vec<_>>());
    for seed in 0..runs() {
        for environment in environments {
            for threads in THREADS {
                let program = Program { path: path.clone(), threads, steps: STEPS / threads, allocator };
                program.check_once(dir.path(), environment, seed);
            }
        }
    }
}

/// Number of calls per distinct time in the last phase, after all workers have ended.
fn calls_of_each_time(trace: &RecordedTrace) -> f64 {
    const LAST: usize = 4_000;
    let events = events(trace);
    let last = &events[events.len() - LAST..];
    LAST as f64 / last.iter().map(|event| event.time_ns).collect::<BTreeSet<_>>().len() as f64
}

/// Workers begin and end while the main thread works. At each beginning and end, other workers may run or not.
fn check_changes(allocator: &'static str, library: Option<&str>, environments: &[&[&str]]) {
    /// More steps than a buffer's fill has events. A thread checks at the end of a fill whether it is the only one.
    const ALONE_STEPS: usize = 16_000;
    let Some(flags) = linked(library) else {
        return;
    };
    let dir = scratch();
    let path = compile(dir.path(), "changeover", &flags.iter().map(String::as_str).collect::<Vec<_>>());
    for seed in 0..runs() {
        for environment in environments {
            let program = Program { path: path.clone(), threads: 16, steps: ALONE_STEPS, allocator };
            let trace = program.check_once(dir.path(), environment, seed);
            let shared = calls_of_each_time(&trace);
            // The value would be 1 if every call read the clock. A resizing call always reads the clock, and so does
            // the next call on the slow path. With this program's mix of calls, about 3 calls share a reading.
            assert!(shared > 2.0, "{allocator}: {shared} calls for each reading when all others have ended");
        }
    }
}

#[test]
fn threads_that_begin_and_end_under_glibc_keep_the_order() {
    check_changes("libc", None, &[&[], &["GLIBC_TUNABLES=glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0"]]);
}

#[test]
fn threads_that_begin_and_end_under_jemalloc_keep_the_order() {
    check_changes("jemalloc", Some("libjemalloc.so.2"), &[&["MALLOC_CONF=narenas:1,tcache:false"]]);
}

#[test]
fn threads_that_begin_and_end_under_mimalloc_keep_the_order() {
    check_changes("mimalloc", Some("libmimalloc.so.2.0"), &[&[]]);
}

/// Runs with glibc's default settings, and with one heap without caches, where another thread can reuse a freed address
/// immediately.
#[test]
fn blocks_that_change_hands_under_glibc_keep_their_identity() {
    check("libc", None, &[&[], &["GLIBC_TUNABLES=glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0"]]);
}

#[test]
fn blocks_that_change_hands_under_jemalloc_keep_their_identity() {
    check("jemalloc", Some("libjemalloc.so.2"), &[&[], &["MALLOC_CONF=narenas:1,tcache:false"]]);
}

#[test]
fn blocks_that_change_hands_under_mimalloc_keep_their_identity() {
    check("mimalloc", Some("libmimalloc.so.2.0"), &[&[]]);
}

#[test]
fn blocks_that_change_hands_under_tcmalloc_keep_their_identity() {
    check("tcmalloc", Some("libtcmalloc_minimal.so.4"), &[&[]]);
}
