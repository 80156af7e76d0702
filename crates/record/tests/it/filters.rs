//! Programs with a system-call filter: the recorder makes no call that the filter forbids.
//!
//! On such a call the filter kills the program, or traps to a handler that counts. So the program itself detects it.

use std::path::Path;

use hksim_record::{Exit, RecordReport};

use crate::support::{compile, events, mallocs_of, record_words, scratch};

const PAIRS: usize = 100_000;

fn run(dir: &Path, words: [&str; 3]) -> RecordReport {
    let program = compile(dir, "filtered", &[]);
    let command = [program.to_str().expect("UTF-8")].into_iter().chain(words);
    let report = record_words(dir, command);
    assert_eq!(report.exit, Some(Exit::Code(0)), "{words:?}: the program does not run as without the recorder");
    assert_eq!(report.seccomp_processes, 1, "{words:?}: the report does not count the filter");
    assert_eq!(mallocs_of(&events(&report.traces[0]), 404), 10, "{words:?}");
    report
}

/// Checks that the trace contains all calls of the program.
fn check_whole(words: [&str; 3], in_threads: usize) {
    let dir = scratch();
    let report = run(dir.path(), words);
    let trace = &report.traces[0];
    let events = events(trace);
    assert_eq!((mallocs_of(&events, 505), mallocs_of(&events, 606)), (PAIRS, in_threads), "{words:?}");
    let quality = trace.quality;
    assert_eq!((quality.events_lost, quality.unknown_frees, quality.reuse_repaired), (0, 0, 0), "{words:?}");
}

#[test]
fn a_program_under_a_filter_is_recorded_completely() {
    for action in ["kill", "errno", "trap"] {
        for how in ["prctl", "seccomp", "twice"] {
            check_whole([action, how, "same"], 0);
        }
    }
    check_whole(["strict", "prctl", "same"], 0);
}

#[test]
fn threads_under_a_filter_are_recorded_completely() {
    for action in ["kill", "errno", "trap"] {
        // The filter applies to threads that already exist only if it is installed with `seccomp`.
        check_whole([action, "seccomp", "thread"], PAIRS);
        check_whole([action, "prctl", "thread"], PAIRS);
        check_whole([action, "prctl", "new-thread"], PAIRS);
    }
}

/// The recording takes twice the space that the process reserves at first.
#[test]
fn a_long_recording_under_a_filter_is_given_space() {
    let dir = scratch();
    let report = run(dir.path(), ["kill", "prctl", "much"]);
    let trace = &report.traces[0];
    let calls = trace.quality.events_lost + trace.events;
    assert!((10_000_000..10_000_100).contains(&calls), "every call is recorded or counted: {calls}");
    // Space is granted four times a second, later on a busy machine.
    assert!(trace.events > 5_000_000, "{} events: more than fit the chunks granted at the start", trace.events);
    println!("{} of {calls} calls recorded", trace.events);
}

/// The filter forbids the child to create a file, so the child cannot be recorded.
#[test]
fn a_child_forked_under_a_filter_continues_and_is_counted() {
    for action in ["kill", "errno", "trap"] {
        let dir = scratch();
        let report = run(dir.path(), [action, "seccomp", "fork"]);
        assert_eq!((report.traces.len(), report.unrecorded_processes), (1, 1), "{action}");
        assert_eq!(mallocs_of(&events(&report.traces[0]), 505), PAIRS, "{action}");
    }
}

/// The executed program cannot read the filters that it inherits, so it is not recorded.
#[test]
fn a_program_executed_under_a_filter_continues_unrecorded() {
    let dir = scratch();
    let program = compile(dir.path(), "filtered", &[]);
    for action in ["kill", "errno", "trap"] {
        let words = [program.to_str().expect("UTF-8"), action, "seccomp", "exec"];
        let report = record_words(dir.path(), words);
        assert_eq!(report.exit, Some(Exit::Code(2)), "{action}: the program does not run to its end");
        assert_eq!((report.traces.len(), report.seccomp_processes), (1, 1), "{action}");
    }
}
