//! Predicted times, computed again in Python from the counts of the results and the profile.

use std::path::Path;
use std::process::Command;

use hksim_time_model::{CYCLES_PER_CALL, CYCLES_PER_INSTRUCTION, ORDER_ERROR_SHARE};
use serde_json::Value;

use crate::support::Bench;

/// A profile in which every operation of the kernel has a cost of its own, with costs of memory.
pub fn profile() -> String {
    let of = |ns: f64, kernel_share: f64| {
        let (low, high) = (ns * 0.9, ns * 1.3);
        format!("low_ns = {low}\nmedian_ns = {ns}\nhigh_ns = {high}\nkernel_share = {kernel_share:?}\nrounds = 9\n")
    };
    let quartiles = |ns| of(ns, 1.0);
    let mut text =
        "version = 11\nmachine = \"m\"\nprocessors = 1\nkernel = \"k\"\nelapsed_s = 1.0\nkernel_share = 0.9\n"
            .to_string();
    let lazy = ["free_page", "free_page_again", "free_huge", "free_huge_again", "rewrite_freed"];
    for (number, operation) in crate::calibrate::OPERATIONS.into_iter().chain(lazy).enumerate() {
        let share = 0.75 + 0.003 * number as f64;
        text += &format!("[costs.{operation}]\n{}", of(1200.0 + 10.0 * number as f64, share));
    }
    text += &format!("[memory.cycle]\n{}", quartiles(0.25));
    for (curve, costs) in [
        ("fill", [0.5, 1.0, 4.0]),
        ("pieces", [0.5, 1.25, 8.0]),
        ("scatter", [1.5, 1.75, 12.0]),
        ("scatter_huge", [1.5, 1.5, 9.0]),
        ("chase", [1.0, 40.0, 300.0]),
        ("chase_huge", [1.0, 40.0, 250.0]),
    ] {
        for (bytes, ns) in [1u64 << 14, 1 << 20, 1 << 27].into_iter().zip(costs) {
            text += &format!("[[memory.{curve}]]\nbytes = {bytes}\n[memory.{curve}.cost]\n{}", quartiles(ns));
        }
    }
    text
}

/// A bench with a trace and that profile, as `p.toml`.
pub fn bench() -> Bench {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("p.toml"), profile()).expect("a file");
    bench
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Instructions, memory and kernel, as Python computes them from a result.
fn recomputed(bench: &Bench, result: &Value) -> Vec<f64> {
    std::fs::write(bench.path("sim.json"), result.to_string()).expect("a file");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ran = Command::new("python3")
        .arg(folder.join("tests/oracle/time.py"))
        .args([bench.path("sim.json"), bench.path("p.toml")])
        .arg(folder.join("../time-model/src/paths.tsv"))
        .args([CYCLES_PER_INSTRUCTION, CYCLES_PER_CALL].map(|cycles| cycles.to_string()))
        .output()
        .expect("python3 runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn the_time_of_a_design_is_the_sum_of_its_counts_times_costs() {
    if !Command::new("python3").args(["-c", "import tomllib"]).status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no python3 with tomllib to compute times with");
    }
    let bench = bench();
    for flags in [
        "",
        "--huge never",
        "--huge never --purge-delay 0 --slab 16K",
        "--purge free --purge-delay 1us",
        "--huge never --purge free --purge-delay 0",
        "--huge never --prefault touch --free-order address",
        "--prefault populate --free-order fifo",
        "--front-cache 8",
        "--header full --header-bytes 16",
        "--superslab 1M --touch first --carve eager",
    ] {
        let sim = bench.json(&format!("sim rm.hkt --profile p.toml {flags}"));
        let (time, parts) = (&sim["time"], &sim["time"]["parts_ns_per_call"]);
        let ours = ["instructions", "memory", "kernel"].map(|part| number(&parts[part]));
        let theirs = recomputed(&bench, &sim);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert!(*theirs > 0.0 && (ours / theirs - 1.0).abs() < 1e-6, "{flags}: {ours} and {theirs} in {parts}");
        }
        let [low, median, high] = ["low", "median", "high"].map(|end| number(&time["ns_per_call"][end]));
        assert!((median - theirs.iter().sum::<f64>()).abs() < 1e-6 * median && low < median && median < high, "{time}");
        let total_s = number(&time["total_s"]["median"]);
        assert!((total_s * 1e9 / number(&sim["calls"]) / median - 1.0).abs() < 1e-9, "{time}");
        assert_eq!(time["profile"], "m, Linux k");
    }
    // The trace's own statistics count its calls.
    let info = bench.json("info rm.hkt");
    let calls = ["mallocs", "callocs", "reallocs", "aligned_allocs", "frees"].map(|call| number(&info[call]));
    assert_eq!(number(&bench.json("sim rm.hkt")["calls"]), calls.iter().sum::<f64>());
}

