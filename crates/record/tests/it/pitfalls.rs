//! Situations in which other recorders fail, with one test each on a real process. `docs/lab/recorder-tests.md` lists
//! them.

use std::fs;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use hksim_record::{Exit, Options, RecordReport, Touch, record};
use hksim_trace::event::{Event, Op};

use crate::support::{compile, events, mallocs_of, record_words, scratch};

/// Records one mode of `pitfalls`, which checks its own run.
fn run(dir: &Path, words: &[&str]) -> RecordReport {
    let program = compile(dir, "pitfalls", &["-ldl"]);
    let words = std::iter::once(program.as_os_str()).chain(words.iter().map(|word| word.as_ref()));
    let report = record_words(dir, words);
    assert_eq!(report.exit, Some(Exit::Code(0)), "{:?}", report.traces[0].command);
    report
}

fn nothing_lost(report: &RecordReport) {
    for trace in &report.traces {
        let quality = trace.quality;
        assert_eq!((quality.events_lost, quality.reuse_repaired), (0, 0), "{quality:?}");
        assert!(trace.forked || quality.unknown_frees == 0, "{quality:?}");
    }
}

fn frees(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event.op, Op::Free { .. })).count()
}

#[test]
fn four_rounds_of_destructors_are_seen() {
    let dir = scratch();
    let report = run(dir.path(), &["destructors"]);
    nothing_lost(&report);
    let events = events(&report.traces[0]);
    for round in 1..=4 {
        assert_eq!(mallocs_of(&events, 4000 + round), 50, "round {round}");
    }
    assert!(frees(&events) >= 200, "some blocks are not freed");
    assert_eq!(report.traces[0].threads, 51);
}

#[test]
fn a_handler_on_a_small_stack_is_recorded() {
    let dir = scratch();
    let report = run(dir.path(), &["alternate-stack"]);
    nothing_lost(&report);
    assert_eq!(mallocs_of(&events(&report.traces[0]), 4100), 100_000);
}

#[test]
fn errno_is_kept_and_failures_are_recorded() {
    let dir = scratch();
    let report = run(dir.path(), &["errno"]);
    nothing_lost(&report);
    let events = events(&report.traces[0]);
    let failed = events.iter().filter_map(|event| match event.op {
        Op::AllocFailed { size, .. } => Some(size),
        _ => None,
    });
    assert_eq!(
        failed.collect::<Vec<_>>(),
        [1 << 62, u64::MAX, u64::MAX],
        "an overflowing product is recorded as the largest size"
    );
}

#[test]
fn the_program_sees_the_same_heap() {
    let dir = scratch();
    let program = compile(dir.path(), "pitfalls", &["-ldl"]);
    let bare = Command::new(&program).arg("sizes").output().expect("it runs").stdout;
    let printed = dir.path().join("printed");
    let script = format!("exec {} sizes > {}", program.display(), printed.display());
    nothing_lost(&record_words(dir.path(), ["sh", "-c", &script]));
    assert!(bare.len() > 1000);
    assert_eq!(fs::read(printed).expect("the program prints"), bare);
}

#[test]
fn a_cleared_environment_loses_nothing() {
    let dir = scratch();
    let report = run(dir.path(), &["environment"]);
    nothing_lost(&report);
    let [parent, child] = &report.traces[..] else {
        panic!("{} traces", report.traces.len());
    };
    assert_eq!(mallocs_of(&events(parent), 4300), 100_000);
    assert_eq!(mallocs_of(&events(child), 4301), 1000);
}

#[test]
fn a_worker_with_another_root_and_user_has_a_trace() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root may change root and user");
        return;
    }
    let dir = scratch();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("hidden from the worker");
    let root = dir.path().join("root");
    fs::create_dir(&root).expect("a root");
    let report = run(dir.path(), &["privileges", root.to_str().expect("UTF-8")]);
    nothing_lost(&report);
    assert_eq!(report.unrecorded_processes, 0);
    let [server, worker] = &report.traces[..] else {
        panic!("{} traces", report.traces.len());
    };
    assert_eq!(mallocs_of(&events(server), 4400), 100);
    assert_eq!(mallocs_of(&events(worker), 4401), 100_000);
}

#[test]
fn a_system_call_filter_costs_no_events() {
    let dir = scratch();
    let report = run(dir.path(), &["filtered"]);
    nothing_lost(&report);
    let events = events(&report.traces[0]);
    let mallocs = mallocs_of(&events, 4500) + mallocs_of(&events, 4501);
    assert!(mallocs + frees(&events) >= 202_000, "calls are missing: {mallocs}");
}

#[test]
fn a_deeply_bound_library_goes_unseen_and_is_counted() {
    let dir = scratch();
    let library = compile(dir.path(), "library", &["-shared", "-fPIC"]);
    let report = run(dir.path(), &["deepbind", library.to_str().expect("UTF-8")]);
    let trace = &report.traces[0];
    let events = events(trace);
    assert_eq!(mallocs_of(&events, 4601), 100);
    assert_eq!(mallocs_of(&events, 4600), 0, "it finds libc's malloc before the recorder's");
    assert_eq!(trace.quality.unknown_frees, 100, "frees of the library's blocks by the program");
}

#[test]
fn a_deeply_bound_library_shares_watched_blocks() {
    let dir = scratch();
    let library = compile(dir.path(), "library", &["-shared", "-fPIC"]);
    let program = compile(dir.path(), "pitfalls", &["-ldl"]);
    let touch = Touch::Pages { sample: NonZeroU32::MIN };
    let options = Options { output: dir.path().join("app.hkt"), touch, ..Options::default() };
    let words = [program.into_os_string(), "deepbind-frees".into(), library.into_os_string()];
    let report = record(&options, &words).expect("a recording");
    assert_eq!(report.exit, Some(Exit::Code(0)), "no free of a watched block reaches glibc's");
    nothing_lost(&report);
    let events = events(&report.traces[0]);
    assert_eq!((mallocs_of(&events, 4600), mallocs_of(&events, 4601)), (100, 100), "the library's calls are seen");
}

#[test]
fn libraries_that_come_and_go_are_recorded() {
    let dir = scratch();
    let library = compile(dir.path(), "library", &["-shared", "-fPIC"]);
    let report = run(dir.path(), &["libraries", library.to_str().expect("UTF-8")]);
    nothing_lost(&report);
    let events = events(&report.traces[0]);
    assert_eq!(mallocs_of(&events, 4700), 400);
    assert!(mallocs_of(&events, 4999) >= 1, "when it is loaded");
}

#[test]
fn rare_names_of_free_are_seen() {
    let dir = scratch();
    let report = run(dir.path(), &["frees"]);
    nothing_lost(&report);
    let events = events(&report.traces[0]);
    assert_eq!([mallocs_of(&events, 4801), mallocs_of(&events, 4803)], [10, 10]);
    assert!(frees(&events) >= 30);
    assert_eq!(events.iter().filter(|event| event.op == Op::FreeNull).count(), 10);
}

#[test]
fn quick_exit_loses_nothing() {
    let dir = scratch();
    let report = run(dir.path(), &["quick-exit"]);
    nothing_lost(&report);
    assert_eq!(mallocs_of(&events(&report.traces[0]), 4900), 50);
}
