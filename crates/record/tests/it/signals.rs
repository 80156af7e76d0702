//! Signals to the recorder, and the death of the recorder.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hksim_record::{Exit, Options, RecordError, record, recover};
use hksim_testkit::Random;

use crate::support::{compile, logs_in, read, scratch};

const OUTPUT: &str = "HKSIM_TEST_OUTPUT";
const PROGRAM: &str = "HKSIM_TEST_PROGRAM";
/// The environment variable with the program's argument.
const ARGUMENT: &str = "HKSIM_TEST_ARGUMENT";
/// Number of rounds of a program that allocates until it is killed.
const FOR_EVER: &str = "100000000000";

/// Not a test: runs the recorder in a separate process, for tests that send signals to it.
#[test]
#[ignore = "started by the other tests of this file"]
fn as_recorder() {
    let (Some(output), Some(program)) = (env::var_os(OUTPUT), env::var_os(PROGRAM)) else {
        return;
    };
    let options = Options { output: output.into(), ..Options::default() };
    let argument = env::var_os(ARGUMENT).unwrap_or_else(|| FOR_EVER.into());
    let report = record(&options, &[program, argument]).expect("a recording");
    assert_eq!(report.exit, Some(Exit::Signal(libc::SIGTERM)));
}

/// Starts a recorder of `program`; the trace is `dir/app.hkt`.
pub fn recorder_of(dir: &Path, program: &Path, argument: &str) -> Child {
    Command::new(env::current_exe().expect("this test"))
        .args(["--exact", "signals::as_recorder", "--ignored", "--test-threads=1", "--quiet"])
        .env(OUTPUT, dir.join("app.hkt"))
        .env(PROGRAM, program)
        .env(ARGUMENT, argument)
        .spawn()
        .expect("the recorder starts")
}

fn start_recorder(dir: &Path) -> (Child, PathBuf) {
    let program = compile(dir, "rounds", &[]);
    let child = recorder_of(dir, &program, FOR_EVER);
    let session = wait_for(|| find_session(dir));
    wait_for(|| {
        fs::read_to_string(session.join("session.json")).ok().filter(|text| !text.contains("\"root_pid\": null"))
    });
    wait_for(|| log_bytes(&session).filter(|&bytes| bytes > 4 << 20));
    (child, session)
}

pub fn wait_for<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing came within a minute");
        sleep(Duration::from_millis(2));
    }
}

pub fn find_session(dir: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| path.to_string_lossy().contains(".app.hkt.recording-"))
}

fn log_bytes(session: &Path) -> Option<u64> {
    let entries = fs::read_dir(logs_in(session)).ok()?.flatten();
    entries.map(|entry| entry.metadata().ok().map(|data| data.len())).sum()
}

fn send(pid: u32, signal: i32) {
    // SAFETY: sends a signal to a child of this process, or to that child's child.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

#[test]
fn a_terminated_recorder_ends_the_program_and_writes_the_trace() {
    let dir = scratch();
    let (mut recorder, session) = start_recorder(dir.path());
    send(recorder.id(), libc::SIGTERM);
    assert!(recorder.wait().expect("it ends").success());
    assert!(read(&dir.path().join("app.hkt")).len() > 100_000);
    assert!(!session.exists(), "the session is removed");
}

#[test]
fn the_session_of_a_killed_recorder_can_be_recovered() {
    let dir = scratch();
    let (mut recorder, session) = start_recorder(dir.path());
    let info = fs::read_to_string(session.join("session.json")).expect("the session's own words");
    let pid = info.split("\"root_pid\": ").nth(1).and_then(|rest| rest.split(',').next()).expect("a process id");
    let program: u32 = pid.trim().parse().expect("a process id");
    send(recorder.id(), libc::SIGKILL);
    recorder.wait().expect("it ends");
    let before = log_bytes(&session);
    wait_for(|| (log_bytes(&session) > before).then_some(()));
    send(program, libc::SIGTERM);
    wait_for(|| {
        fs::read_to_string(format!("/proc/{program}/stat")).map_or(Some(()), |stat| stat.contains(") Z").then_some(()))
    });
    damaged_sessions_are_refused_or_read(&session);
    let report = recover(&session).expect("a recovered recording");
    assert_eq!(report.exit, None);
    assert!(report.unobserved.is_some(), "nobody observed which programs were executed");
    let trace = &report.traces[0];
    assert_eq!((trace.pid, trace.quality.unknown_frees, trace.quality.events_lost), (program, 0, 0));
    assert_eq!(read(&dir.path().join("app.hkt")).len() as u64, trace.events);
    assert!(!session.exists(), "the session is removed");
}

/// Damages copies of the session randomly. Each copy must be recovered, or be refused with a reason and kept.
fn damaged_sessions_are_refused_or_read(session: &Path) {
    let seed = 0x5eed_0002_u64;
    let mut random = Random::new(seed);
    for round in 0..12 {
        let copy = scratch();
        let copied = Command::new("cp").arg("-a").arg(session.join(".")).arg(copy.path()).status();
        assert!(copied.expect("cp").success());
        let log = find_log(copy.path());
        let mut bytes = fs::read(&log).expect("its log");
        // Most damage is in the control page and the buffer's header, where it has the most effect.
        for _ in 0..4 {
            let end = if random.per_mille(250) { bytes.len() } else { (256 << 10) + 64 };
            let at = random.below(end as u64) as usize;
            let at = if random.per_mille(500) { at } else { (256 << 10) + at % 40 };
            bytes[at] ^= random.bits() as u8;
        }
        if round % 3 == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        fs::write(&log, bytes).expect("the damage");
        if let Err(why) = recover(copy.path()) {
            assert!(why.to_string().len() > 20, "seed {seed:#x}, round {round}: {why:?}");
            let kept = !matches!(why, RecordError::NothingRecorded { .. });
            assert_eq!(copy.path().exists(), kept, "seed {seed:#x}, round {round}: {why}");
        }
    }
}

fn find_log(session: &Path) -> PathBuf {
    let entries = fs::read_dir(logs_in(session)).expect("the session").flatten();
    let mut logs = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "spool"));
    logs.next().expect("a log")
}