#[test]
fn a_sweep_with_a_profile_compares_times() {
    let bench = bench();
    let line = "sweep rm.hkt --huge never,thp --front-cache 0,8";
    let sweep = bench.json(&format!("{line} --profile p.toml"));
    let answer = &sweep["answers"]["per_trace"][0];
    assert_eq!(answer["goal"], "time");
    let rows = sweep["rows"].as_array().expect("rows");
    let ns = |row: &Value| number(&row["time"]["ns_per_call"]["median"]);
    let winner = answer["winner"].as_u64().expect("a winner") as usize;
    assert!(rows.iter().all(|row| ns(&rows[winner]) <= ns(row) * (1.0 + ORDER_ERROR_SHARE)), "{answer}");
    for (row, flags) in rows.iter().zip(["--front-cache 0", "--front-cache 8"]) {
        assert_eq!(row["time"], bench.json(&format!("sim rm.hkt --huge never {flags} --profile p.toml"))["time"]);
    }
    let text = bench.ok(&format!("{line} --profile p.toml --wide"));
    for part in ["ns/call", "ns instr", "ns memory", "ns kernel", "ns per call"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("T  Pareto front of ns/call and peak RSS"), "{text}");
    let is_beaten = |row: &Value| {
        let (time, rss) = (ns(row), number(&row["rss_bytes_peak"]));
        let figures = rows.iter().map(|other| (ns(other), number(&other["rss_bytes_peak"])));
        figures.into_iter().any(|other| other.0 <= time && other.1 <= rss && other != (time, rss))
    };
    let front: Vec<usize> = (0..rows.len()).filter(|&row| !is_beaten(&rows[row])).collect();
    assert_eq!(sweep["pareto_time"], Value::from(front));
    std::fs::write(bench.path("sweep.json"), sweep.to_string()).expect("a file");
    bench.ok("plot sweep.json -o sweep.svg");
    let picture = std::fs::read_to_string(bench.path("sweep.svg")).expect("a picture");
    assert!(picture.contains("ns per call, predicted") && picture.contains("front of time per call"), "{picture}");
    assert!(bench.ok(&format!("{line} --profile p.toml --format csv")).contains("time_ns_per_call_median"));
    // Without a profile there are counts alone.
    for line in [line.to_string(), format!("{line} --profile none")] {
        let sweep = bench.json(&line);
        assert_eq!(sweep["answers"]["per_trace"][0]["goal"], "installs");
        assert!(sweep["rows"][0].get("time").is_none() && sweep["rows"][0].get("lines").is_none());
    }
}

#[test]
fn advice_minimises_time_and_limits_it() {
    let bench = bench();
    let line = "advise rm.hkt --huge never,thp --front-cache 0,8 --profile p.toml";
    let advice = bench.json(line);
    assert_eq!(advice["question"]["goal"], "time");
    assert!(bench.ok(line).contains("goal: the least time"));
    let limited = bench.json(&format!("{line} --goal rss --limit time+2%"));
    let ns = |trial: &Value| number(&trial["figures"][0]["ns_per_call"]["median"]);
    assert!(ns(&limited["winner"]) <= ns(&limited["default"]) * 1.02, "{limited}");
    let refused = bench.refused("advise rm.hkt --goal time --profile none");
    assert!(refused.contains("time: needs a profile of the target machine"), "{refused}");
}

#[test]
fn a_budget_limits_time() {
    let bench = bench();
    let ns = number(&bench.json("sim rm.hkt --profile p.toml")["time"]["ns_per_call"]["median"]);
    let write = |head: &str, policy: &str, most: f64| {
        let text = format!(
            "result = \"b.json\"\ntraces = [\"rm.hkt\"]\n{head}[design.a]\npolicy = \"{policy}\"\nns_per_call = {most}\n"
        );
        std::fs::write(bench.path("b.toml"), text).expect("a budget");
    };
    let with_profile = "profile = \"p.toml\"\n";
    write(with_profile, "default", ns * 1.001);
    assert_eq!(number(&bench.json("check b.toml")["rows"][0]["limits"][0]["amount"]), ns);
    write(with_profile, "default", ns * 0.999);
    let ran = bench.run("check b.toml");
    assert!(ran.code == Some(1) && ran.stdout.contains("ns per call (at most "), "{}", ran.stdout);
    write("", "default", ns);
    assert!(bench.refused("check b.toml").contains("design.a: ns_per_call: needs `profile`"));
    write(with_profile, "default+huge=hugetlb", ns);
    assert!(bench.refused("check b.toml").contains("not measured with pages of the hugetlb pool"));
}

