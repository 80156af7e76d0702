//! The recorder and a running process: whom it refuses, and what it leaves behind.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hksim_linux_probe::attach_obstacle::AttachObstacle;
use hksim_memory_record::{
    AttachError, AttachOptions, HugePagesOfRunning, MemoryRecordError, attach, is_interrupted, recover,
};
use hksim_memory_trace::{Beginning, End, Op, PAGE_BYTES, PageAtStart};
use hksim_testkit::{Random, test_scale};
use tempfile::TempDir;

use crate::support::{operations, with_program};

/// `server.c`: answers lines while its threads map and unmap memory.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    answers: u64,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(program: &Path) -> Self {
        let mut child =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut server = Self { child, output, answers: 0 };
        server.answer();
        server
    }

    /// Asks the server; it counts its answers.
    fn answer(&mut self) {
        self.answers += 1;
        self.child.stdin.as_mut().expect("its input").write_all(b"?\n").expect("it runs");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        assert_eq!(line, format!("{}\n", self.answers));
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What must not change: threads, signal state, tracer, huge-page setting.
    fn state(&self) -> Vec<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a status");
        let keys = ["Threads:", "TracerPid:", "SigBlk:", "SigIgn:", "SigCgt:", "SigPnd:", "ShdPnd:", "THP_enabled:"];
        status.lines().filter(|line| keys.iter().any(|key| line.starts_with(key))).map(str::to_string).collect()
    }

    /// The mappings that its threads do not change.
    fn mappings(&self) -> Vec<String> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("maps");
        maps.lines().filter(|line| line.contains('/') || line.contains('[')).map(str::to_string).collect()
    }
}

fn options(output: PathBuf, huge_pages: HugePagesOfRunning) -> AttachOptions {
    AttachOptions { output, duration: None, huge_pages, stack_depth: None }
}

/// The error of an attempt to attach; `None`, with the reason printed, where events cannot be had anyway.
fn refusal(pid: u32) -> MemoryRecordError {
    let directory = TempDir::new().expect("a directory");
    let options = options(directory.path().join("a.hkm"), HugePagesOfRunning::Unchanged);
    let refused = attach(&options, pid, || {}, || true).expect_err("a refusal");
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0, "nothing is left");
    refused
}

#[test]
fn processes_that_cannot_be_recorded_are_refused_with_the_reason() {
    use AttachObstacle::{Itself, KernelThread, NoProcess, Traced, Zombie};
    let refused = |pid| match refusal(pid) {
        MemoryRecordError::Attach(AttachError::Process { why, .. }) => why,
        other => panic!("{other}"),
    };
    assert!(matches!(refused(std::process::id()), Itself));
    assert!(matches!(refused(4_194_305), NoProcess));
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        assert!(matches!(refused(2), KernelThread));
    }
    let mut ended = Command::new("true").spawn().expect("a program");
    while !fs::read_to_string(format!("/proc/{}/stat", ended.id())).expect("a child").contains(") Z ") {
        sleep(Duration::from_millis(1));
    }
    assert!(matches!(refused(ended.id()), Zombie));
    ended.wait().expect("a child");
    let mut child = Command::new("sleep").arg("100").spawn().expect("a program");
    let pid = child.id() as libc::pid_t;
    // SAFETY: numbers only, for this test's own child.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) }, 0, "{}", std::io::Error::last_os_error());
    match refused(child.id()) {
        Traced { tracer, .. } => assert!(Path::new(&format!("/proc/{tracer}")).exists()),
        other => panic!("{other}"),
    }
    child.kill().expect("a child");
    child.wait().expect("a child");
}

