//! `hksim validate --time`: structure, arithmetic and refusals. What was measured is not asserted: it depends on the load.

use serde_json::Value;

use crate::times::bench;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The only trace of a result.
fn timed(result: &Value) -> (&Value, &[Value]) {
    let timed = &result["timed_traces"][0];
    (timed, timed["rows"].as_array().expect("rows"))
}

#[test]
fn predictions_are_those_of_sim_and_verdicts_follow_from_the_figures() {
    let bench = bench();
    let line = "validate rm.hkt --time --profile p.toml --purge none --huge never --header none,full --header-bytes 16 \
                --runs 7 --seed 5";
    let result = bench.json(line);
    let (timed, rows) = timed(&result);
    assert_eq!((&timed["rounds"], &timed["threads"], rows.len()), (&7.into(), &1.into(), 2));
    assert!(timed["timing"]["same_again"]["low"].is_number(), "seven rounds have intervals: {}", timed["timing"]);
    let own = number(&timed["own_ns_per_call"]["median"]);
    assert!(own > 0.0);
    let first_ns = number(&rows[0]["predicted"]["ns_per_call"]["median"]);
    for (row, header) in rows.iter().zip(["none", "full"]) {
        let sim = format!("sim rm.hkt --purge none --huge never --header {header} --header-bytes 16 --kernel host");
        let sim = bench.json(&format!("{sim} --profile p.toml"));
        let (predicted, measured) = (&row["predicted"], &row["measured"]);
        for field in ["ns_per_call", "parts_ns_per_call", "total_s", "profile"] {
            assert_eq!(predicted[field], sim["time"][field], "{header}: {field}");
        }
        assert_eq!(predicted["faults"], sim["faults"]);
        let ratio = number(&predicted["ns_per_call"]["median"]) / first_ns;
        assert!((number(&predicted["ratio_to_first"]) - ratio).abs() < 1e-12);
        assert_eq!(measured["rounds"], 7);
        assert!(row["changed"].is_null(), "nothing had to be changed: {row}");
        let verdicts = ["ok", "tie", "off-user", "off-kernel", "off"];
        assert!(verdicts.contains(&row["verdict"].as_str().unwrap_or_default()), "{row}");
        judged(row, rows, ratio);
    }
    assert_eq!(number(&rows[0]["measured"]["ratio_to_first"]["median"]), 1.0);
}

/// Computes the difference by part and the verdict again.
fn judged(row: &Value, rows: &[Value], ratio: f64) {
    let parts = |row: &Value| -> Option<[[f64; 2]; 2]> {
        let (predicted, measured) = (&row["predicted"]["parts_ns_per_call"], &row["measured"]);
        let user = number(&predicted["instructions"]) + number(&predicted["memory"]);
        let [own, kernel] = ["user_ns_per_call", "system_ns_per_call"].map(|part| measured[part]["median"].as_f64());
        Some([[user, number(&predicted["kernel"])], [own?, kernel?]])
    };
    let total = |side: &str| number(&rows[0][side]["ns_per_call"]["median"]);
    let is_first = row["measured"]["verdict"].is_null();
    let Some((one, first)) = parts(row).zip(parts(&rows[0])) else {
        return println!("skipped: the processor's mode cannot be sampled here");
    };
    let share = |part: usize| {
        if is_first {
            (one[0][part] - one[1][part]) / total("measured")
        } else {
            (one[0][part] - first[0][part]) / total("predicted") - (one[1][part] - first[1][part]) / total("measured")
        }
    };
    let residual = ["user_share", "kernel_share"].map(|part| number(&row["residual"][part]));
    for part in [0, 1] {
        assert!((residual[part] - share(part)).abs() < 1e-9, "{row}");
    }
    let (low, high) = if is_first {
        let range = &row["predicted"]["ns_per_call"];
        (number(&range["low"]), number(&range["high"]))
    } else {
        let error = hksim_time_model::ORDER_ERROR_SHARE;
        (ratio * (1.0 - error), ratio * (1.0 + error))
    };
    let interval = &row["measured"][if is_first { "ns_per_call" } else { "ratio_to_first" }];
    let meets = number(&interval["low"]) <= high && low <= number(&interval["high"]);
    let is_tie = (ratio - 1.0).abs() <= hksim_time_model::ORDER_ERROR_SHARE && row["measured"]["verdict"] == "tie";
    let expected = match (is_tie && !is_first, meets) {
        (true, _) => "tie",
        (_, true) => "ok",
        _ if residual[1].abs() > residual[0].abs() => "off-kernel",
        _ => "off-user",
    };
    assert_eq!(row["verdict"], expected, "{row}");
}

