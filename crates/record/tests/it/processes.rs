//! fork, vfork, posix_spawn, exec, ends of threads, and calls in signal handlers, with exact counts.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use hksim_record::{Exit, Options, Programs, RecordReport, record};
use hksim_trace::event::Op;

use crate::support::{compile, events, mallocs_of, record_words, scratch};

fn run(dir: &Path, mode: &str) -> RecordReport {
    let program = compile(dir, "processes", &[]);
    let report = record_words(dir, [program.as_os_str(), mode.as_ref()]);
    assert_eq!(report.exit, Some(Exit::Code(0)), "{mode}");
    assert_eq!(report.unrecorded_pids, [0_u32; 0], "{mode}");
    report
}

/// Parent and child allocate at the same time; the child's records must not reach the parent's trace.
fn check_fork(mode: &str) -> RecordReport {
    let dir = scratch();
    let report = run(dir.path(), mode);
    let [parent, child] = &report.traces[..] else {
        panic!("{mode}: {} traces", report.traces.len());
    };
    let (of_parent, of_child) = (events(parent), events(child));
    assert_eq!((parent.forked, child.forked), (false, true), "{mode}");
    assert_eq!(child.parent_pid, parent.pid, "{mode}");
    assert_eq!(mallocs_of(&of_parent, 101), 1000, "{mode}");
    assert_eq!(mallocs_of(&of_parent, 102), 50_000, "{mode}");
    assert_eq!(mallocs_of(&of_parent, 202), 0, "{mode}");
    assert_eq!(of_parent.iter().filter(|event| matches!(event.op, Op::Free { .. })).count(), 51_000, "{mode}");
    assert_eq!(parent.quality.unknown_frees, 0, "{mode}");
    assert_eq!(mallocs_of(&of_child, 202), 50_000, "{mode}");
    assert_eq!(mallocs_of(&of_child, 101) + mallocs_of(&of_child, 102), 0, "{mode}");
    assert_eq!(child.quality.unknown_frees, 10, "{mode}: the parent's blocks that the child freed");
    assert_eq!((parent.quality.events_lost, child.quality.events_lost), (0, 0), "{mode}");
    let forks: Vec<u32> = of_parent
        .iter()
        .filter_map(|event| match event.op {
            Op::Fork { child_pid } => Some(child_pid),
            _ => None,
        })
        .collect();
    let expected = if mode == "fork" { vec![child.pid] } else { vec![] };
    assert_eq!(forks, expected, "{mode}: only fork itself is recorded");
    report
}

#[test]
fn a_forked_child_has_a_separate_trace() {
    check_fork("fork");
}

#[test]
fn a_child_of_raw_clone_has_a_separate_trace() {
    check_fork("clone");
}

#[test]
fn vfork_and_posix_spawn_leave_the_parents_trace_intact() {
    let dir = scratch();
    let report = run(dir.path(), "spawn");
    let parent = &report.traces[0];
    let of_parent = events(parent);
    assert_eq!(mallocs_of(&of_parent, 111), 2000);
    assert_eq!(of_parent.iter().filter(|event| matches!(event.op, Op::Free { .. })).count(), 2000);
    assert_eq!((parent.quality.unknown_frees, parent.quality.events_lost), (0, 0));
    for child in &report.traces[1..] {
        assert_eq!(child.command, ["true"], "only the spawned programs have further traces");
        assert!(!child.forked);
    }
}

#[test]
fn exec_ends_one_trace_and_begins_another() {
    let dir = scratch();
    let report = run(dir.path(), "exec");
    let [after, before] = &report.traces[..] else {
        panic!("{} traces", report.traces.len());
    };
    assert_eq!(after.path, dir.path().join("app.hkt"), "the last image has the output's name");
    assert_eq!(after.pid, before.pid);
    let (of_before, of_after) = (events(before), events(after));
    assert_eq!((mallocs_of(&of_before, 303), mallocs_of(&of_before, 404)), (100, 0));
    assert_eq!((mallocs_of(&of_after, 303), mallocs_of(&of_after, 404)), (0, 50));
    assert_eq!(of_before.last().map(|event| event.op), Some(Op::Exec));
    assert!(!of_after.iter().any(|event| event.op == Op::Exec));
}