#[test]
fn attaching_and_detaching_leaves_a_server_as_it_was() {
    let Some((directory, program)) = with_program("server.c") else { return };
    let mut server = Server::start(&program);
    let before = (server.state(), server.mappings());
    for cycle in 0..20 * test_scale() {
        let huge_pages = [HugePagesOfRunning::Unchanged, HugePagesOfRunning::SwitchedOff][cycle as usize % 2];
        let options = options(directory.path().join("a.hkm"), huge_pages);
        match attach(&options, server.pid(), || {}, || true) {
            Ok(report) => {
                assert_eq!(report.files[0].end, End::Running);
                assert!(matches!(report.files[0].beginning, Beginning::Attached { stopped_ns, .. } if stopped_ns > 0));
            }
            Err(why @ MemoryRecordError::Attach(AttachError::NoEvents { .. })) => return eprintln!("skipped: {why}"),
            Err(why) => panic!("{why}"),
        }
        server.answer();
        assert_eq!((server.state(), server.mappings()), before, "cycle {cycle}");
    }
}

/// A process group that ends with this value.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: numbers only, for the group of this test's own child.
        unsafe { libc::kill(-(self.0.id() as libc::pid_t), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

/// Processes that fork without end make records faster than they are interpreted.
#[test]
fn a_recording_ends_though_its_processes_go_on() {
    // They end by themselves if this test does not.
    let script = "(sleep 60; kill -KILL 0) & for i in 1 2 3 4; do while :; do (:); done & done; wait";
    let mut command = Command::new("sh");
    let shell = Group(command.args(["-c", script]).process_group(0).spawn().expect("a shell"));
    let directory = TempDir::new().expect("a directory");
    let (begin, stopped) = (Instant::now(), Cell::new(None));
    let must_stop = || {
        let must = begin.elapsed() > Duration::from_secs(1);
        stopped.set(stopped.get().or(must.then(Instant::now)));
        must
    };
    let options = options(directory.path().join("a.hkm"), HugePagesOfRunning::Unchanged);
    match attach(&options, shell.0.id(), || {}, must_stop) {
        Ok(report) => assert!(report.files.len() > 100, "{} files", report.files.len()),
        Err(why @ MemoryRecordError::Attach(AttachError::NoEvents { .. })) => return eprintln!("skipped: {why}"),
        Err(why) => panic!("{why}"),
    }
    let took = stopped.get().expect("it was stopped").elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// Not a test of its own: the recorder of [`a_killed_recorder_leaves_nothing`].
#[test]
fn recorder_process() {
    let (Ok(pid), Ok(file)) = (std::env::var("HKSIM_ATTACH_PID"), std::env::var("HKSIM_ATTACH_FILE")) else { return };
    let pid: u32 = pid.parse().expect("a process");
    let huge_pages = [HugePagesOfRunning::Unchanged, HugePagesOfRunning::SwitchedOff][pid as usize % 2];
    let _ = attach(&options(file.into(), huge_pages), pid, || println!("attached"), || false);
}

/// The recorder of a process, as a process that can be killed.
fn recorder_of(pid: u32, file: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "attached::recorder_process", "--nocapture"])
        .envs([("HKSIM_ATTACH_PID", pid.to_string()), ("HKSIM_ATTACH_FILE", file.display().to_string())])
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test")
}

/// Also of a process that does nothing: what it had at the start is soon in the file.
#[test]
fn a_killed_recorder_loses_little() {
    let directory = TempDir::new().expect("a directory");
    let mut child = Command::new("sleep").arg("100").spawn().expect("a program");
    let mut recorder = recorder_of(child.id(), &directory.path().join("a.hkm"));
    let mut said = BufReader::new(recorder.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let attached = said.any(|line| line.contains("attached"));
    if attached {
        sleep(Duration::from_secs(3));
    }
    let _ = (recorder.kill(), recorder.wait(), child.kill(), child.wait());
    if !attached {
        return eprintln!("skipped: the process cannot be attached to");
    }
    let left = fs::read_dir(directory.path()).expect("a directory").flatten().map(|entry| entry.path());
    let left: Vec<PathBuf> = left.filter(|path| path.is_dir()).collect();
    let report = recover(&left[0], None).expect("a recording");
    let operations = operations(&report.files[0].path);
    assert!(operations.iter().any(|op| matches!(op, Op::PagesAtStart(_))), "{} operations", operations.len());
}

#[test]
fn a_killed_recorder_leaves_nothing() {
    let Some((directory, program)) = with_program("server.c") else { return };
    let seed = std::env::var("HKSIM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    for round in 0..10 * test_scale() {
        let mut server = Server::start(&program);
        let before = server.state();
        let file = directory.path().join(format!("{round}.hkm"));
        let mut recorder = recorder_of(server.pid(), &file);
        sleep(Duration::from_micros(random.below(250_000)));
        recorder.kill().expect("the recorder");
        recorder.wait().expect("the recorder");
        // The process that switches huge pages on again may need a moment.
        for _ in 0..5000 {
            if server.state() == before {
                break;
            }
            sleep(Duration::from_millis(1));
        }
        server.answer();
        assert_eq!(server.state(), before, "round {round}");
    }
    // What was written so far can be named.
    let left = fs::read_dir(directory.path()).expect("a directory").flatten().map(|entry| entry.path());
    for left in left.filter(|path| path.is_dir() && is_interrupted(path)) {
        let report = recover(&left, None).expect("a recording");
        assert!(report.is_recovered && report.files[0].beginning.is_attached());
        let _ = operations(&report.files[0].path);
    }
}

/// Which pages are given up is told for all of them, whatever their number, as smaps counts them; pages that were written
/// again look alike, and how many these are is told.
#[test]
fn pages_given_up_are_all_told() {
    let Some((directory, program)) = with_program("lazy.c") else { return };
    for (mib, way) in [("64", "all"), ("160", "all"), ("96", "half"), ("64", "written")] {
        let what = format!("{mib} MiB, {way}");
        let mut command = Command::new(&program);
        let mut child =
            command.args([mib, way]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let (first, end) = (numbers[0] / PAGE_BYTES, (numbers[0] + numbers[1]) / PAGE_BYTES);
        let (pages, lazy_by_smaps) = (end - first, (numbers[2] << 10) / PAGE_BYTES);
        let options = options(directory.path().join("a.hkm"), HugePagesOfRunning::Unchanged);
        let attached = attach(&options, child.id(), || {}, || true);
        drop(child.stdin.take());
        child.wait().expect("it ends");
        let report = match attached {
            Ok(report) => report,
            Err(why @ MemoryRecordError::Attach(AttachError::NoEvents { .. })) => return eprintln!("skipped: {why}"),
            Err(why) => panic!("{why}"),
        };
        let Beginning::Attached { lazy_unknown_bytes, .. } = report.files[0].beginning else { panic!("{report:?}") };
        let mut lazy = Vec::new();
        for op in operations(&report.files[0].path) {
            if let Op::PagesAtStart(start) = op
                && start.state == PageAtStart::SmallLazy
            {
                lazy.extend(start.pages.filter(|page| (first..end).contains(page)).map(|page| page - first));
            }
        }
        let known = lazy.len() as u64;
        // Some wait in the batch of a processor, and are marked between the program's look and the recorder's.
        let late = 64;
        match way {
            "written" => {
                assert!(lazy_by_smaps <= pages * 3 / 4 && known + late >= pages, "{what}: {known}");
                assert!((known - lazy_by_smaps).abs_diff(lazy_unknown_bytes / PAGE_BYTES) <= late, "{what}");
            }
            _ => {
                let given_up = if way == "half" { pages / 2 } else { pages };
                assert!(known <= given_up && known + late >= given_up, "{what}: {known} of {given_up}");
                assert!(known.abs_diff(lazy_by_smaps) <= late, "{what}: {known}, smaps {lazy_by_smaps}");
                assert!(way == "all" || lazy.iter().all(|page| page % 2 == 0), "{what}");
                assert!(lazy_unknown_bytes <= late * PAGE_BYTES, "{what}: {lazy_unknown_bytes}");
            }
        }
    }
}
