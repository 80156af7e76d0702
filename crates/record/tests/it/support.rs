//! Helpers that compile C programs, record commands and read traces.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use hksim_record::{Options, RecordReport, RecordedTrace, record};
use hksim_trace::event::{AllocCall, Event, Op};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use tempfile::TempDir;

/// Debian's directory of shared libraries.
pub const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// A temporary directory, which is removed after the test.
pub fn scratch() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Compiles `tests/c/NAME.c` into `dir`, with additional compiler arguments.
pub fn compile(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    compile_with(dir, name, ".c", flags)
}

/// Compiles `tests/c/NAME.cc` into `dir`, with additional compiler arguments.
pub fn compile_cpp(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    compile_with(dir, name, ".cc", flags)
}

fn compile_with(dir: &Path, name: &str, ending: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}{ending}"));
    let output = dir.join(name);
    let common: &[&str] = &["-O1", "-g", "-fno-builtin", "-Wall", "-pthread"];
    hksim_testkit::compile(source, &output, &[common, flags].concat()).expect("a compiler");
    output
}

/// Records a command into `dir/app.hkt`.
pub fn record_words<S: Into<OsString>>(dir: &Path, words: impl IntoIterator<Item = S>) -> RecordReport {
    let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    let options = Options { output: dir.join("app.hkt"), ..Options::default() };
    record(&options, &words).unwrap_or_else(|why| panic!("{words:?}: {why}"))
}

/// All events of a trace.
pub fn events(trace: &RecordedTrace) -> Vec<Event> {
    read(&trace.path)
}

/// All events of a trace file, which must be complete.
pub fn read(path: &Path) -> Vec<Event> {
    let mut reader = TraceReader::open(path).expect("a readable trace");
    assert_eq!(reader.tail(), None, "{} is truncated", path.display());
    let mut events = Vec::new();
    while let Some(batch) = reader.next_batch().expect("a readable trace") {
        events.extend_from_slice(batch);
    }
    events
}

/// Allocations by `malloc` of this size.
pub fn mallocs_of(events: &[Event], bytes: u64) -> usize {
    let is_one = |event: &&Event| matches!(event.op, Op::Alloc { size, call: AllocCall::Malloc, .. } if size == bytes);
    events.iter().filter(is_one).count()
}

/// Whether a program can be started; prints a message to stderr if not.
pub fn have(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program} >/dev/null")]).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// The directory of logs in a session.
pub fn logs_in(session: &Path) -> PathBuf {
    let entries = std::fs::read_dir(session).expect("a session").flatten().map(|entry| entry.path());
    let is_logs = |path: &PathBuf| path.file_name().is_some_and(|name| name.len() == 32) && path.is_dir();
    entries.into_iter().find(is_logs).expect("a directory of logs")
}
