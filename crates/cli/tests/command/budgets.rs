//! `check`: a budget that holds, breaks and is repaired.

use std::fs;

use serde_json::Value;

use crate::support::{Bench, number};

/// Runs `check` on a budget with these design sections. Returns the exit status and the text.
fn check(bench: &Bench, designs: &str, options: &str) -> (Option<i32>, String) {
    let text = format!("result = \"stored.json\"\ntraces = [\"rm.hkt\"]\ntlb = \"zen4\"\n{designs}");
    fs::write(bench.path("budget.toml"), text).expect("a budget");
    let ran = bench.run(&format!("check budget.toml {options}"));
    (ran.code, ran.stdout + &ran.stderr)
}

#[test]
fn a_budget_breaks_and_is_repaired() {
    let bench = Bench::with_trace();
    let sim = bench.json("sim rm.hkt --huge never --tlb zen4");
    let info = bench.json("info rm.hkt");
    let calls: u64 = ["mallocs", "callocs", "reallocs", "aligned_allocs"].iter().map(|name| number(&info, name)).sum();
    let installs = number(&sim, "installs.total");
    let per_1000 = installs as f64 * 1000.0 / calls as f64;
    let misses = number(&sim, "tlb.lookups.application.misses") + number(&sim, "tlb.lookups.allocator.misses");
    let (rss, vmas) = (number(&sim, "rss_bytes_peak"), number(&sim, "vmas_peak"));
    let design = |policy: &str, installs: f64, rss: u64| {
        format!(
            "[design.today]\npolicy = \"{policy}\"\ninstalls_per_1000_allocations = {installs}\nrss_peak = \"{rss}\"\nvmas = {vmas}\ntlb_misses = \"{misses}\"\n"
        )
    };
    // Limits that are met exactly.
    let (code, text) = check(&bench, &design("default+huge=never", per_1000, rss), "--update");
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches(" ok").count(), 5, "{text}");

    // One page less than needed.
    let (code, text) = check(&bench, &design("default+huge=never", per_1000, rss - 4096), "");
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("broken: today on rm.hkt: ") && text.contains("Nothing changed since the stored result."),
        "{text}"
    );
    assert_eq!(text.matches("BROKEN").count(), 1, "{text}");

    // A policy that needs more, compared with the stored result.
    let (code, text) = check(&bench, &design("default+huge=never+header=full", per_1000, rss), "");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("Since the stored result: --header none -> full, installs "), "{text}");

    // Repaired.
    let (code, text) = check(&bench, &design("default+huge=never", per_1000, rss), "");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("budget: ok\n") && !text.contains("broken:"), "{text}");
}

#[test]
fn changes_since_the_stored_result_are_named() {
    let bench = Bench::with_trace();
    let designs = "[design.a]\nvmas = 1\n[design.b]\npolicy = \"default+huge=never\"\nvmas = 1000\n";
    let (code, text) = check(&bench, designs, "");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("There is no stored result of this row; --update writes one."), "{text}");
    assert_eq!(check(&bench, designs, "--update").0, Some(1), "a stored result does not repair a budget");
    // Another trace under the same name.
    bench.ok("gen random-mixed --cycles 20k --ws 400 --min 100 --max 3k --seed 7 -o rm.hkt");
    let (_, text) = check(&bench, designs, "");
    assert!(text.contains("Since the stored result: another trace (checksum "), "{text}");
    // Another version.
    let path = bench.path("stored.json");
    let mut stored: Value = serde_json::from_slice(&fs::read(&path).expect("a result")).expect("JSON");
    stored["hksim_version"] = "0.0.1".into();
    fs::write(&path, stored.to_string()).expect("a result");
    assert!(check(&bench, designs, "").1.contains("hksim 0.0.1 -> "));
    // The same files elsewhere, checked from outside their folder.
    bench.ok("gen random-mixed --cycles 20k --ws 400 --min 100 --max 3k --seed 7 -o rm.hkt");
    check(&bench, designs, "--update");
    fs::create_dir(bench.path("ci")).expect("a folder");
    for name in ["budget.toml", "stored.json", "rm.hkt"] {
        fs::rename(bench.path(name), bench.path("ci").join(name)).expect("a file");
    }
    let ran = bench.run("check ci/budget.toml");
    assert!(ran.stdout.contains("Nothing changed since the stored result."), "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn budgets_that_cannot_be_checked_are_refused() {
    let bench = Bench::with_trace();
    fs::write(bench.path("t.script"), "a 0 5000\nf 0\n").expect("a trace");
    bench.ok("import t.script -o t.hkt");
    let head = "result = \"r.json\"\ntraces = [\"t.hkt\"]\n";
    for (text, part) in [
        ("".to_string(), "budget.toml: line 1: missing field"),
        (format!("{head}[design.a]\npolicy = \"none\"\n"), "design.a: policy = \"none\""),
        (format!("{head}[design.a]\npolicy = \"default+huge=never,thp\"\n"), "name one design each"),
        (format!("{head}[design.a]\ntlb_misses = \"1k\"\n"), "design.a: tlb_misses: needs `tlb`"),
        (
            format!("{head}tlb = \"zen4\"\n[design.a]\ntlb_misses = \"1k\"\n"),
            "t.hkt: tlb_misses: the trace does not have every access",
        ),
        (format!("{head}tlb = \"x\"\n[design.a]\n"), "tlb = \"x\": cores are"),
        ("result = \"rm.hkt\"\ntraces = [\"t.hkt\"]\n[design.a]\n".into(), "rm.hkt: cannot read the stored result"),
    ] {
        fs::write(bench.path("budget.toml"), &text).expect("a budget");
        let why = bench.refused("check budget.toml");
        assert!(why.contains(part), "{text}: {why}");
    }
    assert!(bench.refused("check none.toml").contains("none.toml: cannot read the budget"));
}
