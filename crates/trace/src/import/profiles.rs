//! Files of other tools that an import cannot use, recognised so that the error says what to do instead.

use super::input::Head;
use super::memray;
use crate::error::TraceError;
use std::path::Path;

/// A kind of file without events.
struct Kind {
    name: &'static str,
    recognise: fn(&Head) -> bool,
    mend: &'static str,
}

const RECORD: &str = "record the program's calls: hksim record -- PROGRAM (docs/reference/import.md lists the tools whose traces can be imported)";

const KINDS: &[Kind] = &[
    Kind {
        name: "a heap profile of jemalloc, which holds sums and no events",
        recognise: |head| first_line(head).starts_with("heap_v2/"),
        mend: RECORD,
    },
    Kind {
        name: "a heap profile in pprof's text form, which holds sums and no events",
        recognise: |head| first_line(head).starts_with("heap profile:"),
        mend: RECORD,
    },
    Kind {
        // profile.proto begins with a sample type (field 1) or, by Go, with the period's (11): two small numbers.
        name: "a profile in pprof's form, which holds sums and no events",
        recognise: |head| matches!(head.bytes(), [0x0A | 0x5A, 4, 8, _, 0x10, _, ..]),
        mend: RECORD,
    },
    Kind {
        name: "a heap profile of valgrind's massif, which holds sums and no events",
        recognise: |head| first_line(head).starts_with("desc:") && head.lines().nth(1).is_some_and(is_command),
        mend: "run valgrind with --trace-malloc=yes instead of --tool=massif, or hksim record",
    },
    Kind {
        name: "a heap profile of DHAT, which holds sums and no events",
        recognise: |head| first_line(head).starts_with("{\"dhatFileVersion\""),
        mend: "run valgrind with --trace-malloc=yes instead of --tool=dhat, or hksim record",
    },
    Kind {
        name: "memray's file of sums, which holds no events",
        recognise: memray::is_aggregated,
        mend: "record again without --aggregate",
    },
    Kind {
        name: "perf's binary file, which perf alone reads",
        recognise: |head| head.bytes().starts_with(b"PERFILE2"),
        mend: "import what `perf script --ns -F comm,pid,tid,cpu,time,event,trace` prints of it, if it has probes on malloc (docs/reference/import.md)",
    },
];

fn first_line(head: &Head) -> &str {
    head.lines().next().unwrap_or_default()
}

fn is_command(line: &str) -> bool {
    line.starts_with("cmd:")
}

/// The error for a file that is recognised.
pub(super) fn refusal(path: &Path, head: &Head) -> Option<TraceError> {
    let kind = KINDS.iter().find(|kind| (kind.recognise)(head))?;
    Some(TraceError::HoldsNoEvents { path: path.to_path_buf(), kind: kind.name, mend: kind.mend })
}
