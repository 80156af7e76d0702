//! Compiles and records programs, and reads recordings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hksim_memory_record::{
    HugePages, MemoryRecordError, Options, RecordingReport, SnapshotsOf, Source, Streams, record,
};
use hksim_memory_trace::{Event, Op, Reader, TouchKind};
use hksim_testkit::compile;
use tempfile::TempDir;

/// Programs that change memory in unusual ways, by their first argument.
pub const MAPPINGS: &str = "../../../../tools/memory-grid/programs/mappings.c";

/// Compiles a program of this directory, or by a path from it; `None`, with the reason printed, without a compiler.
pub fn compiled(directory: &Path, source: &str) -> Option<PathBuf> {
    compiled_with(directory, source, &["-O1"])
}

/// [`compiled`] with options of the compiler.
pub fn compiled_with(directory: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(source);
    let program = directory.join(source.file_stem().expect("a source"));
    compile(source, &program, &[flags, &["-pthread"]].concat())?;
    Some(program)
}

/// A directory and a compiled program in it.
pub fn with_program(source: &str) -> Option<(TempDir, PathBuf)> {
    let directory = TempDir::new().expect("a directory");
    let program = compiled(directory.path(), source)?;
    Some((directory, program))
}

/// Options for a program with fixed addresses whose output goes to `FILE.output`.
pub fn options(file: &Path, source: Source) -> Options {
    Options {
        output: file.to_path_buf(),
        fixes_addresses: true,
        huge_pages: HugePages::Off,
        duration: None,
        directory: None,
        shown_thp_mode: None,
        variables: Vec::new(),
        streams: Streams::Job { input: String::new(), output: file.with_extension("output") },
        snapshots_of: SnapshotsOf::Nothing,
        source,
        stack_depth: None,
    }
}

/// Records a program; `None`, with the reason printed, where this machine does not permit it.
pub fn recorded(options: &Options, program: &Path, arguments: &[&str]) -> Option<RecordingReport> {
    let mut command: Vec<OsString> = vec![program.into()];
    command.extend(arguments.iter().map(OsString::from));
    match record(options, &command) {
        Ok(report) => Some(report),
        Err(
            why @ (MemoryRecordError::NotPermitted { .. }
            | MemoryRecordError::FaultsForbidden { .. }
            | MemoryRecordError::TracingForbidden { .. }),
        ) => {
            eprintln!("skipped: {why}");
            None
        }
        Err(why) => panic!("{}: {why}", program.display()),
    }
}

/// The events of a recording.
pub fn events(path: &Path) -> Vec<Event> {
    let mut reader = Reader::open(path).expect("a recording");
    let (mut all, mut chunk) = (Vec::new(), Vec::new());
    while reader.next_chunk(&mut chunk).expect("events") {
        all.append(&mut chunk);
    }
    all
}

/// The operations of a recording. Accesses are unknown, as if no recording told reads from writes.
pub fn operations(path: &Path) -> Vec<Op> {
    let without_kind = |op| match op {
        Op::Touch { page, .. } => Op::Touch { page, kind: TouchKind::Unknown },
        other => other,
    };
    events(path).into_iter().map(|event| without_kind(event.op)).collect()
}

/// Whether this process has root's rights.
pub fn is_root() -> bool {
    // SAFETY: reads a number.
    unsafe { libc::geteuid() == 0 }
}