#[test]
fn frees_of_ending_threads_are_seen() {
    let dir = scratch();
    let report = run(dir.path(), "late");
    let trace = &report.traces[0];
    let events = events(trace);
    assert_eq!((mallocs_of(&events, 707), mallocs_of(&events, 708)), (300, 300));
    let mut objects = HashSet::new();
    let mut frees = 0;
    let mut ended = HashSet::new();
    for event in &events {
        assert!(!ended.contains(&event.thread), "an event of {:?} after its exit", event.thread);
        match event.op {
            Op::Alloc { object, size: 707 | 708, .. } => {
                objects.insert(object);
            }
            Op::Free { object } => frees += usize::from(objects.remove(&object)),
            Op::ThreadExit => {
                ended.insert(event.thread);
            }
            _ => {}
        }
    }
    assert_eq!(frees, 600, "some blocks are not freed by a destructor");
    assert_eq!(trace.threads, 301);
    assert_eq!(ended.len(), 300, "all threads except the main thread end before the program");
    assert_eq!(trace.quality.events_lost, 0);
}

#[test]
fn a_program_that_closes_all_descriptors_loses_nothing() {
    let dir = scratch();
    let report = run(dir.path(), "fds");
    let events = events(&report.traces[0]);
    assert_eq!((mallocs_of(&events, 121), mallocs_of(&events, 122)), (100, 100_000));
    assert_eq!(report.traces[0].quality.events_lost, 0);
}

/// The process's own log, not its parent's, among its descriptors.
fn own_log(pid: u32) -> Option<PathBuf> {
    let own = format!("/{pid}-");
    let mut fds = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().map(|entry| entry.path());
    fds.find(|fd| fs::read_link(fd).is_ok_and(|file| file.to_string_lossy().contains(&own)))
}

/// Kills a process that a test has left running.
struct Killed(u32);

impl Drop for Killed {
    fn drop(&mut self) {
        // SAFETY: the process is one that the recorded program began.
        unsafe { libc::kill(self.0 as i32, libc::SIGKILL) };
    }
}

#[test]
fn a_process_left_behind_is_recorded_up_to_now_and_then_stops_recording() {
    let dir = scratch();
    let report = run(dir.path(), "daemon");
    let [_, daemon] = &report.traces[..] else {
        panic!("{} traces", report.traces.len());
    };
    let _killed = Killed(daemon.pid);
    assert!(daemon.still_running && daemon.forked);
    let object = report.preload_object_kept.as_ref().expect("it may execute another program");
    fs::remove_dir_all(object.parent().expect("its directory")).expect("the object was left");
    let events = events(daemon);
    let mallocs = mallocs_of(&events, 909);
    let frees = events.iter().filter(|event| matches!(event.op, Op::Free { .. })).count();
    assert!(mallocs > 40_000, "expected more than a chunk of records: {mallocs}");
    assert!(
        (0..=100).contains(&mallocs.saturating_sub(frees)),
        "the trace is not a prefix of the calls: {mallocs}, {frees}"
    );
    assert_eq!((daemon.quality.unknown_frees, daemon.quality.reuse_repaired), (0, 0));
    // The log has been unlinked, but its size is still visible; it must stop growing.
    let log = own_log(daemon.pid).expect("it is open");
    let size = || fs::metadata(&log).map(|data| data.len()).expect("its log");
    sleep(Duration::from_millis(300));
    let before = size();
    sleep(Duration::from_millis(300));
    assert_eq!(size(), before);
}

#[test]
fn calls_in_signal_handlers_are_seen() {
    let dir = scratch();
    let bump = compile(dir.path(), "bump", &["-shared", "-fPIC"]);
    let program = compile(dir.path(), "signals", &[bump.to_str().expect("UTF-8")]);
    let printed = dir.path().join("printed");
    let script = format!("exec {} 3000 > {}", program.display(), printed.display());
    let report = record_words(dir.path(), ["sh", "-c", &script]);
    let printed = fs::read_to_string(printed).expect("the program prints");
    let rounds: Vec<usize> = printed.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let trace = &report.traces[0];
    assert_eq!(trace.quality.events_lost, 0, "{printed}");
    let events = events(trace);
    assert_eq!(mallocs_of(&events, 606), rounds[0]);
    assert_eq!(mallocs_of(&events, 505), rounds[1]);
    let resized = events.iter().filter(|event| matches!(event.op, Op::Realloc { size: 506, .. })).count();
    assert_eq!(resized, rounds[1]);
    assert_eq!(trace.quality.unknown_frees, 0);
}

