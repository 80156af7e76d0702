//! Recordings of named functions of running programs: calls equal the program's own counts.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use hksim_record::{Functions, RecordError, RecordReport, record_functions};
use hksim_trace::event::{AllocCall, Event, Op};
use hksim_trace::header::Origin;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::support::{compile, events, have, scratch};

/// Longest time to wait for a recording to begin on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// All functions of the program.
const ALL: &str = "own_malloc,own_calloc,own_realloc,own_free,own_posix_memalign,pool_get=malloc@2,pool_put=free@2";
/// Debian's jemalloc.
const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
/// Blocks that the program allocates before it is recorded.
const OLD_BLOCKS: u64 = 64;

fn can_probe() -> bool {
    // SAFETY: no arguments.
    let is_root = unsafe { libc::geteuid() } == 0;
    let has_source = Path::new("/sys/bus/event_source/devices/uprobe/type").exists();
    if !is_root || !has_source {
        println!("skipped: uprobes need root and a kernel that has them");
    }
    is_root && has_source
}

/// The counts of `own_allocator.c`: malloc, calloc, realloc, free, memalign, get, put, nested, rounds of calls of libc, rounds
/// of mappings.
type Counts = [u64; 10];

/// `own_allocator.c`, running.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(dir: &Path, flags: &[&str]) -> Self {
        Self::of(&mut Command::new(compile(dir, "own_allocator", flags)))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut program = Self { child, input, output: BufReader::new(output) };
        program.ask("n 1");
        program
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn ask(&mut self, command: &str) -> Counts {
        self.input.write_all(format!("{command}\n").as_bytes()).expect("it reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        let counts: Vec<u64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        counts.try_into().expect("all counts")
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().expect("it ends").success());
    }
}

/// A recording in a thread of this test, until the process `timer` ends it by SIGINT.
struct Recording(JoinHandle<Result<RecordReport, RecordError>>);

impl Recording {
    /// Returns when the functions are probed.
    fn begin(output: PathBuf, pid: u32, functions: &str) -> Self {
        let functions: Functions = functions.parse().expect("functions");
        let (begun, has_begun) = channel();
        let recording = spawn(move || {
            record_functions(&output, None, &functions, pid, &mut |_| {
                let _ = begun.send(());
            })
        });
        // An error of the recorder closes the channel; it is reported at the end.
        let _ = has_begun.recv_timeout(TIMEOUT);
        Self(recording)
    }

    fn end(self) -> RecordReport {
        if !self.0.is_finished() {
            // SAFETY: numbers only; the recorder's handler takes the signal.
            unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
        }
        self.0.join().expect("no panic").unwrap_or_else(|why| panic!("{why}"))
    }
}

/// Signals end all recordings of this process, so one test at a time has one.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn difference(after: Counts, before: Counts) -> Counts {
    std::array::from_fn(|index| after[index] - before[index])
}

/// The calls in a trace, in the order of [`Counts`], with `get` and `put` apart by size where they have one.
fn calls(events: &[Event]) -> [u64; 5] {
    let mut calls = [0; 5];
    for event in events {
        let index = match event.op {
            Op::Alloc { call: AllocCall::Malloc, .. } => 0,
            Op::Alloc { call: AllocCall::Calloc, .. } => 1,
            Op::Realloc { .. } | Op::ReallocUnknown { .. } => 2,
            Op::Free { .. } | Op::FreeNull | Op::FreeUnknown => 3,
            Op::Alloc { call: AllocCall::PosixMemalign, .. } => 4,
            Op::AllocFailed { call: AllocCall::PosixMemalign, .. } => 4,
            _ => continue,
        };
        calls[index] += 1;
    }
    calls
}

/// The program's own counts, as [`calls`].
fn expected([malloc, calloc, realloc, free, memalign, get, put, ..]: Counts) -> [u64; 5] {
    [malloc + get, calloc, realloc, free + put, memalign]
}

