//! A program that checks by itself that it behaves as without a recorder, and the recorder's report of its end.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use hksim_memory_record::{HugePages, Options, RecordingReport, Source, Traced};
use hksim_memory_trace::{Beginning, End, Event, ExitStatus, Footer, Op, Origin, Reader, ThpDisabled};

use crate::support::{events, operations, options, recorded, with_program};

/// Programs of `behaviour.c` that exit with 0.
const CHECKED: [&str; 9] = [
    "signals",
    "stops",
    "exec_by_thread",
    "exit_in_calls",
    "children",
    "killed",
    "own_filter",
    "traces_itself",
    "many_threads",
];

/// Records one program of `behaviour.c` by stops.
fn run(directory: &Path, program: &Path, name: &str, change: impl Fn(&mut Options)) -> Option<RecordingReport> {
    let file = directory.join(format!("{name}.hkm"));
    let mut options = options(&file, Source::Stops);
    change(&mut options);
    recorded(&options, program, &[name])
}

fn unchanged(_: &mut Options) {}

#[test]
fn a_traced_program_notices_nothing() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    for name in CHECKED {
        let Some(report) = run(directory.path(), &program, name, unchanged) else { return };
        assert_eq!((report.exit_code, report.exit_signal), (Some(0), None), "{name}");
        assert_eq!(report.lost_events, 0, "{name}");
        assert!(!report.traced.as_ref().is_some_and(Traced::is_running) || name == "killed", "{name}");
    }
}

#[test]
fn every_program_and_child_has_a_complete_file() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    let Some(report) = run(directory.path(), &program, "children", unchanged) else { return };
    // The program, and 20 times: vfork with exec, posix_spawn, fork, clone with shared memory, which has no file.
    assert_eq!(report.files.len(), 61);
    let forked = |file: &&_| matches!(hksim_memory_record::RecordedFile::clone(file).beginning, Beginning::Fork { .. });
    assert_eq!(report.files.iter().filter(forked).count(), 20);
    assert!(report.files.iter().all(|file| file.end == End::Exit && file.events > 0));
    let own = operations(&report.files[0].path);
    assert_eq!(own.iter().filter(|op| matches!(op, Op::Fork { .. })).count(), 20);
    assert_eq!(own.iter().filter(|op| matches!(op, Op::ChildEnded { .. })).count(), 20);
}

#[test]
fn an_exec_by_a_thread_begins_a_new_file() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    let Some(report) = run(directory.path(), &program, "exec_by_thread", unchanged) else { return };
    let ends: Vec<(u32, End)> = report.files.iter().map(|file| (file.image, file.end)).collect();
    assert_eq!(ends, [(1, End::Exit), (0, End::Exec)]);
    let maps_stack = |op: &Op| matches!(op, Op::Map(map) if map.origin != Origin::Mmap);
    assert!(operations(&report.files[0].path).iter().any(maps_stack));
}

#[test]
fn all_threads_are_recorded() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    let Some(report) = run(directory.path(), &program, "many_threads", unchanged) else { return };
    let events = events(&report.files[0].path);
    let first = events.first().expect("an event").thread;
    // The loader, in the first thread, maps files of any length.
    let is_churn = |event: &&Event| {
        event.thread != first && matches!(&event.op, Op::Map(map) if map.pages.end - map.pages.start == 16)
    };
    let threads: BTreeSet<u32> = events.iter().filter(is_churn).map(|event| event.thread).collect();
    assert_eq!(threads.len(), 50);
    assert_eq!(events.iter().filter(is_churn).count(), 1000);
}

#[test]
fn calls_that_the_programs_own_filter_forbids_have_no_effect() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    let Some(report) = run(directory.path(), &program, "own_filter", unchanged) else { return };
    // The loader's own calls are before the filter.
    let own = operations(&report.files[0].path);
    let last_map = own.iter().rposition(|op| matches!(op, Op::Map(_))).expect("a mapping");
    assert!(!own[last_map..].iter().any(|op| matches!(op, Op::Protect { .. })));
    assert!(own[last_map..].iter().any(|op| matches!(op, Op::Unmap(_))));
}

#[test]
fn the_end_of_the_program_is_reported() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    for (name, end) in [("code_7", (Some(7), None)), ("segv", (None, Some(libc::SIGSEGV)))] {
        let Some(report) = run(directory.path(), &program, name, unchanged) else { return };
        assert_eq!((report.exit_code, report.exit_signal), end, "{name}");
        assert_eq!(report.files[0].end, End::Exit);
        assert!(report.minor_faults > Some(10) && report.resident_bytes_peak > Some(1 << 16));
    }
    let missing = directory.path().join("missing");
    let options = options(&directory.path().join("missing.hkm"), Source::Stops);
    let why = hksim_memory_record::record(&options, &[missing.into()]).expect_err("no program").to_string();
    assert!(why.contains("No such file"), "{why}");
}

#[test]
fn children_that_outlive_the_program_are_not_harmed() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    let done = directory.path().join("done");
    let add = |options: &mut Options| options.variables.push(("DONE".into(), done.clone().into()));
    let Some(report) = run(directory.path(), &program, "leaves_child", add) else { return };
    assert_eq!(report.files.len(), 2);
    assert_eq!((report.files[0].end, report.files[1].end), (End::Exit, End::Running));
    assert!(report.traced.as_ref().is_some_and(Traced::is_running) && !done.exists());
    drop(report);
    assert!(done.exists(), "the child ended before its work was done");
}

