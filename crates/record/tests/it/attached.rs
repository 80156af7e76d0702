//! Recordings of programs that run already: every call from the beginning on is recorded, and the program is afterwards
//! as it was.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use hksim_record::control::{Control, EndReason};
use hksim_record::{Options, RecordError, RecordReport, attach_watched, recover};
use hksim_trace::event::{Event, Op};
use hksim_trace::header::Origin;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::support::{compile, events, have, scratch};

/// Longest time to wait for a process on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What a recorder of its own says when its recording has begun.
const BEGUN: &str = "the recording has begun";
/// Blocks that the program allocates before it is recorded.
const OLD_BLOCKS: u64 = 64;

/// Waits until `is_so`.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        sleep(Duration::from_millis(2));
    }
}

/// `attached.c`, running.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(dir: &Path, flags: &[&str]) -> Self {
        let program = compile(dir, "attached", flags);
        let plugin = compile(dir, "attached_plugin", &["-shared", "-fPIC"]);
        Self::of(Command::new(program).arg(plugin))
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

    /// Sends a command; returns the hash in the answer. All results within the program are right.
    fn ask(&mut self, command: &str) -> u64 {
        self.tell(command);
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        let (failures, hash) = line.trim().split_once(' ').expect("two numbers");
        assert_eq!(failures, "0", "{command}");
        hash.parse().expect("a number")
    }

    /// Sends a command that it does not answer.
    fn tell(&mut self, command: &str) {
        // In one piece: the program answers each piece that it reads.
        self.input.write_all(format!("{command}\n").as_bytes()).expect("it reads");
    }

    /// A hash of all slots, once all functions that the program uses are looked up.
    fn slots(&mut self) -> u64 {
        // The second time, threads get stacks of threads that have ended, which takes other functions.
        for command in ["t 3", "t 3", "p 1", "g"] {
            self.ask(command);
        }
        self.ask("g")
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
        line.trim_start_matches(':').split_whitespace().next().expect("a number").parse().expect("a number")
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count()
    }

    fn has_log(&self) -> bool {
        fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("it runs").contains(".spool")
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().expect("it ends").success());
    }
}

/// A recording of a running process, in a thread of this test.
struct Recording {
    pid: u32,
    recording: JoinHandle<Result<RecordReport, RecordError>>,
}

impl Recording {
    /// Returns when the process records.
    fn begin(dir: &Path, pid: u32, options: Options) -> Self {
        let options = Options { output: dir.join("app.hkt"), ..options };
        let (begun, has_begun) = channel();
        let recording = spawn(move || {
            attach_watched(&options, pid, &mut |_| {
                let _ = begun.send(());
            })
        });
        // An error of the recorder closes the channel; it is reported at the end.
        let _ = has_begun.recv_timeout(TIMEOUT);
        Self { pid, recording }
    }

    fn end(self) -> RecordReport {
        if let Ok(control) = Control::of_process(self.pid) {
            control.end(EndReason::Request).expect("the session");
        }
        self.recording.join().expect("no panic").unwrap_or_else(|why| panic!("{why}"))
    }
}

/// Number of calls, by function and size, of the sizes that only the program's counted calls have.
fn counted(events: &[Event]) -> BTreeMap<(&'static str, u64), u64> {
    let mut counts = BTreeMap::new();
    for event in events {
        let key = match event.op {
            Op::Alloc { size, align_log2, .. } if align_log2 > 0 => ("aligned", size),
            Op::Alloc { size, .. } => ("allocated", size),
            Op::Realloc { size, .. } => ("resized", size),
            Op::ReallocUnknown { size, .. } => ("resized", size),
            Op::UsableSize { .. } => ("usable", 0),
            _ => continue,
        };
        if key.0 == "usable" || key.1 > 1000 {
            *counts.entry(key).or_default() += 1;
        }
    }
    counts
}

/// The calls of so many rounds of `work` in `attached.c`.
fn of_rounds(rounds: u64) -> BTreeMap<(&'static str, u64), u64> {
    let calls = [
        ("allocated", 1077),
        ("allocated", 3 * 1078),
        ("resized", 8079),
        ("aligned", 1080),
        ("aligned", 1152),
        ("aligned", 1082),
        ("usable", 0),
    ];
    calls.map(|call| (call, rounds)).into()
}