#[test]
fn calls_equal_the_programs_own_counts() {
    if !can_probe() {
        return;
    }
    let _alone = alone();
    for flags in [&["-static"][..], &["-static-pie", "-fPIE"], &[]] {
        let dir = scratch();
        let mut program = Program::start(dir.path(), flags);
        let before = program.ask("n 3");
        let recording = Recording::begin(dir.path().join("own.hkt"), program.pid(), ALL);
        program.ask("n 700");
        program.ask("t 4");
        let after = program.ask("o 64");
        let report = recording.end();
        let (trace, counts) = (&report.traces[0], difference(after, before));
        assert_eq!(counts[0], 2700, "{flags:?}");
        let events = events(trace);
        let (quality, probed) = (trace.quality, report.probed.expect("probed"));
        assert_eq!(calls(&events), expected(counts), "{flags:?}: {quality:?} {probed:?}");
        assert_eq!((quality.nested_calls, quality.unfinished_calls), (counts[7], 0), "{flags:?}");
        assert_eq!((quality.events_lost, quality.reuse_repaired), (0, 0), "{flags:?}");
        assert_eq!(quality.unknown_frees, OLD_BLOCKS, "{flags:?}: blocks from before");
        assert!(probed.call_cost_ns.is_finite() && probed.records_lost == 0 && probed.foreign_calls == 0, "{probed:?}");
        assert_eq!(probed.functions[5].calls, counts[5], "{flags:?}");
        let sizes =
            |bytes| events.iter().filter(|event| matches!(event.op, Op::Alloc { size, .. } if size == bytes)).count();
        assert_eq!([1077, 3 * 1078, 1080, 1082].map(sizes), [2700; 4], "{flags:?}");
        let header = TraceReader::open(&trace.path).expect("a trace").header().clone();
        assert!(matches!(header.origin, Origin::Recorded { attached: true, .. }), "{header:?}");
        program.end();
        let left = fs::read_dir(dir.path()).expect("a folder").count();
        assert_eq!(left, 2, "the program and the trace");
    }
}

#[test]
fn the_malloc_of_static_programs_and_of_musl_is_recorded() {
    if !can_probe() {
        return;
    }
    let _alone = alone();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/own_allocator.c");
    for (compiler, flag) in [("cc", "-static"), ("musl-gcc", "-static"), ("musl-gcc", "-dynamic"), ("cc", "preloaded")]
    {
        if !have(compiler) || flag == "preloaded" && !Path::new(JEMALLOC).exists() {
            println!("skipped: {compiler}, or libjemalloc2, is not installed");
            continue;
        }
        let dir = scratch();
        let path = dir.path().join("program");
        let mut build = Command::new(compiler);
        build.args(["-O1", "-g", "-fno-builtin", "-pthread"]).args((flag == "-static").then_some(flag));
        assert!(build.arg("-o").args([&path, &source]).status().expect("a compiler").success());
        let mut command = Command::new(&path);
        if flag == "preloaded" {
            // Two libraries define malloc: the one that the dynamic linker finds first is called.
            command.env("LD_PRELOAD", JEMALLOC);
        }
        let mut program = Program::of(&mut command);
        program.ask("k 1");
        let recording = Recording::begin(dir.path().join("own.hkt"), program.pid(), "malloc,calloc,realloc,free");
        program.ask("n 300");
        program.ask("t 4");
        let rounds = program.ask("f 100")[8];
        let report = recording.end();
        assert_eq!(rounds, 2400);
        let of_all: Vec<Event> = report.traces.iter().flat_map(events).collect();
        let count = |is_one: fn(&Op) -> bool| of_all.iter().filter(|event| is_one(&event.op)).count() as u64;
        let allocated = count(|op| matches!(op, Op::Alloc { size: 3077, call: AllocCall::Malloc, .. }));
        let zeroed = count(|op| matches!(op, Op::Alloc { size: 3279, call: AllocCall::Calloc, .. }));
        let resized = count(|op| matches!(op, Op::Realloc { size: 8179, .. }));
        let quality = report.traces[0].quality;
        assert_eq!([allocated, zeroed, resized], [rounds; 3], "{compiler} {flag}: {quality:?}");
        assert_eq!(quality.reuse_repaired, 0, "{compiler} {flag}: {quality:?}");
        program.end();
    }
}

#[test]
fn forked_children_have_traces_and_executed_programs_have_none() {
    if !can_probe() {
        return;
    }
    let _alone = alone();
    let dir = scratch();
    let mut program = Program::start(dir.path(), &["-static"]);
    let recording = Recording::begin(dir.path().join("own.hkt"), program.pid(), ALL);
    let before = program.ask("n 10");
    for _ in 0..3 {
        program.ask("f 200");
    }
    let after = program.ask("x 1");
    let report = recording.end();
    program.end();
    let children: Vec<_> = report.traces.iter().filter(|trace| trace.forked).collect();
    assert_eq!(children.len(), 3);
    let counts = difference(after, before);
    for child in children {
        let own: Counts = counts.map(|count| count / 3);
        assert_eq!(calls(&events(child)), expected(own));
        assert!(!child.still_running);
    }
    let events = events(&report.traces[0]);
    let forks = events.iter().filter(|event| matches!(event.op, Op::Fork { .. })).count();
    let ends = events.iter().filter(|event| matches!(event.op, Op::ForkEnd { outlives: false, .. })).count();
    assert_eq!((forks, ends), (4, 4));
}