#[test]
fn a_time_that_is_not_known_has_a_reason() {
    let bench = bench();
    let skipped = |line: &str| {
        let sim = bench.json(line);
        assert!(sim.get("time").is_none() && sim.get("lines").is_none(), "{line}");
        sim["time_skipped"].as_str().unwrap_or_else(|| panic!("no reason: {line}")).to_string()
    };
    let pool = skipped("sim rm.hkt --huge hugetlb --profile p.toml");
    assert_eq!(pool, "the instructions of the allocator were not measured with pages of the hugetlb pool");
    let sweep = bench.ok("sweep rm.hkt --huge hugetlb,thp --profile p.toml");
    assert!(sweep.contains(&format!("no ns/call: {pool}")) && sweep.contains("in installs"), "{sweep}");
    // One timed design has none to be compared with; of three, the two that are timed are compared.
    let sweep = bench.ok("sweep rm.hkt --huge hugetlb,thp,never --profile p.toml");
    assert!(!sweep.contains("in installs") && sweep.contains("ns per call"), "{sweep}");
    assert!(sweep.contains("Not compared, because their time is not known: `--huge hugetlb`"), "{sweep}");
    let (kernel, _) =
        profile().split_once("[memory.cycle]").map(|(head, tail)| (head.to_string(), tail.len())).expect("it");
    std::fs::write(bench.path("p.toml"), kernel).expect("a file");
    assert!(skipped("sim rm.hkt --profile p.toml").contains("no costs of memory: measure it with `hksim calibrate`"));
}

/// The terms of an explained time add up to the prediction of `sim`, and the kernel's time by each key to the terms that
/// are divided.
#[test]
fn explained_times_add_up_to_those_of_sim() {
    let bench = bench();
    for policy in
        ["--huge never", "--huge thp --front-cache 8 --purge-delay 0", "--huge never --header full --header-bytes 16"]
    {
        let sim = bench.json(&format!("sim rm.hkt {policy} --profile p.toml"));
        let explained = bench.json(&format!("explain rm.hkt {policy} --causes 0 --profile p.toml"));
        for field in ["time", "system_time", "installs", "faults"] {
            assert_eq!(explained[field], sim[field], "{policy}: {field}");
        }
        let terms = explained["time_terms"].as_array().expect("terms");
        let sum = |is_counted: &dyn Fn(&Value) -> bool| -> f64 {
            terms.iter().filter(|term| is_counted(term)).map(|term| number(&term["ns_per_call"])).sum()
        };
        for part in ["instructions", "memory", "kernel"] {
            let expected = number(&sim["time"]["parts_ns_per_call"][part]);
            let found = sum(&|term| term["part"] == part);
            assert!((found - expected).abs() < 1e-6 * expected, "{policy}: {part}: {found} and {expected}");
        }
        let by_key = sum(&|term| term["is_by_key"] == true);
        let total = by_key + sum(&|term| term["is_by_key"] == false);
        assert!(by_key > 0.0 && (total / number(&sim["time"]["ns_per_call"]["median"]) - 1.0).abs() < 1e-6);
        for (key, parts) in explained["by"].as_object().expect("keys") {
            let parts = parts.as_array().expect("parts").iter();
            let found: f64 = parts.map(|part| number(&part["kernel_ns_per_call"])).sum();
            assert!((found - by_key).abs() < 1e-6 * by_key, "{policy}: by {key}: {found} and {by_key}");
        }
    }
}

#[test]
fn a_difference_of_time_is_put_down_to_terms() {
    let bench = bench();
    let explained = bench
        .json("explain rm.hkt --huge never --front-cache 8 --causes 0 --profile p.toml --against default+huge=never");
    let against = &explained["against"];
    let time = |of: &Value| number(&of["time"]["ns_per_call"]["median"]);
    let differences = against["time_differences"].as_array().expect("differences");
    let sum: f64 =
        differences.iter().map(|term| number(&term["ns_per_call"]) - number(&term["ns_per_call_against"])).sum();
    assert!((sum - (time(&explained) - time(against))).abs() < 1e-6, "{sum}");
    assert!(differences.iter().any(|term| term["name"] == "front-hit" && term["count_against"] == 0));
    let first = against["sentences"][0].as_str().expect("a sentence");
    assert!(first.contains("ns per call instead of") && first.contains("instructions +"), "{first}");
    let text = bench.ok("explain rm.hkt --huge never --causes 0 --profile p.toml --against default+huge=never");
    for part in ["kernel ns/call", "time by part", "each call", "a tie: less than the model's own error"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let csv = bench.ok("explain rm.hkt --causes 0 --profile p.toml --format csv");
    assert!(csv.starts_with("installs,kernel_ns_per_call,key,name"), "{csv}");
    let without = bench.json("explain rm.hkt --causes 0 --profile none");
    assert!(without.get("time_terms").is_none() && without["by"]["reason"][0].get("kernel_ns_per_call").is_none());
}
