//! The main stack under other THP modes, against a program that counts its own page faults.

use std::fs;
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
    let program = bench.path("stack");
    if bench.compile(data("stack-array.c"), "stack", &["-O1", "-fno-builtin"]).is_none() {
        return;
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

/// Recurses as often as the file says: the memory of two runs is the same except for the stack.
const RECURSES: &str = "#include <stdio.h>\n\
    static int deep(int n) { volatile char b[4000]; b[0] = n; b[3999] = n; return n ? deep(n - 1) + b[0] : 0; }\n\
    int main(void) { static char text[16]; FILE *file = fopen(\"depth\", \"r\"); int n = 0; \
    if (!file || !fgets(text, sizeof text, file) || sscanf(text, \"%d\", &n) != 1) return 1; \
    fclose(file); return deep(n) == 12345; }\n";

#[test]
fn validation_compares_the_main_stack() {
    let bench = Bench::new();
    if !can_record() {
        return;
    }
    fs::write(bench.path("recurses.c"), RECURSES).expect("a source");
    if bench.compile("recurses.c", "recurses", &["-O0"]).is_none() {
        return;
    }
    fs::write(bench.path("depth"), "0500").expect("a file");
    bench.ok("record --memory -q -o deep.hkm -- ./recurses");
    let validate = |depth: &str| {
        fs::write(bench.path("depth"), depth).expect("a file");
        let ran = bench.run("validate deep.hkm --run-recorded --runs 2 --format json");
        let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
        result["rows"][0].clone()
    };
    let same = validate("0500");
    if same["verdict"] == "skipped" {
        return eprintln!("skipped: {}", same["reason"]);
    }
    assert_eq!((&same["verdict"], same["stacks"].as_array().map(Vec::len)), (&"ok".into(), Some(2)), "{same}");
    assert!(same["stacks"][0]["traps_measured"].as_u64().is_some_and(|traps| traps > 20), "{same}");
    let other = validate("0300");
    let reason = other["reason"].as_str().unwrap_or_default();
    // Other programs may ask for huge pages meanwhile, of a machine whose memory is in pieces.
    if other["verdict"] == "skipped" {
        return eprintln!("skipped: {reason}");
    }
    assert_eq!(other["verdict"], "failed", "{other}");
    assert!(reason.contains("stack traps ") && reason.contains("stack RSS at the exit "), "{reason}");
}
