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
    assert!(text.contains("There was no stored result of this row.") && text.contains("add --update"), "{text}");
    let (code, text) = check(&bench, designs, "--update");
    assert_eq!(code, Some(1), "a stored result does not repair a budget");
    assert!(!text.contains("--update"), "{text}");
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
fn a_stored_result_of_a_newer_schema_is_refused() {
    let bench = Bench::with_trace();
    assert_eq!(check(&bench, "[design.a]\nvmas = 1000\n", "--update").0, Some(0));
    let path = bench.path("stored.json");
    let mut stored: Value = serde_json::from_slice(&fs::read(&path).expect("a result")).expect("JSON");
    stored["schema"] = 3.into();
    fs::write(&path, stored.to_string()).expect("a result");
    let why = bench.refused("check budget.toml");
    assert!(why.contains("stored.json: schema 3") && why.contains("reads schema 2"), "{why}");
    let mut sim = bench.json("sim rm.hkt");
    sim["schema"] = 3.into();
    fs::write(bench.path("sim.json"), sim.to_string()).expect("a result");
    assert!(bench.refused("sim rm.hkt --policy sim.json").contains("sim.json: schema 3"));
}

#[test]
fn an_amount_and_its_limit_are_told_apart() {
    let bench = Bench::with_trace();
    let peak = bench.json("sim rm.hkt")["rss_bytes_peak"].as_u64().expect("a peak");
    let (code, text) = check(&bench, &format!("[design.a]\nrss_peak = {}\n", peak - 1), "");
    assert_eq!(code, Some(1));
    let line = text.lines().find(|line| line.starts_with("broken: ")).expect("a broken limit");
    let (amount, most) = line.split_once(" peak RSS (at most ").expect("an amount and a limit");
    let amount = amount.rsplit_once(": ").expect("an amount").1;
    assert!(!most.starts_with(amount) && most.contains("MiB allowed"), "{line}");
    let row = text.lines().find(|line| line.contains("BROKEN")).expect("a row");
    assert_eq!(row.matches(amount).count(), 1, "the table has enough digits, too: {row}");
}

#[test]
fn budgets_that_cannot_be_checked_are_refused() {
    let bench = Bench::with_trace();
    fs::write(bench.path("t.script"), "a 0 5000\nf 0\n").expect("a trace");
    bench.ok("import t.script -o t.hkt");
    let head = "result = \"r.json\"\ntraces = [\"t.hkt\"]\n";
    for (text, part) in [
        ("".to_string(), "budget.toml: line 1: missing field"),
        (format!("{head}[design.a]\npolicy = \"none\"\nvmas = 1\n"), "design.a: policy = \"none\""),
        (format!("{head}[design.a]\npolicy = \"default+huge=never,thp\"\nvmas = 1\n"), "name one design each"),
        (format!("{head}[design.a]\npolicy = \"default\"\n"), "design.a: no limit; set at least one of"),
        (format!("{head}[design.a]\ntlb_misses = \"1k\"\n"), "design.a: tlb_misses: needs `tlb`"),
        (
            format!("{head}tlb = \"zen4\"\n[design.a]\ntlb_misses = \"1k\"\n"),
            "t.hkt: tlb_misses: the trace does not have every access",
        ),
        (format!("{head}tlb = \"x\"\n[design.a]\nvmas = 1\n"), "tlb = \"x\": cores are"),
        (
            "result = \"rm.hkt\"\ntraces = [\"t.hkt\"]\n[design.a]\nvmas = 1\n".into(),
            "rm.hkt: cannot read the stored result",
        ),
    ] {
        fs::write(bench.path("budget.toml"), &text).expect("a budget");
        let why = bench.refused("check budget.toml");
        assert!(why.contains(part), "{text}: {why}");
    }
    assert!(bench.refused("check none.toml").contains("none.toml: cannot read the budget"));
}

#[test]
fn policy_files_are_relative_to_the_budget() {
    let bench = Bench::with_trace();
    fs::create_dir(bench.path("ci")).expect("a folder");
    fs::rename(bench.path("rm.hkt"), bench.path("ci/rm.hkt")).expect("a trace");
    fs::write(bench.path("ci/p.toml"), "superslab_bytes = 1048576\n").expect("a policy");
    // Another policy of the same name, where the command runs.
    fs::write(bench.path("p.toml"), "superslab_bytes = 4194304\n").expect("a policy");
    let budget =
        "result = \"r.json\"\ntraces = [\"rm.hkt\"]\n[design.a]\npolicy = \"p.toml+slab=16K\"\nrss_peak = 99999999\n";
    fs::write(bench.path("ci/b.toml"), budget).expect("a budget");
    let policy = &bench.json("check ci/b.toml")["rows"][0]["policy"];
    assert_eq!((number(policy, "superslab_bytes"), number(policy, "slab_bytes")), (1 << 20, 16 << 10), "{policy}");
}

#[test]
fn a_truncated_trace_does_not_pass() {
    let bench = Bench::with_trace();
    let whole = fs::read(bench.path("rm.hkt")).expect("a trace");
    fs::write(bench.path("rm.hkt"), &whole[..whole.len() / 2]).expect("a trace");
    let (code, text) = check(&bench, "[design.a]\nvmas = 1000\n", "");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("rm.hkt: the trace is incomplete, so a budget cannot be checked with it"), "{text}");
}

#[test]
fn the_stored_result_is_not_replaced_by_the_output() {
    let bench = Bench::with_trace();
    let designs = "[design.a]\nvmas = 1000\n";
    assert_eq!(check(&bench, designs, "--update").0, Some(0));
    let before = fs::read(bench.path("stored.json")).expect("a stored result");
    let (code, text) = check(&bench, designs, "--format json -o stored.json");
    assert_eq!((code, fs::read(bench.path("stored.json")).expect("a stored result")), (Some(2), before), "{text}");
    fs::write(bench.path("stored.json"), "[]").expect("another file");
    for options in ["", "--update"] {
        let (code, text) = check(&bench, designs, options);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("stored.json: not a result of `hksim check --update`; remove it, or name"), "{text}");
        assert!(!text.contains("struct"), "{text}");
    }
}

#[test]
fn tables_for_programs_have_a_line_for_each_limit() {
    let bench = Bench::with_trace();
    let (code, csv) = check(&bench, "[design.a]\nvmas = 1000\nrss_peak = 4096\n", "--format csv");
    assert_eq!(code, Some(1), "{csv}");
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().expect("a head");
    let place = |name: &str| head.iter().position(|known| *known == name).unwrap_or_else(|| panic!("no {name}: {csv}"));
    let cells = ["limit_metric", "limit_most", "limit_is_within"].map(place);
    let rows: Vec<[&str; 3]> = lines.map(|line| cells.map(|cell| line[cell])).collect();
    assert_eq!(rows, [["rss_peak", "4096.0", "false"], ["vmas", "1000.0", "true"]], "{csv}");
    assert!(csv.lines().next().is_some_and(|head| head.contains("limit_amount")));
}
