//! `advise`: its winner, limits, held-out traces and refusals.

use std::path::Path;

use serde_json::Value;

use crate::support::{Bench, number};

/// Three traces with different best designs.
fn three_traces() -> Bench {
    let bench = Bench::with_trace();
    bench.ok("gen server --live 4M --threads 2 --events 20k -o server.hkt");
    bench.ok("gen random-mixed --cycles 5k --ws 2000 --min 16 --max 200 -o small.hkt");
    bench
}

const TRACES: &str = "rm.hkt server.hkt small.hkt";
const GRID: &str = "--superslab 256K,1M,2M --slab 16K,64K --huge never,thp";

/// Runs `advise` with a limit, whose words would otherwise be split.
fn advise(bench: &Bench, line: &str, limits: &[&str]) -> (Option<i32>, Value) {
    let mut command = bench.command(&format!("advise {line} --format json"));
    for limit in limits {
        command.args(["--limit", limit]);
    }
    let output = command.output().expect("hksim starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), serde_json::from_str(&text).unwrap_or_else(|why| panic!("{line}: {why}: {text}{error}")))
}

/// Installs of each design of the grid on each trace, from a sweep: `[trace][design]`.
fn table(bench: &Bench, path: &str) -> Vec<Vec<f64>> {
    let sweep = bench.json(&format!("sweep {TRACES} {GRID}"));
    let rows: Vec<f64> =
        sweep["rows"].as_array().expect("rows").iter().map(|row| number(row, path).max(1) as f64).collect();
    rows.chunks(12).map(<[f64]>::to_vec).collect()
}

/// Product of a design's amounts over some traces: it orders designs as the geometric mean of their ratios does.
fn product(table: &[Vec<f64>], traces: &[usize], design: usize) -> f64 {
    traces.iter().map(|&trace| table[trace][design]).product()
}

#[test]
fn the_winner_and_the_held_out_regrets_are_those_of_a_sweep() {
    let bench = three_traces();
    let (code, advice) = advise(&bench, &format!("{TRACES} {GRID} --tie 0%"), &[]);
    assert_eq!((code, advice["is_complete"].as_bool(), number(&advice, "designs")), (Some(0), Some(true), 12));
    let installs = table(&bench, "installs.total");
    let best = |traces: &[usize]| (0..12).map(|design| product(&installs, traces, design)).fold(f64::MAX, f64::min);
    let own: f64 =
        advice["winner"]["figures"].as_array().expect("figures").iter().map(|f| number(f, "installs") as f64).product();
    assert!((own / best(&[0, 1, 2]) - 1.0).abs() < 1e-9, "{own}");
    for (trace, held) in advice["held_out"].as_array().expect("held-out traces").iter().enumerate() {
        let others: Vec<usize> = (0..3).filter(|&other| other != trace).collect();
        let least = best(&others);
        let regrets: Vec<f64> = (0..12)
            .filter(|&design| product(&installs, &others, design) <= least * (1.0 + 1e-9))
            .map(|design| installs[trace][design] / best(&[trace]) - 1.0)
            .collect();
        // Of designs that are equal on the others, any may be chosen.
        let regret = held["regret"].as_f64().expect("a regret");
        assert!(regrets.iter().any(|one| (one - regret).abs() < 1e-9), "{held}: {regrets:?}");
    }
}

#[test]
fn limits_are_met_on_every_trace_and_their_cost_is_stated() {
    let bench = three_traces();
    let (code, free) = advise(&bench, &format!("{TRACES} {GRID}"), &[]);
    assert_eq!(code, Some(0));
    let (code, advice) = advise(&bench, &format!("{TRACES} {GRID}"), &["rss -30%"]);
    assert_eq!(code, Some(0));
    for front in advice["front"].as_array().expect("a front").iter().chain([&advice["winner"]]) {
        let pairs = front["figures"]
            .as_array()
            .expect("figures")
            .iter()
            .zip(advice["default"]["figures"].as_array().expect("figures"));
        for (own, default) in pairs {
            let (own, default) = (number(own, "rss_bytes_peak") as f64, number(default, "rss_bytes_peak") as f64);
            assert!(own <= 0.7 * default, "{front}");
        }
    }
    let installs = |advice: &Value| -> f64 {
        advice["winner"]["figures"].as_array().expect("figures").iter().map(|f| number(f, "installs") as f64).product()
    };
    let expected = (installs(&free) / installs(&advice)).powf(1.0 / 3.0);
    let stated = advice["limits"][0]["goal_ratio_without"].as_f64().expect("a ratio");
    assert!(expected < 1.0 && (stated / expected - 1.0).abs() < 1e-9, "{stated} {expected}");

    let (code, none) = advise(&bench, &format!("rm.hkt {GRID}"), &["rss 4K", "vmas +0%"]);
    assert_eq!((code, &none["winner"]), (Some(1), &Value::Null));
    assert_eq!(number(&none["limits"][0], "designs_within"), 0);
}

#[test]
fn words_that_exclude_each_other_are_no_designs() {
    let bench = Bench::with_trace();
    // A slab is never larger than its SuperSlab.
    let why = bench.refused("advise rm.hkt --superslab 64K --slab 128K,256K");
    assert!(why.contains("no combination of these values is a design") && why.contains("slab"), "{why}");
    let (_, advice) = advise(&bench, "rm.hkt --superslab 64K,2M --slab 32K,128K --tries 2", &[]);
    assert!((1..=3).contains(&number(&advice, "designs")), "{advice}");
}

#[test]
fn a_search_is_repeatable_and_never_worse_than_the_default() {
    let bench = three_traces();
    let line = "advise rm.hkt server.hkt --tries 25 --seed 3 --format json";
    let first = bench.ok(line);
    assert_eq!(first, bench.ok(&format!("{line} --jobs 1")));
    let advice: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(advice["is_complete"], false);
    assert!(number(&advice, "designs") <= 26, "{}", advice["designs"]);
    let product = |design: &str| -> u64 {
        advice[design]["figures"]
            .as_array()
            .expect("figures")
            .iter()
            .map(|figures| number(figures, "installs"))
            .product()
    };
    assert!(product("winner") <= product("default"));
}

#[test]
fn recordings_are_advised_on_and_the_bracket_of_touches_is_tested() {
    let bench = Bench::new();
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").canonicalize().expect("the recordings");
    std::os::unix::fs::symlink(traces, bench.path("traces")).expect("a link");
    let line = "traces/sqlite-memory.hkt traces/postgres-backend.hkt traces/python-json.hkt --superslab 1M,2M --slab 32K,64K --huge never,thp";
    let (code, advice) = advise(&bench, line, &["rss +10%"]);
    assert_eq!(code, Some(0));
    assert_eq!(advice["held_out"].as_array().map(Vec::len), Some(3));
    let reasons = advice["reasons"].as_array().expect("reasons");
    let bracket = reasons.iter().find(|reason| reason["kind"] == "touch_bracket").expect("touches are assumed");
    let rules = |name: &str| bracket[name].as_array().expect("rules").len();
    assert_eq!(rules("holds") + rules("fails"), 5, "{bracket}");
    let text = bench.ok(&format!("advise {line}"));
    for part in [
        "trace held out",
        "front of installs and peak RSS",
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
        "3 traces; goal: the fewest installs; simulated all 8 designs",
    ] {
        assert!(text.contains(part), "no `{part}`: {text}");
    }
}

#[test]
fn advice_that_cannot_be_given_is_refused() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("t.script"), "a 0 5000\nf 0\n").expect("a trace");
    bench.ok("import t.script -o t.hkt");
    for (line, part) in [
        ("advise t.hkt --goal tlb-misses --tlb zen4", "t.hkt: tlb-misses: the trace does not have every access"),
        ("advise rm.hkt --goal sys-time", "sys-time: needs a profile of the target machine"),
        ("advise rm.hkt --limit rss", "expected FIGURE +N%"),
        ("advise rm.hkt --touch none,all", "--touch none,all: advise takes one value"),
        ("advise rm.hkt --thp never,madvise", "--thp never,madvise: advise takes one value, because it chooses"),
        ("advise rm.hkt --hugetlb-pool 0,1", "--hugetlb-pool 0,1: advise takes one value"),
        ("advise rm.hkt --mthp 64K=always/default", "--mthp 64K=always/default: advise takes one value"),
        ("advise rm.hkt --superslab 3M,2Q", "--superslab"),
        ("advise rm.hkt --preset default,hakmem", "starts from one preset"),
        ("advise", "TRACE.hkt"),
    ] {
        let why = bench.refused(line);
        assert!(why.contains(part), "{line}: {why}");
    }
}