#[test]
fn programs_without_the_recorder_are_named() {
    let dir = scratch();
    let program = compile(dir.path(), "missing", &[]);
    let fixed = dir.path().join("fixed");
    std::fs::copy(compile(scratch().path(), "missing", &["-static"]), &fixed).expect("a copy");
    for (case, expected) in [("clear", "missing"), ("other", "missing"), ("static", "fixed"), ("none", "")] {
        let mut words = vec![program.clone().into_os_string(), case.into()];
        if case == "static" {
            words.push(fixed.clone().into());
        }
        let report = record_words(dir.path(), words);
        if let Some(why) = &report.unobserved {
            return println!("skipped: the kernel does not report processes: {why}");
        }
        let names: Vec<&str> = report.unseen_programs.iter().map(|image| image.command[0].as_str()).collect();
        assert_eq!(names, Vec::from_iter([expected].into_iter().filter(|name| !name.is_empty())), "{case}");
        assert_eq!(report.traces[0].quality.programs_unrecorded, names.len() as u64, "{case}");
        assert_eq!((report.outliving.len(), report.traces[0].quality.processes_outliving), (0, 0), "{case}");
    }
}

/// Also where not all programs are recorded.
#[test]
fn selected_programs_without_the_recorder_are_named() {
    let dir = scratch();
    let program = compile(dir.path(), "missing", &[]);
    let other = dir.path().join("a-program-of-a-long-name");
    std::fs::copy(&program, &other).expect("a copy");
    let named = |only: &[&str], no_children: bool, words: &[&OsStr]| {
        let only = only.iter().map(|name| name.to_string()).collect();
        let programs = Programs { only, no_children };
        let options = Options { output: dir.path().join("app.hkt"), programs, ..Options::default() };
        let words: Vec<OsString> = words.iter().map(|word| word.to_os_string()).collect();
        record(&options, &words).map(|report| {
            let names = report.unseen_programs.iter().map(|image| image.command[0].clone()).collect::<Vec<String>>();
            (report.unobserved, names)
        })
    };
    let clears = [program.as_os_str(), "clear".as_ref(), other.as_os_str()];
    let (unobserved, names) = named(&["missing"], false, &clears).expect("a recording");
    if let Some(why) = unobserved {
        return println!("skipped: the kernel does not report processes: {why}");
    }
    assert_eq!(names, [""; 0], "what is not selected is not missing");
    let (_, names) = named(&["missing", "a-program-of-a-long-name"], false, &clears).expect("a recording");
    assert_eq!(names, ["a-program-of-a-"]);
    let why = named(&["a-program-of-a-long-name"], false, &clears).expect_err("nothing is recorded").to_string();
    assert!(why.contains("were executed without the recorder"), "{why}");
    let (_, names) = named(&[], true, &clears).expect("a recording");
    assert_eq!(names, [""; 0]);
    let wrapped = ["env".as_ref(), "-i".as_ref(), program.as_os_str(), "work".as_ref()];
    let (_, names) = named(&[], true, &wrapped).expect("a recording");
    assert_eq!(names, ["missing"], "the started process itself");
    let outlives = [program.as_os_str(), "outlive".as_ref()];
    let options = |programs| Options { output: dir.path().join("app.hkt"), programs, ..Options::default() };
    let first = Programs { only: Vec::new(), no_children: true };
    let report = record(&options(first), &outlives.map(OsStr::to_os_string)).expect("a recording");
    assert_eq!(report.outliving.len(), 0);
}

#[test]
fn a_program_whose_wrapper_clears_the_environment_is_named() {
    let dir = scratch();
    let program = compile(dir.path(), "missing", &[]);
    let report =
        record_words(dir.path(), ["env".into(), "-i".into(), program.into_os_string(), OsString::from("work")]);
    if let Some(why) = &report.unobserved {
        return println!("skipped: the kernel does not report processes: {why}");
    }
    assert_eq!(report.unseen_programs.len(), 1);
    assert_eq!(report.unseen_programs[0].command, ["missing"]);
}

#[test]
fn children_that_outlive_the_program_are_named() {
    let dir = scratch();
    let program = compile(dir.path(), "missing", &[]);
    let report = record_words(dir.path(), [program.into_os_string(), OsString::from("outlive")]);
    if let Some(why) = &report.unobserved {
        return println!("skipped: the kernel does not report processes: {why}");
    }
    assert_eq!(report.outliving.len(), 1);
    assert_eq!(report.outliving[0].command[1], "outlive");
    assert_eq!(report.traces[0].quality.processes_outliving, 1);
    assert_eq!(mallocs_of(&events(&report.traces[0]), 555), 1);
}