fn scale() -> u32 {
    std::env::var("HKSIM_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

#[test]
fn all_calls_from_the_beginning_on_are_recorded() {
    for flags in [&["-Wl,-z,lazy"][..], &["-Wl,-z,now"], &["-no-pie", "-fno-pie", "-Wl,-z,lazy"], &["-fno-plt"]] {
        let dir = scratch();
        let mut program = Program::start(dir.path(), flags);
        let before = program.slots();
        let recording = Recording::begin(dir.path(), program.pid(), Options::default());
        program.ask("n 700");
        program.ask("w");
        program.ask("t 3");
        program.ask("p 50");
        program.ask("o 64");
        let report = recording.end();
        assert_eq!(program.ask("g"), before, "{flags:?}: all slots are as before");
        let trace = &report.traces[0];
        let events = events(trace);
        let mut expected = of_rounds(700 * 4);
        // The module's function, but not its constructor, which runs before its slots can be changed; blocks from
        // before that were resized.
        expected.extend([(("allocated", 1093), 50), (("resized", 1091), OLD_BLOCKS / 2)]);
        let mut found = counted(&events);
        // What threads and modules need is not counted.
        found.retain(|call, _| expected.contains_key(call));
        assert_eq!(found, expected, "{flags:?}");
        assert_eq!(trace.quality.events_lost, 0);
        // The first call that is seen may free a block that an unseen call allocated.
        let unknown = trace.quality.unknown_frees;
        assert!((OLD_BLOCKS..=OLD_BLOCKS + 1).contains(&unknown), "{flags:?}: {unknown}");
        let header = TraceReader::open(&trace.path).expect("a trace").header().clone();
        assert!(matches!(header.origin, Origin::Recorded { attached: true, .. }), "{header:?}");
        let attached = report.attached.expect("attached");
        assert!(attached.restored && attached.pid == program.pid(), "{attached:?}");
        program.end();
    }
}

/// The trace ends with the program's memory, and the report says that the rest is missing.
#[test]
fn a_program_that_the_process_executes_is_missed_and_told() {
    let dir = scratch();
    let mut program = Program::start(dir.path(), &[]);
    let options = Options { duration: Some(Duration::from_millis(1500)), ..Options::default() };
    let recording = Recording::begin(dir.path(), program.pid(), options);
    program.ask("n 100");
    program.ask("w");
    program.tell("x");
    // No session of its own any more: the recording ends at its duration.
    let report = recording.recording.join().expect("no panic").unwrap_or_else(|why| panic!("{why}"));
    program.child.kill().expect("it runs on");
    program.child.wait().expect("it ends");
    let attached = report.attached.expect("attached");
    assert!(attached.executed, "{attached:?}");
    assert_eq!(counted(&events(&report.traces[0]))[&("allocated", 1077)], 100);
}

#[test]
fn forked_children_are_recorded() {
    let dir = scratch();
    let mut program = Program::start(dir.path(), &[]);
    let recording = Recording::begin(dir.path(), program.pid(), Options::default());
    for _ in 0..3 {
        program.ask("f 200");
    }
    let report = recording.end();
    program.end();
    let children: Vec<_> = report.traces.iter().filter(|trace| trace.forked).collect();
    assert_eq!(children.len(), 3);
    for child in children {
        assert_eq!(counted(&events(child)), [(("allocated", 1090), 200)].into());
    }
}

#[test]
fn call_sites_are_recorded_twice() {
    let dir = scratch();
    let mut program = Program::start(dir.path(), &[]);
    program.ask("n 100");
    for _ in 0..2 {
        let recording =
            Recording::begin(dir.path(), program.pid(), Options { stack_depth: Some(8), ..Options::default() });
        program.ask("w");
        let report = recording.end();
        let events = events(&report.traces[0]);
        let of_work = |event: &&Event| matches!(event.op, Op::Alloc { size: 1077, .. });
        let reader = TraceReader::open(&report.traces[0].path).expect("a trace");
        let sites = &reader.footer().sites;
        assert!(!sites.is_empty() && report.traces[0].quality.sites_lost == 0);
        assert_eq!(events.iter().filter(of_work).count(), 100);
        program.ask("g");
    }
    program.end();
}

#[test]
fn many_recordings_leave_nothing() {
    let dir = scratch();
    let mut program = Program::start(dir.path(), &["-Wl,-z,lazy"]);
    program.ask("n 50");
    program.ask("t 3");
    let slots = program.slots();
    let (descriptors, threads) = (program.descriptors(), program.status("Threads"));
    let mut resident = Vec::new();
    for round in 0..20 * scale().min(10) {
        let recording = Recording::begin(dir.path(), program.pid(), Options::default());
        program.ask("t 2");
        program.ask("w");
        let report = recording.end();
        let mut found = counted(&events(&report.traces[0]));
        found.retain(|call, _| of_rounds(1).contains_key(call));
        assert_eq!(found, of_rounds(150), "round {round}");
        wait_until("it leaves the recording", || !program.has_log());
        assert_eq!(program.ask("g"), slots, "round {round}: all slots are as before");
        assert_eq!((program.descriptors(), program.status("Threads")), (descriptors, threads), "round {round}");
        resident.push(program.status("VmRSS"));
    }
    // Pages of the object and of the heap are used for the first time in the first rounds.
    let growth_kib = resident[resident.len() - 1].saturating_sub(resident[4]);
    assert!(growth_kib <= 256, "resident KiB after each round: {resident:?}");
    program.end();
}

#[test]
fn a_process_without_calls_is_left_as_it_was() {
    let dir = scratch();
    let mut program = Program::start(dir.path(), &[]);
    program.ask("i 1");
    let slots = program.slots();
    let options = Options {
        output: dir.path().join("app.hkt"),
        duration: Some(Duration::from_millis(300)),
        ..Options::default()
    };
    let why = attach_watched(&options, program.pid(), &mut |_| {}).expect_err("no call").to_string();
    assert!(why.contains("called no allocator function"), "{why}");
    assert_eq!(program.ask("g"), slots);
    program.ask("n 10");
    // With a call it is recorded.
    let recording = spawn(move || attach_watched(&options, program.pid(), &mut |_| {}).map(|report| (report, program)));
    sleep(Duration::from_millis(100));
    match recording.join().expect("no panic") {
        Ok(_) => panic!("it makes no call"),
        Err(why) => assert!(why.to_string().contains("called no allocator function"), "{why}"),
    }
}

/// Threads may still come to the instructions of the first recorder, so its memory stays. The others need no more.
#[test]
fn many_recorders_of_a_process_without_calls_need_the_memory_of_one() {
    let dir = scratch();
    let mut program = Program::start(dir.path(), &[]);
    program.ask("i 1");
    let slots = program.slots();
    let options =
        Options { output: dir.path().join("app.hkt"), duration: Some(Duration::from_millis(20)), ..Options::default() };
    let mut mapped_kib = Vec::new();
    for _ in 0..5 {
        let why = attach_watched(&options, program.pid(), &mut |_| {}).expect_err("no call").to_string();
        assert!(why.contains("called no allocator function"), "{why}");
        mapped_kib.push(program.status("VmSize"));
    }
    assert_eq!(mapped_kib, [mapped_kib[0]; 5]);
    assert_eq!(program.ask("g"), slots);
    program.end();
}

#[test]
fn a_recorder_that_was_killed_before_the_first_call_is_no_obstacle() {
    let dir = scratch();
    let mut program = Program::start(dir.path(), &[]);
    program.ask("i 1");
    let slots = program.slots();
    let mut recorder = recorder_process(dir.path(), program.pid());
    wait_until("it redirects the calls", || program.ask("g") != slots);
    let options =
        Options { output: dir.path().join("app.hkt"), duration: Some(Duration::from_millis(20)), ..Options::default() };
    let attach = |pid| attach_watched(&options, pid, &mut |_| {}).expect_err("no call").to_string();
    let why = attach(program.pid());
    assert!(why.contains("another hksim record waits"), "{why}");
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    let mapped_kib = program.status("VmSize");
    let why = attach(program.pid());
    assert!(why.contains("called no allocator function"), "{why}");
    assert_eq!((program.ask("g"), program.status("VmSize")), (slots, mapped_kib));
    program.ask("n 100");
    program.ask("i 0");
    let recording = Recording::begin(dir.path(), program.pid(), Options::default());
    program.ask("w");
    assert_eq!(counted(&events(&recording.end().traces[0]))[&("allocated", 1077)], 100);
    assert_eq!(program.ask("g"), slots);
    program.end();
}

#[test]
fn a_program_leaves_the_recording_of_a_dead_recorder() {
    let dir = scratch();
    let mut program = Program::start(dir.path(), &[]);
    let slots = program.slots();
    let mut recorder = recorder_process(dir.path(), program.pid());
    let said = BufReader::new(recorder.stdout.take().expect("a pipe"));
    assert!(said.lines().any(|line| line.expect("text").contains(BEGUN)), "it records");
    program.ask("n 300");
    program.ask("w");
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    wait_until("it leaves", || !program.has_log());
    assert_eq!(program.ask("g"), slots);
    let session = fs::read_dir(dir.path()).expect("a folder").flatten().map(|entry| entry.path());
    let session: Vec<PathBuf> = session.filter(|path| path.to_string_lossy().contains(".recording-")).collect();
    let report = recover(&session[0]).expect("recoverable");
    let mut found = counted(&events(&report.traces[0]));
    found.retain(|call, _| of_rounds(1).contains_key(call));
    assert_eq!(found, of_rounds(300));
    // The next recorder uses the object again.
    let recording = Recording::begin(dir.path(), program.pid(), Options::default());
    program.ask("w");
    assert_eq!(counted(&events(&recording.end().traces[0]))[&("allocated", 1077)], 300);
    program.end();
}

/// This test's program, as a recorder that can be killed.
fn recorder_process(dir: &Path, pid: u32) -> Child {
    let test = std::env::current_exe().expect("this program");
    let mut command = Command::new(test);
    command.args(["--exact", "attached::is_a_recorder", "--ignored", "--nocapture"]);
    command.env("HKSIM_TEST_ATTACH", format!("{pid} {}", dir.join("dead.hkt").display()));
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts")
}

#[test]
#[ignore = "a part of another test, which runs it as a process"]
fn is_a_recorder() {
    let Ok(what) = std::env::var("HKSIM_TEST_ATTACH") else { return };
    let (pid, output) = what.split_once(' ').expect("two words");
    let options = Options { output: output.into(), ..Options::default() };
    // Only the first time: nobody reads the rest.
    let mut begun = Some(BEGUN);
    let show = &mut |_: &_| begun.take().into_iter().for_each(|begun| println!("{begun}"));
    attach_watched(&options, pid.parse().expect("a number"), show).expect("a recording");
}

#[test]
fn a_process_in_other_namespaces_is_recorded() {
    let dir = scratch();
    // SAFETY: no arguments.
    if !have("unshare") || !have("mount") || unsafe { libc::geteuid() } != 0 {
        return println!("skipped: other namespaces need root");
    }
    // The program sees another /tmp.
    let outside = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let program = compile(outside.path(), "attached", &[]);
    let script = format!("mount -t tmpfs none /tmp && exec {}", program.display());
    let mut command = Command::new("unshare");
    let mut program = Program::of(command.args(["--pid", "--mount", "--fork", "--mount-proc", "sh", "-c", &script]));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.pid())).expect("it runs");
    let inside: u32 = children.trim().parse().expect("one child");
    program.ask("n 100");
    let recording = Recording::begin(dir.path(), inside, Options::default());
    program.ask("w");
    let report = recording.end();
    assert_eq!(counted(&events(&report.traces[0]))[&("allocated", 1077)], 100);
    let left: Vec<_> = fs::read_dir(format!("/proc/{inside}/root/tmp")).expect("its files").flatten().collect();
    assert!(left.iter().all(|entry| entry.file_name().to_string_lossy().starts_with("hksim-record-")), "{left:?}");
    program.end();
}

