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
    let traces = names(&bench.path("many.hkt.processes"));
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

/// A purge gives the shared page up, and the next write needs a page that the pool no longer has.
#[test]
fn a_hugetlb_pool_too_small_for_copies_after_a_fork_is_an_error() {
    let bench = Bench::new();
    std::fs::write(bench.path("calls.txt"), "a 0 200000\nf 0\na 1 200000\n").expect("the calls");
    bench.ok("import calls.txt --from script -o calls.hkt");
    let policy = "--huge hugetlb --superslab 2M --purge dontneed --purge-delay 0ns --purge-spans yes --meta sidecar";
    let why = bench.refused(&format!("sim calls.hkt {policy} --hugetlb-pool 1 --fork-at 1"));
    assert!(why.contains("event 3: the hugetlb pool has no page for a write"), "{why}");
    bench.ok(&format!("sim calls.hkt {policy} --hugetlb-pool 2 --fork-at 1"));
}
