//! C++'s `new` and `delete`, with allocators that implement them with `malloc` and without it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hksim_record::{Exit, Operators, Options, RecordReport, record};
use hksim_trace::event::{Event, Op};

use crate::support::{LIBRARIES, compile_cpp, events, have, scratch};

/// Sizes requested without alignment (`PLAIN`) and aligned to 64 bytes (`ALIGNED`), in 10 calls each.
const PLAIN: [u64; 6] = [1001, 1002, 1003, 1004, 1005, 1006];
const ALIGNED: [u64; 7] = [640, 1088, 1152, 1216, 1280, 1344, 1408];

fn record_operators(dir: &Path, program: &Path, words: &[&str], operators: Operators) -> RecordReport {
    let options = Options { output: dir.join("app.hkt"), operators, ..Options::default() };
    let words = std::iter::once(OsString::from(program)).chain(words.iter().map(OsString::from)).collect::<Vec<_>>();
    let report = record(&options, &words).unwrap_or_else(|why| panic!("{words:?}: {why}"));
    assert_eq!(report.exit, Some(Exit::Code(0)), "{words:?}");
    report
}

/// Checks that each call with these sizes is recorded once, with its alignment, and that each block is freed.
fn check(events: &[Event], what: &str) {
    let made = |bytes: u64, log2: u8| {
        let is_one = |event: &&Event| matches!(event.op, Op::Alloc { size, align_log2, .. } if size == bytes && align_log2 == log2);
        events.iter().filter(is_one).count()
    };
    for size in PLAIN {
        assert_eq!(made(size, 0), 10, "{what}: {size} bytes");
    }
    for size in ALIGNED {
        assert_eq!(made(size, 6), 10, "{what}: {size} bytes");
    }
    let mut live = std::collections::HashSet::new();
    for event in events {
        match event.op {
            Op::Alloc { object, size, .. } if PLAIN.contains(&size) || ALIGNED.contains(&size) => {
                live.insert(object);
            }
            Op::Free { object } => {
                live.remove(&object);
            }
            _ => {}
        }
    }
    assert!(live.is_empty(), "{what}: {} blocks were never freed", live.len());
}

fn linked_with(dir: &Path, library: &str) -> Option<PathBuf> {
    let path = Path::new(LIBRARIES).join(library);
    if !path.exists() {
        eprintln!("skipped: {library} is not installed");
        return None;
    }
    have("g++").then(|| compile_cpp(dir, "operators", &["-Wl,--no-as-needed", path.to_str().expect("UTF-8")]))
}

/// Checks that the library is detected, and that exceptions of operators unwind through the recorder.
fn check_library(library: &str, words: &[&str]) {
    let dir = scratch();
    let Some(program) = linked_with(dir.path(), library) else {
        return;
    };
    let report = record_operators(dir.path(), &program, words, Operators::Auto);
    let trace = &report.traces[0];
    check(&events(trace), library);
    let quality = trace.quality;
    assert_eq!((quality.unknown_frees, quality.reuse_repaired, quality.events_lost), (0, 0, 0), "{quality:?}");
    assert!(report.unseen_operators.is_empty());
    let allocator = trace.allocator.as_ref().expect("the allocator is known").to_string_lossy().into_owned();
    assert!(allocator.contains(library.split('.').next().expect("a name")), "{allocator}");
}

#[test]
fn jemalloc_is_recorded_in_full() {
    check_library("libjemalloc.so.2", &[]);
}

#[test]
fn tcmalloc_is_recorded_in_full() {
    check_library("libtcmalloc_minimal.so.4", &[]);
}

#[test]
fn mimalloc_is_recorded_in_full() {
    // mimalloc's C build aborts instead of throwing an exception.
    check_library("libmimalloc.so.2.0", &["no-throw"]);
}

#[test]
fn libstdcxx_is_recorded_once() {
    if !have("g++") {
        return;
    }
    let dir = scratch();
    let program = compile_cpp(dir.path(), "operators", &[]);
    for operators in [Operators::Auto, Operators::Always] {
        let report = record_operators(dir.path(), &program, &[], operators);
        check(&events(&report.traces[0]), &format!("{operators:?}"));
        assert_eq!((report.traces[0].quality.reuse_repaired, report.traces[0].quality.unknown_frees), (0, 0));
    }
}

#[test]
fn operators_without_a_record_are_reported() {
    let dir = scratch();
    let Some(program) = linked_with(dir.path(), "libjemalloc.so.2") else {
        return;
    };
    // The recorder cannot know which program the shell will start.
    let words = ["-c".to_string(), format!("{}; true", program.display())];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let hidden = record_operators(dir.path(), Path::new("/bin/sh"), &words, Operators::Auto);
    assert_eq!(hidden.unseen_operators.len(), 1, "{hidden:?}");
    let seen = record_operators(dir.path(), Path::new("/bin/sh"), &words, Operators::Always);
    assert!(seen.unseen_operators.is_empty());
    let own = program.to_string_lossy();
    let trace = seen.traces.iter().find(|trace| trace.command.first().is_some_and(|word| *word == own));
    check(&events(trace.expect("the program's trace")), "through a shell");
}

/// A C program loads a C++ library while the operators are interposed. The lookup then finds no definition after the
/// recorder's.
#[test]
fn a_library_loaded_later_has_working_operators() {
    if !have("g++") {
        return;
    }
    let dir = scratch();
    let library = compile_cpp(dir.path(), "plugin", &["-shared", "-fPIC"]);
    let program = crate::support::compile(dir.path(), "pitfalls", &["-ldl"]);
    let words = ["libraries", library.to_str().expect("UTF-8")];
    let report = record_operators(dir.path(), &program, &words, Operators::Always);
    assert_eq!(crate::support::mallocs_of(&events(&report.traces[0]), 4700), 400);
    assert_eq!(report.traces[0].quality.unknown_frees, 0);
}
