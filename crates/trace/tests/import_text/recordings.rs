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

/// bytehound 0.11 also records the calls of all libraries. It records every function except calloc and realloc as
/// malloc. It aborts programs that call valloc or pvalloc, so this recording has malloc instead. It omits failed calls
/// and frees of NULL.
#[test]
fn bytehound_shows_the_calls_of_the_program() {
    let folder = Folder::new();
    let (report, mut reader) = folder.import(&data("bytehound.dat")).unwrap();
    assert_eq!((report.format, &report.notes[..]), ("bytehound-data", &[][..]));
    let info = Info::of(&mut reader).unwrap();
    // mallocs in main: 3 that succeed, two in place of valloc and pvalloc, 3 aligned calls, the first reallocarray and
    // two operators. Each thread has 9. The loader calls calloc once.
    assert_eq!((info.mallocs, info.callocs, info.reallocs), (4 - 1 + 2 + 3 + 1 + 2 + 2 * 9, 1 + 1, 2));
    assert_eq!((info.frees, info.unknown_frees, info.requests_failed), (8 + 1 + 2 + 2 * 9, 0, 0));
    assert_eq!((info.threads, info.cross_thread_frees, info.live_objects_end), (3, 2, 1 + 1));
    // The truncated recording of a program that was killed.
    let whole = std::fs::read(data("bytehound.dat")).unwrap();
    let cut =
        folder.import(&folder.file("cut.dat", &whole[..whole.len() - 1])).err().expect("it has one chunk").to_string();
    assert!(cut.contains("no allocator call") && cut.contains("killed"), "{cut}");
    // A recording without short-lived blocks. The setting in its last chunk shows that.
    let setting = b"MEMORY_PROFILER_CULL_TEMPORARY_ALLOCATIONS=1";
    let chunk =
        [&[2, 8 + setting.len() as u8, 0, 0, 0, 11, 0, 0, 0, setting.len() as u8, 0, 0, 0], &setting[..]].concat();
    let (report, _) = folder.import(&folder.file("culled.dat", [whole, chunk].concat())).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("omitted short-lived blocks")), "{:?}", report.notes);
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
