//! Detection of when forked children stop sharing the program's memory. The sizes that a C program allocates state
//! whether a child must share the memory at that point.

use std::collections::BTreeMap;
use std::path::Path;

use hksim_record::{Options, Programs, record};
use hksim_trace::event::{Event, Op};

use crate::support::{compile, events, record_words, scratch};

/// Counts from the trace of a mode.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    forks: usize,
    ends: usize,
    outliving: usize,
    /// Number of statements that the program made.
    checks: usize,
}

/// Checks each statement of the program, using only the order of events.
fn check(events: &[Event]) -> Seen {
    let mut seen = Seen::default();
    let mut pids = Vec::new();
    let mut sharing: BTreeMap<u32, bool> = BTreeMap::new();
    for (at, event) in events.iter().enumerate() {
        let mut expect = |child: u64, expected: bool| {
            seen.checks += 1;
            let Some(&pid) = pids.get(child as usize - 1) else {
                return assert!(!expected, "event {at}: child {child} was not forked before");
            };
            assert_eq!(sharing[&pid], expected, "event {at} of {}: child {child}", events.len());
        };
        match event.op {
            Op::Fork { child_pid } => {
                pids.push(child_pid);
                sharing.insert(child_pid, true);
                seen.forks += 1;
            }
            Op::ForkEnd { child_pid, outlives } => {
                assert_eq!(sharing.insert(child_pid, outlives), Some(true), "event {at}: an end without a fork");
                *if outlives { &mut seen.outliving } else { &mut seen.ends } += 1;
            }
            Op::Alloc { size: size @ 1001..=1010, .. } => expect(size - 1000, true),
            Op::Alloc { size: size @ 2001..=2010, .. } => expect(size - 2000, false),
            _ => {}
        }
    }
    seen
}

fn check_mode(mode: &str, expected: Seen) {
    let dir = scratch();
    let program = compile(dir.path(), "forks", &[]);
    let report = record_words(dir.path(), [program.as_os_str(), mode.as_ref()]);
    assert_eq!(check(&events(&report.traces[0])), expected, "{mode}");
}

#[test]
fn a_child_shares_memory_until_it_ends_in_any_way() {
    for mode in ["exit", "kill", "closes"] {
        let checks = if mode == "closes" { 5 } else { 4 };
        check_mode(mode, Seen { forks: 1, ends: 1, outliving: 0, checks });
    }
}

#[test]
fn a_child_that_executes_a_program_stops_sharing_memory() {
    check_mode("exec", Seen { forks: 1, ends: 1, outliving: 0, checks: 4 });
}

#[test]
fn a_grandchild_shares_memory_too() {
    check_mode("grandchild", Seen { forks: 1, ends: 1, outliving: 0, checks: 5 });
}

#[test]
fn several_children_may_end_in_any_order() {
    check_mode("two", Seen { forks: 2, ends: 2, outliving: 0, checks: 6 });
}

#[test]
fn vfork_children_are_not_counted() {
    check_mode("many", Seen { forks: 150, ends: 150, outliving: 0, checks: 1 });
}

#[test]
fn a_child_that_outlives_its_parent_is_reported() {
    check_mode("outlives", Seen { forks: 1, ends: 0, outliving: 1, checks: 2 });
}

/// The children themselves do nothing for the detection, so it works even if they are excluded from the recording.
#[test]
fn ends_of_unrecorded_children_are_detected() {
    let dir = scratch();
    let program = compile(dir.path(), "forks", &[]);
    let programs = Programs { no_children: true, ..Programs::default() };
    let options = Options { output: dir.path().join("app.hkt"), programs, ..Options::default() };
    let report = record(&options, &[program.into(), "exec".into()]).expect("recorded");
    assert_eq!(report.traces.len(), 1);
    assert_eq!(check(&events(&report.traces[0])), Seen { forks: 1, ends: 1, outliving: 0, checks: 4 });
    assert!(leaves_nothing(dir.path()), "files of a session are left");
}

fn leaves_nothing(dir: &Path) -> bool {
    let names = std::fs::read_dir(dir).expect("the folder").flatten().map(|entry| entry.file_name());
    names.into_iter().all(|name| !name.to_string_lossy().contains("recording"))
}
