//! Files of other tools that contain no events and cannot be imported. They are recognised so that the error can say
//! what to do instead.

use super::input::Head;
use super::memray;
use crate::error::TraceError;
use std::path::Path;

/// A kind of file that has no events.
struct Kind {
    name: &'static str,
    recognise: fn(&Head) -> bool,
    remedy: &'static str,
}

const RECORD: &str = "record the program's calls: hksim record -- PROGRAM (docs/reference/import.md lists the tools whose traces can be imported)";

const RECORD_JAVA: &str = "the Java heap is not managed by malloc; record what the process asks of the kernel: hksim record --memory -- java ...";

const KINDS: &[Kind] = &[
    Kind {
        name: "a heap profile of jemalloc, which holds only sums, no events",
        recognise: |head| first_line(head).starts_with("heap_v2/"),
        remedy: RECORD,
    },
    Kind {
        name: "a heap profile in pprof's text form, which holds only sums, no events",
        recognise: |head| first_line(head).starts_with("heap profile:"),
        remedy: RECORD,
    },
    Kind {
        // profile.proto begins with the sample type (field 1) or, written by Go, with the period type (field 11).
        // Either is a message of two small numbers.
        name: "a profile in pprof's form, which holds only sums, no events",
        recognise: |head| matches!(head.bytes(), [0x0A | 0x5A, 4, 8, _, 0x10, _, ..]),
        remedy: RECORD,
    },
    Kind {
        name: "a heap profile of valgrind's massif, which holds only sums, no events",
        recognise: |head| first_line(head).starts_with("desc:") && head.lines().nth(1).is_some_and(is_command),
        remedy: "run valgrind with --trace-malloc=yes instead of --tool=massif, or hksim record",
    },
    Kind {
        name: "a heap profile of DHAT, which holds only sums, no events",
        recognise: |head| first_key(head).starts_with("{\"dhatFileVersion\""),
        remedy: "run valgrind with --trace-malloc=yes instead of --tool=dhat, or hksim record (both also for dhat-rs)",
    },
    Kind {
        name: "the output of ms_print, a report that holds only sums, no events",
        recognise: |head| head.lines().any(|line| line.starts_with("ms_print arguments:")),
        remedy: "run valgrind with --trace-malloc=yes instead of --tool=massif, or hksim record",
    },
    Kind {
        name: "a report of the mtrace script, which lists only what was not freed",
        recognise: |head| {
            // Lines about frees of unknown blocks come first.
            let mut lines = head.lines().skip_while(|line| line.starts_with("- 0x") || line.starts_with("+ 0x"));
            matches!(lines.next(), Some("Memory not freed:" | "No memory leaks."))
        },
        remedy: "import the file that the program wrote, which MALLOC_TRACE named",
    },
    Kind {
        name: "a heap profile of Java (hprof), which holds objects of the Java heap, no events",
        recognise: |head| head.bytes().starts_with(b"JAVA PROFILE "),
        remedy: RECORD_JAVA,
    },
    Kind {
        name: "a heap profile of Java in pprof's text form (heapz), which holds only sums, no events",
        recognise: |head| first_line(head).starts_with("--- heapz "),
        remedy: RECORD_JAVA,
    },
    Kind {
        name: "a file of memray that holds only sums, no events",
        recognise: memray::is_aggregated,
        remedy: "record again without --aggregate",
    },
    Kind {
        name: "a binary file of perf, which only perf reads",
        recognise: |head| head.bytes().starts_with(b"PERFILE2"),
        remedy: "if it has probes on malloc, import the output of `perf script --ns -F comm,pid,tid,cpu,time,event,trace` (docs/reference/import.md)",
    },
];

fn first_line(head: &Head) -> &str {
    head.lines().next().unwrap_or_default()
}

/// The beginning of a JSON file, without white space.
fn first_key(head: &Head) -> String {
    head.bytes().iter().filter(|byte| !byte.is_ascii_whitespace()).take(64).map(|&byte| char::from(byte)).collect()
}

fn is_command(line: &str) -> bool {
    line.starts_with("cmd:")
}

/// The error for a file of one of these kinds; `None` for other files.
pub(super) fn refusal(path: &Path, head: &Head) -> Option<TraceError> {
    let kind = KINDS.iter().find(|kind| (kind.recognise)(head))?;
    Some(TraceError::HoldsNoEvents { path: path.to_path_buf(), kind: kind.name, remedy: kind.remedy })
}
