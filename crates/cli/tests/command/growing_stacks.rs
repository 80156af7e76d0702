//! The main stack under other THP modes, against a program that counts its own page faults.

use std::process::Command;

use crate::support::recordings::{can_record, data};
use crate::support::{Bench, number};

const BYTES: u64 = 6 << 20;

/// The number in the last line that the program prints.
fn printed(output: &str) -> u64 {
    output.lines().last().and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("a number of faults: {output}"))
}

#[test]
fn faults_on_the_main_stack_are_those_that_the_program_counts() {
    let bench = Bench::new();
    let modes = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let Some(mode) = ["always", "madvise"].into_iter().find(|mode| modes.contains(&format!("[{mode}]"))) else {
        return eprintln!("skipped: huge pages are off: {modes}");
    };
    if !can_record() {
        return;
    }
    let (source, program) = (data("stack-array.c"), bench.path("stack"));
    match Command::new("cc").args(["-O1", "-fno-builtin", "-o"]).arg(&program).arg(source).status() {
        Ok(status) => assert!(status.success(), "the program compiles"),
        Err(why) => return eprintln!("skipped: no C compiler: {why}"),
    }
    for (direction, advice) in [("up", "advised"), ("up", "plain"), ("down", "plain")] {
        let words = [BYTES.to_string(), direction.to_string(), advice.to_string()];
        let run = Command::new("setarch").arg("-R").arg(&program).args(&words).output();
        let Some(run) = run.ok().filter(|run| run.status.success()) else {
            return eprintln!("skipped: setarch -R does not run here");
        };
        let measured = printed(&String::from_utf8_lossy(&run.stdout));
        let line = format!("record --memory --no-aslr -o stack.hkm -- {} {}", program.display(), words.join(" "));
        let with_small_pages = printed(&bench.ok(&line));
        let stack = |thp: &str| number(&bench.json(&format!("sim stack.hkm --thp {thp}")), "stack.traps");
        let (small, predicted) = (stack("never"), stack(mode));
        assert_eq!(small - predicted, with_small_pages - measured, "{words:?} under {mode}");
        let gets_huge_pages = direction == "up" && (advice == "advised" || mode == "always");
        assert_eq!(predicted < small / 2, gets_huge_pages, "{words:?}: {predicted} of {small}");
    }
    let result = bench.json("sim stack.hkm --thp never");
    assert_eq!(result["traps_outside"]["growing_stack"], serde_json::Value::Null);
    assert!(bench.ok("sim stack.hkm").lines().any(|line| line.starts_with("main stack")));
}