#[test]
fn calls_that_do_not_return_are_counted() {
    if !can_probe() {
        return;
    }
    let _alone = alone();
    let dir = scratch();
    let mut program = Program::start(dir.path(), &["-static"]);
    let recording = Recording::begin(dir.path().join("own.hkt"), program.pid(), "own_malloc,own_free");
    let before = program.ask("n 5");
    program.ask("j 100");
    let after = program.ask("n 5");
    let report = recording.end();
    program.end();
    let trace = &report.traces[0];
    assert_eq!(difference(after, before)[0], 105);
    assert_eq!(trace.quality.unfinished_calls, 100);
    // What other functions do within is theirs: all mallocs that return are seen.
    let probed = report.probed.expect("probed");
    assert_eq!(probed.functions[0].calls, 10 + 100 + 10 * 4);
}

#[test]
fn other_processes_of_the_same_file_are_left_out() {
    if !can_probe() {
        return;
    }
    let _alone = alone();
    let dir = scratch();
    let mut program = Program::start(dir.path(), &["-static"]);
    let mut other = Program::of(&mut Command::new(dir.path().join("own_allocator")));
    let recording = Recording::begin(dir.path().join("own.hkt"), program.pid(), ALL);
    let (before, others_before) = (program.ask("n 1"), other.ask("n 1"));
    let (after, others_after) = (program.ask("n 50"), other.ask("n 20"));
    let report = recording.end();
    let probed = report.probed.expect("probed");
    let of_rounds = |counts: Counts| counts.iter().take(7).sum::<u64>() + counts[7];
    assert_eq!(probed.foreign_calls, of_rounds(difference(others_after, others_before)) / 20 * 21);
    let one_round = expected(difference(after, before).map(|count| count / 50));
    assert_eq!(calls(&events(&report.traces[0])), one_round.map(|count| count * 51));
    program.end();
    other.end();
}

#[test]
fn a_process_that_ends_ends_the_recording() {
    if !can_probe() {
        return;
    }
    let _alone = alone();
    let dir = scratch();
    let mut program = Program::start(dir.path(), &["-static"]);
    let recording = Recording::begin(dir.path().join("own.hkt"), program.pid(), ALL);
    program.ask("n 7");
    program.end();
    let began = Instant::now();
    while !recording.0.is_finished() && began.elapsed() < TIMEOUT {
        sleep(Duration::from_millis(5));
    }
    let report = recording.end();
    assert_eq!((report.end_reason, report.traces[0].still_running), (None, false));
    assert_eq!(calls(&events(&report.traces[0])), expected([7, 7, 7, 28, 14, 7, 7, 0, 0, 0]));
}

#[test]
fn what_cannot_be_probed_says_why() {
    if !can_probe() {
        return;
    }
    let _alone = alone();
    let dir = scratch();
    let output = dir.path().join("own.hkt");
    let why = |pid: u32, functions: &str| {
        let functions: Functions = functions.parse().expect("functions");
        let duration = Some(Duration::from_millis(200));
        record_functions(&output, duration, &functions, pid, &mut |_| {}).expect_err("refused").to_string()
    };
    let program = Program::start(dir.path(), &["-static"]);
    let said = why(program.pid(), "own_maloc=malloc");
    assert!(said.contains("no function own_maloc") && said.contains("did you mean own_malloc?"), "{said}");
    let said = why(program.pid(), "own_malloc,own_free");
    assert!(said.contains("called none of these functions in 0.2 s"), "{said}");
    program.end();
    let stripped = Program::start(dir.path(), &["-static", "-s"]);
    let said = why(stripped.pid(), "own_malloc");
    assert!(said.contains("no symbol table (stripped)"), "{said}");
    stripped.end();
    if have("go") {
        let source = dir.path().join("main.go");
        fs::write(&source, "package main\nimport \"time\"\nfunc main() { time.Sleep(time.Minute) }\n").expect("a file");
        let built = Command::new("go").args(["build", "-o"]).arg(dir.path().join("gopher")).arg(&source).status();
        assert!(built.expect("go").success());
        let mut gopher = Command::new(dir.path().join("gopher")).spawn().expect("it starts");
        for functions in ["malloc,free", "runtime.mallocgc=malloc"] {
            let said = why(gopher.id(), functions);
            assert!(said.contains("it is a Go program") && said.contains("--memory"), "{said}");
        }
        gopher.kill().and_then(|()| gopher.wait()).expect("it ends");
    }
    assert!(!output.exists());
}
