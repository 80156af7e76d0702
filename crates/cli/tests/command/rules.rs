//! `hksim rules`: scripts predicted and executed. The figures come from the specification of the kernel rules.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::Bench;

/// Part of a huge page dropped, then all of it written (R7).
const SCRIPT: &str = "# R7\nthp madvise\nadv HUGEPAGE 0 512\nw 0 1 1\nadv DONTNEED 0 16\nw 0 512 1\nend\nnot read\n";

fn with_script(text: &str) -> Bench {
    let bench = Bench::new();
    std::fs::write(bench.path("s.txt"), text).expect("a script");
    bench
}

#[test]
fn a_script_is_predicted_without_execution() {
    let bench = with_script(SCRIPT);
    let result = bench.json("rules --script s.txt --predict-only");
    let did = |ret, minflt, traps| json!({"ret": ret, "errno": null, "faults": minflt, "traps": traps});
    let ops: Vec<&Value> = result["ops"].as_array().expect("operations").iter().map(|op| &op["predicted"]).collect();
    assert_eq!(ops, [&did(0, 0, 0), &did(0, 1, 1), &did(0, 0, 0), &did(0, 16, 16)]);
    assert_eq!(result["ops"][2]["op"], "adv DONTNEED 0 16");
    assert_eq!(result["verdict"], "predicted");
    assert_eq!(result["measured"], Value::Null);
    let left = &result["predicted"];
    assert_eq!(left["pages"], json!([["base", 16], ["mthp", 496], ["none", 3584]]));
    assert_eq!((&left["rss_bytes"], &left["anon_huge_bytes"], &left["vmas"]), (&json!(2 << 20), &json!(0), &json!(2)));
}

#[test]
fn the_kernel_version_determines_the_prediction() {
    // R8: before 6.14 an empty table stays, so no huge page is installed.
    let bench = with_script("w 512 1 1\nadv HUGEPAGE 512 512\nadv DONTNEED 512 512\nw 512 512 1\n");
    let faults = |kernel: &str| {
        let result = bench.json(&format!("rules --script s.txt --predict-only --kernel {kernel}"));
        result["ops"][3]["predicted"]["faults"].clone()
    };
    assert_eq!((faults("6.12"), faults("6.18")), (json!(512), json!(1)));
    assert!(bench.refused("rules --script s.txt --predict-only --kernel 2.6").contains("choose from 5.15"));
}

#[test]
fn a_script_is_executed_if_possible() {
    let bench = with_script(SCRIPT);
    let mut command = bench.command("rules --script - --format json");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("hksim starts");
    // Larger folios would fill the hole with fewer faults.
    let modes: String = (2..9).map(|order| format!("mthp {} never\n", 4 << order)).collect();
    let script = modes + SCRIPT;
    child.stdin.take().expect("stdin is piped").write_all(script.as_bytes()).expect("hksim reads");
    let output = child.wait_with_output().expect("hksim ends");
    assert!(output.status.success());
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    if result["verdict"] == "skipped" {
        return eprintln!("skipped: {}", result["reason"]);
    }
    assert_eq!(result["verdict"], "equal");
    // The kernel's own figures, not the model's.
    assert_eq!(result["ops"][3]["measured"], json!({"ret": 0, "errno": null, "faults": 16, "traps": 16}));
    assert_eq!(result["measured"]["rss_bytes"], 2 << 20);
}

#[test]
fn scripts_that_need_other_modes_are_skipped_with_a_reason() {
    let bench = with_script("pool 123456\nw 0 1 1\n");
    let result = bench.json("rules --script s.txt");
    assert_eq!(result["verdict"], "skipped");
    assert!(!result["reason"].as_str().unwrap_or_default().is_empty(), "{result}");
}

#[test]
fn bad_scripts_are_refused_with_their_line() {
    for (text, message) in [
        ("w 0 1 1\nfrob 1", "line 2"),
        ("w 0 5000 1", "outside the arena"),
        ("w 0 1 1\nthp always", "before the first operation"),
        ("", "the script has no operations"),
        ("end", "the script has no operations"),
    ] {
        let bench = with_script(text);
        let line = bench.refused("rules --script s.txt");
        assert!(line.contains(message) && line.contains("s.txt"), "{text}: {line}");
    }
    let bench = with_script(&"w 0 1 1\n".repeat(4001));
    assert!(bench.refused("rules --script s.txt").contains("split it"));
    assert!(bench.refused("rules --script missing.txt").contains("missing.txt"));
    assert!(bench.refused("rules --random 0 --all-modes").contains("--set-modes"));
    assert!(bench.refused("rules --predict-only").contains("--script"));
}

#[test]
fn random_scripts_are_reported_with_their_seed() {
    let bench = Bench::new();
    let ran = bench.run("rules --random 3 --seed 7 --ops 2 --format json");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    if ran.stdout.is_empty() {
        return eprintln!("{}", ran.stderr);
    }
    let result: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((&result["seed"], &result["failures"]), (&json!(7), &json!([])));
    assert!(result["operations"].as_u64() <= Some(6));
}