/// The sentences of advice.
fn text(advice: &Value) -> String {
    advice["text"].as_array().expect("sentences").iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_default_beyond_a_limit_is_no_alternative() {
    let bench = Bench::new();
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").canonicalize().expect("the recordings");
    std::os::unix::fs::symlink(traces, bench.path("traces")).expect("a link");
    let (code, one) = advise(&bench, "traces/sqlite-memory.hkt --huge never,thp", &["rss-10%"]);
    assert_eq!((code, &one["winner"]["name"]), (Some(0), &"--huge never".into()));
    let kinds = |advice: &Value| -> Vec<String> {
        let reasons = advice["reasons"].as_array().expect("reasons").iter();
        reasons.filter_map(|reason| Some(reason["kind"].as_str()?.to_string())).collect()
    };
    assert_eq!(kinds(&one)[..2], ["default_over_limit", "best_within"], "{one}");
    assert!(!kinds(&one).iter().any(|kind| kind == "alike" || kind == "touch_bracket"), "one candidate: {one}");
    for part in [
        "The default exceeds the limit \"rss-10%\": peak RSS of 4.0 MiB, and at most 3.6 MiB is allowed (+11 %).",
        "Only `--huge never` meets the limits: installs 298 instead of 6 (x 50) with the default.",
        "Limit \"rss-10%\": met by 1 of 2 designs; without it, installs would change by -98 %.",
    ] {
        assert!(text(&one).contains(part), "no `{part}`: {}", text(&one));
    }

    let line = "traces/sqlite-memory.hkt --huge never,thp --slab 16K,32K,64K";
    let (_, several) = advise(&bench, line, &["rss-60%"]);
    assert!(text(&several).contains("Of the 3 designs that meet the limits, `--slab 16K --huge never` has the fewest"));
    assert!(!text(&several).contains("the default is better") && !kinds(&several).contains(&"better".to_string()));
    let bracket =
        several["reasons"].as_array().and_then(|reasons| reasons.iter().find(|r| r["kind"] == "touch_bracket"));
    assert_ne!(bracket.expect("touches are assumed")["other"]["settings_changed"], 0, "{several}");
    // Without winner, the text says so, too.
    let (code, none) = advise(&bench, line, &["rss 4K"]);
    assert_eq!(code, Some(1));
    assert!(text(&none).starts_with("None of 6 designs meets all limits on all traces"), "{}", text(&none));
}

/// The flag's value in the winner's policy.
fn winners(advice: &Value, setting: &str) -> Value {
    advice["winner"]["policy"][setting].clone()
}

#[test]
fn a_flag_with_one_value_binds_the_winner_the_baseline_and_the_search() {
    let bench = Bench::with_trace();
    let (_, free) = advise(&bench, "rm.hkt --tries 60", &[]);
    assert_eq!(winners(&free, "huge"), "thp", "without the flag, huge pages win");
    for line in ["rm.hkt --huge never --slab 16K,32K", "rm.hkt --huge never --tries 60"] {
        let (code, advice) = advise(&bench, line, &["installs +0%"]);
        assert_eq!(
            (code, winners(&advice, "huge"), &advice["default"]["policy"]["huge"]),
            (Some(0), "never".into(), &"never".into())
        );
        assert!(advice["front"].as_array().expect("a front").iter().all(|entry| entry["policy"]["huge"] == "never"));
        assert!(text(&advice).contains("the baseline"), "{}", text(&advice));
    }
    let (_, grid) = advise(&bench, "rm.hkt --huge never --slab 16K,32K", &[]);
    assert_eq!(number(&grid, "designs"), 2, "the baseline has a slab of 64K, which is not in the space");
    assert!(bench.ok("advise rm.hkt --huge never --slab 16K,32K").contains("baseline: the default with --huge never"));
}

#[test]
fn a_policy_file_is_the_baseline_and_the_base_of_limits() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("mine.toml"), "huge = \"never\"\nsuperslab_bytes = 1048576\n").expect("a policy");
    let mine = bench.json("sim rm.hkt --policy mine.toml");
    let (code, advice) = advise(&bench, "rm.hkt --policy mine.toml --slab 16K,32K,64K --superslab 1M,2M", &["rss -5%"]);
    let default = &advice["default"]["figures"][0];
    assert_eq!(number(default, "installs"), number(&mine, "installs.total"));
    assert_eq!(number(default, "rss_bytes_peak"), number(&mine, "rss_bytes_peak"));
    assert_eq!(advice["default"]["settings_changed"], 0);
    if code == Some(0) {
        let own = number(&advice["winner"]["figures"][0], "rss_bytes_peak") as f64;
        assert!(own <= 0.95 * number(&mine, "rss_bytes_peak") as f64, "{advice}");
    }
    // The same base without limits: the file's design is in the space and called the baseline.
    let same = bench.ok("advise rm.hkt --policy mine.toml --slab 16K,64K");
    assert!(same.contains("baseline: the default with --superslab 1M --huge never"), "{same}");
    assert!(!same.contains("(the default)") && !same.contains("with the default."), "{same}");
}

#[test]
fn a_design_whose_cost_was_not_measured_is_not_advised() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("p.toml"), crate::calibrate::profile_without_folios()).expect("a profile");
    let line = "rm.hkt --huge never,mthp-64K --profile p.toml --goal sys-time";
    let (code, advice) = advise(&bench, line, &[]);
    assert_eq!(
        (code, winners(&advice, "huge")),
        (Some(0), "never".into()),
        "one cost for all: fewer, larger folios would win"
    );
    assert!(text(&advice).contains("the profile lacks a cost for them: `--huge mthp-64K`"), "{}", text(&advice));
    let (code, advice) = advise(&bench, "rm.hkt --huge mthp-64K,never --profile p.toml", &["sys-time 10s"]);
    assert_eq!(
        (code, winners(&advice, "huge")),
        (Some(0), "never".into()),
        "an unknown figure meets no limit: {advice}"
    );
}
