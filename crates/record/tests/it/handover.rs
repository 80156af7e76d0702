//! Order across threads that free and resize each other's blocks: each end of a block is the end of the very block that
//! the program itself says it ended. Read from the CSV form alone, by a reader of this file's own.

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use hksim_record::{Exit, Options, RecordedTrace, record};
use hksim_trace::export::{Kind, export};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::support::{LIBRARIES, compile, scratch};

const THREADS: [usize; 3] = [2, 4, 16];
/// Steps of all threads together, two to four calls each.
const STEPS: usize = 60_000;
/// How often each test records, where the environment does not say.
const RUNS: u64 = 1;
const RUNS_VARIABLE: &str = "HKSIM_HANDOVER_RUNS";
/// Size by which a thread's first call tells its number.
const FIRST_SIZE: u64 = 1_000_003;

/// What became of a block, as the program logs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Made,
    Resized,
    ResizedAway,
    Freed,
}

/// One call; bytes of a call that ends a block are 0.
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

/// The trace as text, one event a line.
fn csv(trace: &RecordedTrace) -> String {
    let mut reader = TraceReader::open(&trace.path).expect("a readable trace");
    let mut text = Vec::new();
    export(&mut reader, Kind::Csv, Path::new("text"), &mut text).expect("it can be exported");
    String::from_utf8(text).expect("UTF-8")
}

/// Follows objects through the text and compares each worker's calls with its log; the number of calls compared.
fn compare(text: &str, logs: &[Vec<Call>], place: &str) -> usize {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().expect("a first line").split(',').collect();
    let column = |name: &str| head.iter().position(|column| *column == name).expect("a known column");
    let (thread, op, object, size) = (column("thread"), column("op"), column("object"), column("size"));
    let mut serial_of: HashMap<u64, u64> = HashMap::new();
    let mut worker_of: HashMap<u64, usize> = HashMap::new();
    let mut compared = vec![0; logs.len()];
    for line in lines {
        let cells: Vec<&str> = line.splitn(head.len(), ',').collect();
        let number = |at: usize| cells[at].parse::<u64>().unwrap_or_default();
        let what = match cells[op] {
            "alloc" => What::Made,
            "realloc" => What::Resized,
            "realloc-free" => What::ResizedAway,
            "free" => What::Freed,
            "header" | "footer" | "thread-start" | "thread-exit" => continue,
            other => panic!("{place}: nobody called {other}: {line}"),
        };
        let first = number(size).checked_sub(FIRST_SIZE).filter(|&first| first < logs.len() as u64);
        if let (What::Made, Some(worker)) = (what, first) {
            worker_of.insert(number(thread), worker as usize);
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
    assert_eq!(compared, lengths, "{place}: all calls are in the trace");
    compared.iter().sum()
}

/// Records the program with so many threads, served by `allocator`, and compares trace and log.
fn check_once(program: &Path, dir: &Path, allocator: &str, environment: &[&str], threads: usize, seed: u64) {
    let place = format!("{allocator} {environment:?}, {threads} threads, seed {seed}");
    let log = dir.join("log");
    let options = Options { output: dir.join("app.hkt"), ..Options::default() };
    let mut words: Vec<OsString> = vec!["env".into()];
    words.extend(environment.iter().map(OsString::from));
    words.extend([program.into(), log.as_os_str().into()]);
    words.extend([threads.to_string(), (STEPS / threads).to_string(), seed.to_string()].map(OsString::from));
    let report = record(&options, &words).unwrap_or_else(|why| panic!("{place}: {why}"));
    assert_eq!(report.exit, Some(Exit::Code(0)), "{place}");
    let own = program.to_string_lossy();
    let trace = report.traces.iter().find(|trace| trace.command.first().is_some_and(|word| *word == own));
    let trace = trace.expect("the program's trace");
    let served = trace.allocator.as_ref().expect("the allocator is known").to_string_lossy();
    assert!(served.contains(allocator), "{place}: served by {served}");
    let compared = compare(&csv(trace), &logged(&log, threads), &place);
    assert!(compared > 2 * STEPS, "{place}: {compared} calls");
    let quality = trace.quality;
    assert_eq!((quality.unknown_frees, quality.reuse_repaired, quality.events_lost), (0, 0, 0), "{place}: {quality:?}");
    let header = TraceReader::open(&trace.path).expect("a readable trace").footer().quality;
    assert_eq!(header, quality, "{place}: the file says what was repaired");
    eprintln!("{place}: {compared} calls as logged; {} events waited for another thread's", quality.parked);
}

fn check(allocator: &str, library: Option<&str>, environments: &[&[&str]]) {
    let path = library.map(|library| Path::new(LIBRARIES).join(library));
    if let Some(path) = path.as_ref().filter(|path| !path.exists()) {
        return eprintln!("skipped: {} is not installed", path.display());
    }
    let dir = scratch();
    let linked = path.as_ref().map(|path| path.to_str().expect("UTF-8"));
    let flags: Vec<&str> = linked.map_or(Vec::new(), |path| vec!["-Wl,--no-as-needed", path]);
    let program = compile(dir.path(), "handover", &flags);
    let runs = env::var(RUNS_VARIABLE).map_or(RUNS, |runs| runs.parse().expect("a number of runs"));
    for seed in 0..runs {
        for environment in environments {
            for threads in THREADS {
                check_once(&program, dir.path(), allocator, environment, threads, seed);
            }
        }
    }
}

/// As it is, and with one heap without caches, so that a freed address is at once another thread's.
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
