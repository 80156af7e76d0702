//! Recordings of many processes. Logs of ended processes are converted while others run, and then take only the space
//! of their traces.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use hksim_record::{Options, Programs, RecordError, RecordReport, RecordedTrace, record, recover};

use crate::signals::{find_session, recorder_of, wait_for};
use crate::support::{compile, events, logs_in, mallocs_of, read, record_words, scratch};

const PROCESSES: usize = 200;
/// Size of an unconverted log.
const LOG_KIB: u64 = 260;

fn programs_of(report: &RecordReport) -> Vec<String> {
    let name = |trace: &RecordedTrace| {
        let program = trace.command.first().map(String::as_str).unwrap_or_default();
        program.rsplit('/').next().unwrap_or_default().to_string()
    };
    report.traces.iter().map(name).collect()
}

/// A shell script that runs a program several times, and then runs `rest`.
fn script(program: &Path, rest: &str) -> String {
    let program = program.display();
    format!("i=0; while [ $i -lt {PROCESSES} ]; do {program} 100; i=$((i+1)); done >/dev/null; {rest}")
}

#[test]
fn an_ended_process_takes_only_the_space_of_its_trace() {
    let dir = scratch();
    let program = compile(dir.path(), "rounds", &[]);
    let used = dir.path().join("used");
    let rest = format!("sleep 3; du -sk \"$HKSIM_RECORD_SESSION\" > {}", used.display());
    let report = record_words(dir.path(), ["sh", "-c", &script(&program, &rest)]);
    let rounds: Vec<&RecordedTrace> =
        report.traces.iter().filter(|trace| trace.command[0] == program.to_string_lossy()).collect();
    assert_eq!(rounds.len(), PROCESSES);
    let other = scratch();
    let alone = record_words(other.path(), [program.as_os_str(), "100".as_ref()]).traces[0].events;
    for trace in rounds {
        assert_eq!(trace.path.parent(), Some(dir.path().join("app.hkt.processes").as_path()));
        let name = trace.path.file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(name, format!("rounds.{}.hkt", trace.pid), "the trace is not named after its program");
        assert_eq!((trace.events, events(trace).len() as u64), (alone, alone), "{name}");
        assert!(!trace.still_running && trace.quality.events_lost == 0, "{name}");
    }
    let used = fs::read_to_string(used).expect("the size of the session");
    let used_kib: u64 = used.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number");
    println!("{used_kib} KiB for {PROCESSES} processes");
    assert!(used_kib < PROCESSES as u64 * LOG_KIB / 4, "{used_kib} KiB");
    assert!(find_session(dir.path()).is_none(), "nothing of the session is left");
}

fn recorded(dir: &Path, programs: Programs, words: &[&str]) -> Result<RecordReport, RecordError> {
    let options = Options { output: dir.join("app.hkt"), programs, ..Options::default() };
    record(&options, &words.iter().map(Into::into).collect::<Vec<_>>())
}

