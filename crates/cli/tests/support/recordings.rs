//! Memory recordings for tests.

use std::fs;
use std::path::{Path, PathBuf};

use super::Bench;

/// A file of `tests/data`.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A directory with the recording that is checked in, and that of its child.
pub fn with_recording() -> Bench {
    let bench = Bench::new();
    fs::copy(data("page-operations.hkm"), bench.path("ops.hkm")).expect("a recording");
    fs::create_dir(bench.path("ops.hkm.processes")).expect("a directory");
    fs::copy(data("page-operations.processes/child.hkm"), bench.path("ops.hkm.processes/child.hkm"))
        .expect("a recording");
    bench
}

/// Whether page operations can be recorded here. Otherwise prints the reason.
pub fn can_record() -> bool {
    // SAFETY: reads a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("skipped: recording page operations needs root");
    }
    is_root
}
