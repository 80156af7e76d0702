//! The command under resource limits.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::Bench;

/// Runs `hksim` under a shell's `ulimit`, with `script` as the last word. Spaces separate the other words.
fn limited(bench: &Bench, limit: &str, line: &str, script: &[&str]) -> Output {
    Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit {limit}; exec \"$0\" \"$@\""))
        .arg(env!("CARGO_BIN_EXE_hksim"))
        .args(line.split_whitespace())
        .args(script)
        .current_dir(bench.folder())
        .output()
        .expect("a shell")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn more_processes_are_recorded_than_file_descriptors_allow() {
    let bench = Bench::new();
    let script = "for i in $(seq 120); do /bin/echo; done; /bin/sleep 1";
    let ran = limited(&bench, "-n 48", "record -o many.hkt -- sh -c", &[script]);
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(bench.path("many.hkt").exists());
    let traces = names(&bench.path("many.processes"));
    assert!(traces.len() > 120 && traces.iter().all(|name| name.ends_with(".hkt")), "{traces:?}");
}

#[test]
fn a_file_size_limit_is_reported_and_leaves_no_file() {
    let bench = Bench::new();
    let ran = limited(&bench, "-f 100", "gen random-mixed --cycles 300k -o rm.hkt", &[]);
    let printed = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(2), "{printed}");
    assert!(printed.contains("File too large") && printed.trim_end().lines().count() == 1, "{printed}");
    assert!(names(bench.folder()).is_empty(), "{:?}", names(bench.folder()));
}