#[test]
fn only_programs_with_the_given_names_are_recorded() {
    let dir = scratch();
    let words = ["sh", "-c", "ls / >/dev/null; cat /dev/null; env true; ls /usr >/dev/null"];
    let only = |names: &[&str]| Programs { only: names.iter().map(ToString::to_string).collect(), no_children: false };
    let report = recorded(dir.path(), only(&["ls"]), &words).expect("a recording");
    assert_eq!(programs_of(&report), ["ls", "ls"]);
    assert_eq!(report.traces[0].path, dir.path().join("app.hkt"), "the first has the output's name");
    assert!(report.excluded_processes >= 3, "{}: the shell, cat, env", report.excluded_processes);
    let report = recorded(dir.path(), only(&["cat", "sh"]), &words).expect("a recording");
    let mut programs = programs_of(&report);
    programs.retain(|program| program != "sh");
    assert_eq!(programs, ["cat"]);
    match recorded(dir.path(), only(&["dog"]), &words) {
        Err(RecordError::NothingRecorded { why, .. }) => assert!(why.contains("--only"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn children_are_not_recorded_if_excluded() {
    let dir = scratch();
    let program = compile(dir.path(), "processes", &[]);
    let programs = Programs { no_children: true, ..Programs::default() };
    // Successive images in the same process are not children.
    let words = ["env", "nice", program.to_str().expect("UTF-8"), "fork"];
    let report = recorded(dir.path(), programs.clone(), &words).expect("a recording");
    let own = report.traces[0].pid;
    assert!(report.traces.iter().all(|trace| trace.pid == own && !trace.forked), "{:?}", programs_of(&report));
    assert_eq!(mallocs_of(&events(&report.traces[0]), 102), 50_000);
    assert_eq!(report.excluded_processes, 1, "the child");
    let report = recorded(dir.path(), programs, &["sh", "-c", "ls / >/dev/null; true"]).expect("a recording");
    assert_eq!(programs_of(&report), ["sh"]);
}

/// The recorder dies after it has written some traces but not all.
#[test]
fn traces_of_ended_processes_survive_the_recorder() {
    let dir = scratch();
    let program = compile(dir.path(), "rounds", &[]);
    let path = dir.path().join("script");
    let done = dir.path().join("done");
    let text = format!("#!/bin/sh\n{}\n", script(&program, "touch \"$1\"; exec sleep 600"));
    fs::write(&path, text).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    let mut recorder = recorder_of(dir.path(), &path, done.to_str().expect("UTF-8"));
    let session = wait_for(|| find_session(dir.path()).filter(|_| done.exists()));
    wait_for(|| {
        let names = fs::read_dir(&session).ok()?.flatten().map(|entry| entry.path());
        let written = names.filter(|path| path.extension().is_some_and(|extension| extension == "hkt")).count();
        (written > 2).then_some(())
    });
    recorder.kill().expect("the recorder dies");
    recorder.wait().expect("it is dead");
    let report = recover(&session).expect("a recovery");
    // Only the sleeping shell still runs, and recovery does not wait for it.
    for trace in report.traces.iter().filter(|trace| trace.still_running) {
        // SAFETY: the process was started by this test.
        unsafe { libc::kill(trace.pid as i32, libc::SIGKILL) };
    }
    let rounds = report.traces.iter().filter(|trace| trace.command[0] == program.to_string_lossy());
    let lengths: Vec<usize> = rounds.map(|trace| events(trace).len()).collect();
    assert_eq!(lengths.len(), PROCESSES);
    assert!(lengths.iter().all(|&length| length == lengths[0] && length > 200), "{lengths:?}");
}

/// One of several logs has a damaged header. The others are converted, and no file is removed.
#[test]
fn a_damaged_log_does_not_stop_the_others() {
    for (at, what) in [(0, "the control page"), (256 << 10, "a buffer's header")] {
        let dir = scratch();
        let program = compile(dir.path(), "rounds", &[]);
        let kept = dir.path().join("kept");
        fs::create_dir(&kept).expect("a folder");
        let copy = format!("cp -a \"$HKSIM_RECORD_SESSION\"/../. {}", kept.display());
        let script = format!("{0} 5; {0} 7; {copy}", program.display());
        let whole = record_words(dir.path(), ["sh", "-c", &script]);
        let of_program = |report: &RecordReport| {
            let is_own = |trace: &&RecordedTrace| trace.command[0] == program.to_string_lossy();
            report.traces.iter().filter(is_own).map(|trace| trace.events).collect::<Vec<_>>()
        };
        assert_eq!(of_program(&whole).len(), 2, "{what}");
        let victim = whole.traces.iter().find(|trace| trace.command.get(1).is_some_and(|word| word == "5"));
        let log = logs_in(&kept).join(format!("{}-0.spool", victim.expect("the first").pid));
        // An earlier scan may have written the trace already.
        let _ = fs::remove_file(kept.join(log.file_name().expect("a name")).with_extension("hkt"));
        let mut bytes = fs::read(&log).expect("its log");
        if bytes.len() <= at {
            return println!("skipped: the event log was truncated just before the copy");
        }
        bytes[at] ^= 0x55;
        fs::write(&log, bytes).expect("the damage");
        let report = recover(&kept).expect("the others are recovered");
        assert_eq!(of_program(&report).len(), 1, "{what}");
        assert_eq!(report.damaged.len(), 1, "{what}");
        assert_eq!(report.damaged[0].path.file_name(), log.file_name(), "{what}");
        assert_eq!(report.session_kept.as_deref(), Some(kept.canonicalize().expect("it stays").as_path()), "{what}");
        assert!(log.exists(), "{what}: nothing is lost");
        report.traces.iter().for_each(|trace| assert!(!read(&trace.path).is_empty(), "{what}"));
    }
}

/// A shell that is process 1 of its own pid namespace, as in a container.
#[test]
fn processes_of_another_pid_namespace_leave_no_files() {
    let probe = Command::new("unshare").args(["--pid", "--fork", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return println!("skipped: a process-id namespace cannot be created here");
    }
    let dir = scratch();
    let program = compile(dir.path(), "rounds", &[]);
    let script = format!("{} 50; true", program.display());
    let report = record_words(dir.path(), ["unshare", "--pid", "--fork", "sh", "-c", &script]);
    let trace = report.traces.iter().find(|trace| trace.command[0] == program.to_string_lossy()).expect("its trace");
    assert!(trace.pid < 100, "{} in its namespace", trace.pid);
    assert!(report.traces.iter().all(|trace| !trace.still_running), "some processes have not ended");
    assert_eq!(report.preload_object_kept, None);
    assert_eq!(trace.quality.unknown_frees, 0);
}

#[test]
fn a_later_recording_removes_an_object_that_is_no_longer_needed() {
    let dir = scratch();
    let child = dir.path().join("child");
    // A child that makes no call after the fork has no log, but it may execute another program later.
    let script = format!("(sleep 600 </dev/null >/dev/null 2>&1 & echo $! > {})", child.display());
    let report = record_words(dir.path(), ["sh", "-c", &script]);
    let object = report.preload_object_kept.clone().expect("it stays for the sleeping process");
    assert!(object.exists());
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    let folder = object.parent().expect("its folder").to_path_buf();
    fs::File::open(&folder).and_then(|folder| folder.set_modified(long_ago)).expect("an older folder");
    record_words(dir.path(), ["ls", "/"]);
    assert!(object.exists(), "it is still loaded");
    let pid: i32 = fs::read_to_string(child).expect("its id").trim().parse().expect("a number");
    // SAFETY: the process was started by this test.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    sleep(Duration::from_millis(200));
    record_words(dir.path(), ["ls", "/"]);
    assert!(!folder.exists(), "no process needs it any more");
}