#[test]
fn what_cannot_be_timed_is_skipped_or_said() {
    let bench = bench();
    let line = "validate rm.hkt --time --profile p.toml --purge dontneed,free --purge-delay 0,1ms,2ms --runs 2";
    let result = bench.json(line);
    let (_, rows) = timed(&result);
    let purges = |row: &Value| (row["policy"]["purge"].clone(), row["policy"]["purge_delay_ns"].clone());
    let verdict = |row: usize| rows[row]["verdict"].as_str().unwrap_or_default();
    // Without delay as it was asked for; with one, without purges, so that the others are the same design again.
    assert_eq!(purges(&rows[0]), ("dontneed".into(), 0.into()));
    assert!(rows[0]["changed"].is_null() && rows[0]["measured"].is_object());
    assert_eq!(purges(&rows[1]).0, "none");
    assert!(rows[1]["changed"].as_str().is_some_and(|text| text.contains("--purge none instead of --purge dontneed")));
    assert_eq!(verdict(1), "skipped", "two rounds have no interval");
    assert!(
        [2, 4, 5]
            .iter()
            .all(|&row| rows[row]["reason"].as_str().is_some_and(|why| why.contains("same design as row 1")))
    );
    let started = bench.json("validate rm.hkt --time --profile p.toml --startup-touch 0,1M --runs 2");
    assert!(timed(&started).1[1]["reason"].as_str().is_some_and(|why| why.contains("use --startup-touch 0")));
    assert!(rows[1]["reason"].as_str().is_some_and(|why| why.contains("needs 7 rounds")), "{}", rows[1]);
    let is_free = |row: &&Value| row["policy"]["purge"] == "free";
    let free = rows.iter().find(is_free).expect("a design that frees lazily without delay");
    assert!(free["changed"].is_null() && free["measured"].is_object(), "{free}");
    let pool = bench.json("validate rm.hkt --time --profile p.toml --huge thp,hugetlb --runs 2");
    let pool = &timed(&pool).1[1];
    assert_eq!(pool["verdict"], "skipped");
    assert!(pool["reason"].as_str().is_some_and(|why| why.contains("hugetlb pool")) && pool["measured"].is_null());
    let text = bench.ok(line);
    for part in ["row 0 again: ratio", "a replay does not wait", "(--seed ", "profile: m"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = bench.ok("validate rm.hkt --time --profile p.toml --huge thp,hugetlb --runs 2");
    assert!(text.contains("skipped: the instructions"), "{text}");
    let csv = bench.ok(&format!("{line} --format csv"));
    assert!(csv.contains(",trace_name,verdict") && csv.lines().count() == rows.len() + 1, "{csv}");
}

#[test]
fn one_thread_makes_the_calls_of_all() {
    let bench = bench();
    bench.ok("gen server --live 1M --threads 3 -o threads.hkt");
    let line = "validate threads.hkt --time --profile p.toml --purge none --huge never --runs 2";
    let result = bench.json(line);
    let (timed, rows) = timed(&result);
    assert_eq!(timed["threads"], 3);
    let sim = bench.json("sim threads.hkt --purge none --huge never --profile p.toml --kernel host");
    let total_ns = |time: &Value| number(&time["ns_per_call"]["median"]);
    // Three heaps need more slabs than one.
    assert!(number(&rows[0]["predicted"]["faults"]) < number(&sim["faults"]), "{} {}", rows[0], sim["faults"]);
    assert!(total_ns(&rows[0]["predicted"]) > 0.0);
    assert!(bench.ok(line).contains("one makes the calls of all 3 threads"));
}

const RECORDING: &str =
    concat!("validate -q ", env!("CARGO_MANIFEST_DIR"), "/../../traces/python-json.hkm --time --profile p.toml");

#[test]
fn what_has_no_predicted_time_is_refused() {
    let bench = bench();
    for (line, why) in [
        ("validate -q rm.hkt --time --profile none", "run `hksim calibrate` once"),
        ("validate -q rm.hkt --time --profile p.toml --mode threaded", "--mode ordered"),
        ("validate -q rm.hkt --time --profile p.toml --fork-at 100", "leave --fork-at out"),
        ("validate -q rm.hkt --time --profile p.toml --design bump", "the time of designs is not known"),
        (RECORDING, "no allocator calls to time"),
        ("validate -q rm.hkt --time --profile p.toml --touch all,first", "give one rule"),
        ("validate -q rm.hkt --precision 1%", "add --time"),
    ] {
        let refused = bench.refused(line);
        assert!(refused.contains(why), "{line}: {refused}");
    }
}

#[test]
fn a_result_is_shown_in_a_report() {
    let bench = bench();
    bench.ok("validate rm.hkt --time --profile p.toml --purge none --runs 2 --format json -o t.json");
    bench.ok("report t.json -o t.html");
    let page = std::fs::read_to_string(bench.path("t.html")).expect("a report");
    assert!(
        page.contains("ns per call of its own")
            && page.contains("ns/call")
            && page.contains("Measured: another machine")
    );
}
