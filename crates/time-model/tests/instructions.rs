//! The instruction half of the time model against its oracle: callgrind's count of the preloadable object of this build.

use std::path::{Path, PathBuf};
use std::process::Command;

use hksim_embedded::ALLOCATOR;
use hksim_time_model::TABLE_COMPILER;

/// Designs over both variants of the allocator; `tools/path-costs/path_costs.py` has their flags.
const DESIGNS: &str = "default,superslab 1M,header full,front cache 8";

fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|ran| ran.status.success())
}

/// The example that counts and replays, which cargo builds beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("the test's file");
    test.with_file_name("../examples/path_costs")
}

/// Costs belong to one binary: another compiler makes another.
fn is_of_the_table() -> bool {
    ALLOCATOR.windows(TABLE_COMPILER.len()).any(|bytes| bytes == TABLE_COMPILER.as_bytes())
}

#[test]
fn the_sum_over_paths_is_what_callgrind_counts() {
    for program in ["valgrind", "python3"] {
        if !runs(program) {
            return eprintln!("skipped: {program} is not installed (apt install {program})");
        }
    }
    if !is_of_the_table() {
        return eprintln!(
            "skipped: the costs of paths were measured with {TABLE_COMPILER}, and the allocator was compiled by another; \
             measure them again with tools/path-costs/path_costs.py measure"
        );
    }
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/path-costs/path_costs.py");
    let ran = Command::new("python3")
        .arg(tool)
        .arg("check")
        .arg("--program")
        .arg(program())
        .args(["--recordings", "sqlite-memory"])
        .args(["--designs", DESIGNS])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 runs");
    let table = String::from_utf8_lossy(&ran.stdout);
    println!("{table}");
    assert!(
        ran.status.success(),
        "predictions are off by more than 1 %. If the allocator's code changed, measure the costs of its paths again with \
         tools/path-costs/path_costs.py measure.\n{table}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