#[test]
fn what_cannot_be_recorded_says_why() {
    let dir = scratch();
    let options = Options { output: dir.path().join("app.hkt"), ..Options::default() };
    let why = |pid: u32| attach_watched(&options, pid, &mut |_| {}).expect_err("refused").to_string();
    assert!(why(std::process::id()).contains("hksim itself"));
    assert!(why(4_194_303).contains("no such process"));
    assert!(why(2).contains("kernel thread") || why(2).contains("no such process"));
    let started = |program: &Path| {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts")
    };
    let mut zombie = Command::new("true").spawn().expect("it starts");
    sleep(Duration::from_millis(200));
    assert!(why(zombie.id()).contains("zombie"));
    zombie.wait().expect("it ends");
    let mut fixed = started(&compile(dir.path(), "attached", &["-static"]));
    sleep(Duration::from_millis(100));
    assert!(why(fixed.id()).contains("statically linked"), "{}", why(fixed.id()));
    fixed.kill().and_then(|()| fixed.wait()).expect("it ends");
    let mut program = Program::start(dir.path(), &[]);
    let stopped = Command::new("kill").args(["-STOP", &program.pid().to_string()]).status();
    assert!(stopped.is_ok_and(|status| status.success()));
    let state = |pid: u32| fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    wait_until("it stops", || state(program.pid()).contains("State:\tT"));
    assert!(why(program.pid()).contains("is stopped"));
    let _ = Command::new("kill").args(["-CONT", &program.pid().to_string()]).status();
    program.ask("n 1");
    let recording = Recording::begin(dir.path(), program.pid(), Options::default());
    assert!(why(program.pid()).contains("another hksim record"), "{}", why(program.pid()));
    recording.end();
    program.end();
}
