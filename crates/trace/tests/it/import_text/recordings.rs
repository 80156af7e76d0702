//! Stored recordings. The counts must equal those of the independent program and those that the recording tool printed.

use crate::support::importing::{Folder, compare_counts};
use hksim_trace::info::Info;
use std::path::{Path, PathBuf};

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import").join(name)
}

#[test]
fn counts_of_recordings_equal_those_of_an_independent_program() {
    let folder = Folder::new();
    for (name, format) in [
        ("ltrace.txt", "ltrace"),
        ("ltrace-nested.txt", "ltrace"),
        ("ltrace-threads.txt.xz", "ltrace"),
        ("ltrace-stderr.txt", "ltrace"),
        ("valgrind.txt", "valgrind"),
        ("valgrind-odd.txt", "valgrind"),
        ("mtrace.txt", "mtrace"),
        ("lttng.txt", "lttng"),
        ("lttng-lost.txt.gz", "lttng"),
        ("bpftrace.txt", "bpftrace"),
        ("perf.txt", "perf"),
    ] {
        compare_counts(&folder, format, &data(name), None, name);
    }
}

/// Compares LTTng's folder of `calls.c` with babeltrace2's output for it.
#[test]
fn importing_an_lttng_folder_equals_importing_babeltraces_text() {
    let (folder, trace) = (Folder::new(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/lttng"));
    let printed = match std::process::Command::new("babeltrace2").arg(&trace).output() {
        Ok(printed) => printed.stdout,
        Err(why) => {
            let said = folder.import(&trace).err().expect("imported without babeltrace2").to_string();
            assert!(said.contains("babeltrace2"), "{said}");
            return println!("skipped: babeltrace2: {why}");
        }
    };
    let text = folder.file("lttng.txt", printed);
    compare_counts(&folder, "lttng", &text, None, "babeltrace2's text");
    let mut events = [&trace, &text].map(|path| {
        let (report, mut reader) = folder.import(path).unwrap();
        assert_eq!((report.format, report.threads, report.events), ("lttng", 3, 92));
        crate::support::read_all(&mut reader).unwrap()
    });
    let [from_folder, from_text] = &mut events;
    assert_eq!(from_folder, from_text);
    // For a damaged channel, the error contains babeltrace2's message.
    for name in ["metadata", "channel0_0"] {
        std::fs::copy(trace.join(name), folder.path().join(name)).unwrap();
    }
    folder.file("channel0_0", [0; 5000]);
    let said = folder.import(folder.path()).err().expect("a damaged channel was accepted").to_string();
    assert!(said.contains("babeltrace2: Invalid CTF magic number"), "{said}");
}

/// Other people's traces are not in the repository. They are in $HKSIM_SAMPLES, or in shared/samples next to the clone.
#[test]
fn counts_of_other_peoples_traces_equal_those_of_an_independent_program() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples");
    let samples = std::env::var_os("HKSIM_SAMPLES").map_or(beside, PathBuf::from);
    let folder = Folder::new();
    for (name, format, process) in [
        ("trace-gcc.script", "script", None),
        ("trace-emacs.script.xz", "script", None),
        ("gcc-hello.trace.xz", "wee", None),
        ("logalloc-replay.log", "logalloc", None),
        ("logalloc-replay.log", "logalloc", Some(2)),
        ("android-systemui.zip", "android", None),
    ] {
        let path = samples.join(name);
        if path.exists() {
            compare_counts(&folder, format, &path, process, name);
        } else {
            println!("skipped: {name}: not in {} (set HKSIM_SAMPLES)", samples.display());
        }
    }
}

/// The counts of `calls.c` according to its source, for a tool that sees all calls of the program and no others.
#[test]
fn ltrace_shows_the_calls_of_the_program() {
    let (_, mut reader) = Folder::new().import(&data("ltrace.txt")).unwrap();
    let info = Info::of(&mut reader).unwrap();
    // mallocs: 5 in main (with operator new), of which one fails, and 9 in each of two threads. Frees of NULL: an
    // explicit one, and those of the results of realloc(p, 0) and of the failed call.
    assert_eq!((info.mallocs, info.callocs, info.reallocs, info.aligned_allocs), (5 + 2 * 9, 1, 4, 6));
    assert_eq!((info.frees, info.frees_null, info.requests_failed, info.unknown_frees), (10 + 2 * 9, 3, 1, 0));
    assert_eq!((info.threads, info.cross_thread_frees, info.live_objects_end), (3, 2, 1));
    assert_eq!((info.quality.nested_calls, info.quality.addresses_guessed), (2, 1));
}

/// perf also records the calls of all libraries. The C++ library requests 72 704 bytes. The loader requests a block for
/// the first thread, which the second thread reuses.
#[test]
fn perf_shows_the_calls_of_the_program() {
    let (_, mut reader) = Folder::new().import(&data("perf.txt")).unwrap();
    let info = Info::of(&mut reader).unwrap();
    assert_eq!((info.mallocs, info.callocs, info.reallocs, info.aligned_allocs), (1 + 5 + 2 * 9, 1 + 1, 4, 6));
    assert_eq!((info.threads, info.requests_failed, info.quality.addresses_guessed), (3, 1, 1));
    assert_eq!((info.quality.unfinished_calls, info.quality.foreign_lines), (0, 0));
}

/// valgrind's own summary of the heap is a second oracle.
#[test]
fn valgrinds_summary_agrees() {
    for name in ["valgrind.txt", "valgrind-odd.txt"] {
        let text = std::fs::read_to_string(data(name)).unwrap();
        check_valgrind_summary(&Folder::new(), &data(name), &text);
    }
}

/// Compares with `total heap usage: 34 allocs, 33 frees, 90,661 bytes allocated` and `in use at exit: 777 bytes in 1
/// blocks`.
pub fn check_valgrind_summary(folder: &Folder, path: &Path, text: &str) {
    use hksim_trace::event::Op;
    let numbers = |label: &str| -> Vec<u64> {
        let line =
            text.lines().find_map(|line| line.split_once(label)).expect("no summary in the text").1.replace(',', "");
        line.split(' ').filter_map(|word| word.parse().ok()).collect()
    };
    let (_, mut reader) = folder.import(path).unwrap();
    let (mut allocs, mut frees, mut bytes) = (0, 0, 0);
    let mut live = std::collections::HashMap::new();
    for event in crate::support::read_all(&mut reader).unwrap() {
        match event.op {
            Op::Alloc { object, size, .. } => {
                (allocs, bytes) = (allocs + 1, bytes + size);
                live.insert(object, size);
            }
            // valgrind counts a realloc as an allocation and a free.
            Op::Realloc { object, size, .. } => {
                (allocs, frees, bytes) = (allocs + 1, frees + 1, bytes + size);
                live.insert(object, size);
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => {
                frees += 1;
                live.remove(&object);
            }
            _ => (),
        }
    }
    assert_eq!(numbers("total heap usage: "), [allocs, frees, bytes]);
    assert_eq!(numbers("in use at exit: "), [live.values().sum(), live.len() as u64]);
}