#[test]
fn a_recording_can_end_before_the_program() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    let end_early = |options: &mut Options| options.duration = Some(Duration::from_millis(700));
    let Some(report) = run(directory.path(), &program, "waits_between", end_early) else { return };
    assert_eq!((report.exit_code, report.files[0].end), (None, End::Running));
    assert!(report.traced.as_ref().is_some_and(Traced::is_running));
    let traced = report.traced.clone();
    drop(report);
    while traced.as_ref().is_some_and(Traced::is_running) {
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_snapshot_shows_the_memory_at_the_exit() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    let snapshot = |source| {
        let mut options = options(&directory.path().join("snapshot.hkm"), source);
        options.snapshots_of = hksim_memory_record::SnapshotsOf::Program;
        recorded(&options, &program, &["nothing"])
            .map(|report| report.snapshots.into_values().next().map(|snapshot| snapshot.mappings))
    };
    let Some(by_stops) = snapshot(Source::Stops) else { return };
    if by_stops.is_none() {
        return eprintln!("skipped: the kernel cannot scan page tables (before Linux 6.7)");
    }
    let Some(by_tracepoints) = snapshot(Source::Tracepoints) else { return };
    assert_eq!(by_stops, by_tracepoints);
}

/// /proc shows no memory for the first thread when it has ended before the others.
#[test]
fn a_snapshot_does_not_need_the_first_thread() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    for source in [Source::Stops, Source::Tracepoints] {
        let mut options = options(&directory.path().join("snapshot.hkm"), source);
        options.snapshots_of = hksim_memory_record::SnapshotsOf::Program;
        let Some(report) = recorded(&options, &program, &["main_ends_first"]) else { return };
        let snapshot = report.snapshots.values().next().unwrap_or_else(|| panic!("{source:?}: a snapshot"));
        assert!(snapshot.rss_bytes() >= 8 << 20, "{source:?}: {}", snapshot.rss_bytes());
        let [least, most] = snapshot.rss_bytes_peak().unwrap_or_else(|| panic!("{source:?}: a peak"));
        assert!(most >= 8 << 20 && least <= snapshot.rss_bytes() + (1 << 20), "{source:?}: {least} to {most}");
    }
}

/// By both sources the highest anonymous memory is measured, and not taken from `VmHWM`, which counts files, too.
#[test]
fn the_peak_of_anonymous_memory_is_measured() {
    const MIB: u64 = 1 << 20;
    let Some((directory, program)) = with_program("peak.c") else { return };
    for source in [Source::Stops, Source::Tracepoints] {
        let mut options = options(&directory.path().join("peak.hkm"), source);
        options.huge_pages = HugePages::With(ThpDisabled::Off);
        options.snapshots_of = hksim_memory_record::SnapshotsOf::Program;
        let Some(report) = recorded(&options, &program, &["first"]) else { return };
        let own = &report.files[0];
        let snapshot = &report.snapshots[&own.pid];
        let [least, most] = snapshot.rss_bytes_peak().expect("a peak");
        // The program's own data take a few pages.
        let wanted = 30 * MIB..30 * MIB + MIB / 8;
        assert!(least <= wanted.end && most >= wanted.start, "{source:?}: {least} to {most}");
        assert!(most - least < MIB, "{source:?}: {least} to {most}");
        let peak = snapshot.anonymous.peak.expect("a peak");
        assert!(wanted.contains(&peak.bytes), "{source:?}: {peak:?}");
        assert_eq!(footer(&own.path).status, Some(ExitStatus::Code(7)), "{source:?}");
    }
}

fn footer(path: &Path) -> Footer {
    let mut reader = Reader::open(path).expect("a recording");
    while reader.next_chunk(&mut Vec::new()).expect("events") {}
    reader.footer().expect("the end").clone()
}

#[test]
fn a_signal_that_ended_the_program_is_in_the_recording() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    let Some(report) = run(directory.path(), &program, "waits_between", |_| {}) else { return };
    assert_eq!(footer(&report.files[0].path).status, report.exit_code.map(ExitStatus::Code));
    for source in [Source::Stops, Source::Tracepoints] {
        let options = options(&directory.path().join("killed.hkm"), source);
        let Some(report) = recorded(&options, Path::new("/bin/sh"), &["-c", "kill -9 $$"]) else { return };
        assert_eq!(footer(&report.files[0].path).status, Some(ExitStatus::Signal(9)), "{source:?}");
    }
}

/// Allocators read the mode of huge pages at their start. A program can be shown another one than the machine's.
#[test]
fn a_program_reads_the_mode_that_it_is_shown() {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let Ok(before) = std::fs::read_to_string(FILE) else { return eprintln!("skipped: no huge pages") };
    // SAFETY: reads a number.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: showing another mode needs root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (mode, shown) in [("always", "[always] madvise never\n"), ("never", "always madvise [never]\n")] {
        let file = folder.path().join(format!("{mode}.hkm"));
        let options = Options { shown_thp_mode: Some(mode.to_string()), ..options(&file, Source::Auto) };
        // A child sees it, too.
        let script = format!("cat {FILE}; grep -c {FILE} /proc/mounts");
        if recorded(&options, Path::new("/bin/sh"), &["-c", &script]).is_none() {
            return;
        }
        let said = std::fs::read_to_string(file.with_extension("output")).expect("the output");
        assert_eq!(said, format!("{shown}1\n"));
        assert_eq!(Reader::open(&file).expect("a recording").header().machine.thp_mode.as_deref(), Some(mode));
    }
    assert_eq!(std::fs::read_to_string(FILE).expect("the mode"), before);
    assert!(!std::fs::read_to_string("/proc/mounts").expect("mounts").contains(FILE), "the view is private");
}
