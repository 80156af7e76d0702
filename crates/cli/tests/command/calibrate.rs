//! `calibrate`, compared with a C program that times the same operations; and times computed from a profile.

use std::process::Command;

use serde_json::Value;

use crate::support::Bench;

/// Tolerance for medians on a loaded machine.
const FACTOR: f64 = 2.5;

fn median(profile: &Value, operation: &str) -> f64 {
    profile["costs"][operation]["median_ns"].as_f64().unwrap_or_else(|| panic!("no {operation}: {profile}"))
}

#[test]
fn costs_match_a_c_program() {
    let bench = Bench::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/costs.c");
    if bench.compile(source, "costs", &["-O1"]).is_none() {
        return;
    }
    let profile = bench.json("calibrate --rounds 15 --seconds 45 -o p.toml");
    let figures = Command::new(bench.path("costs")).output().expect("the oracle runs");
    let figures = String::from_utf8_lossy(&figures.stdout).into_owned();
    let theirs: Vec<f64> = figures.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    for (operation, theirs) in ["write_fault", "dontneed_page", "zero_read_fault"].into_iter().zip(&theirs) {
        let ours = median(&profile, operation);
        eprintln!("{operation}: {ours:.0} ns, the oracle {theirs:.0} ns");
        assert!(ours < theirs * FACTOR && *theirs < ours * FACTOR, "{operation}: {ours} and {theirs}");
    }
    // Relations that hold on any machine.
    assert!(median(&profile, "memset_resident") < median(&profile, "write_fault"));
    assert!(median(&profile, "madvise_call") > 0.0);
    let share = profile["core"]["shared_share"].as_f64();
    assert_eq!(share.is_some(), cfg!(target_arch = "x86_64"), "looks at the core");
    assert!(share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{share:?}");
    // However loaded the machine is, an instruction takes less than four cycles.
    let (code, cycle_ns) = (&profile["code"]["instruction"], profile["memory"]["cycle"]["median_ns"].as_f64());
    let cycles = code["median_ns"].as_f64().zip(cycle_ns).map(|(ns, cycle_ns)| ns / cycle_ns).expect("costs of code");
    assert!((0.0..4.0).contains(&cycles), "{cycles} cycles an instruction: {code}");
    // The printed table equals the written file.
    let file = std::fs::read_to_string(bench.path("p.toml")).expect("a profile");
    assert!(file.contains(&format!("kernel = {}", profile["kernel"])), "{file}");
}

/// A profile with round numbers as costs.
const PROFILE: &str =
    "version = 11\nmachine = \"m\"\nprocessors = 1\nkernel = \"k\"\nelapsed_s = 1.0\nkernel_share = 0.9\n";

fn profile(operations: &[&str]) -> String {
    let cost = |name: &&str| {
        format!("[costs.{name}]\nlow_ns = 1000\nmedian_ns = 1200.0\nhigh_ns = 1550\nkernel_share = 0.9\nrounds = 3\n")
    };
    PROFILE.to_string() + &operations.iter().map(cost).collect::<String>()
}

#[test]
fn a_profile_turns_counts_into_a_range_of_time() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("p.toml"), profile(&OPERATIONS)).expect("a file");
    let sim = bench.json("sim rm.hkt --huge never --purge none --profile p.toml");
    // No page is returned, so every install, table and call counts once.
    let calls = ["mmap", "munmap", "madvise"].map(|call| sim["os_calls"][call].as_f64().expect("a count"));
    let number = sim["installs"]["total"].as_f64().expect("a count") + calls.iter().sum::<f64>();
    let number = number + sim["page_operations"]["page_tables_allocated"].as_f64().expect("a count");
    // The quartiles are widened for uncounted effects: 14 % below the median, and 27 % above.
    for (field, ns) in [("low_s", 1000.0), ("median_s", 1200.0), ("high_s", 1550.0)] {
        let predicted_s = sim["system_time"][field].as_f64().expect("seconds");
        assert!((predicted_s - number * ns / 1e9).abs() < 1e-12, "{field}: {predicted_s} of {number}");
    }
    assert!(bench.ok("sim rm.hkt --huge never --profile p.toml").contains("system time"));
    assert_eq!(bench.json("sim rm.hkt").get("system_time"), None);
    let validation = bench.json("validate rm.hkt --huge never --profile p.toml");
    let time = &validation["rows"][0]["system_time"];
    // A time that is not judged has a reason; one that is judged is precise enough.
    match time["skipped"].as_str() {
        Some(why) => {
            let is_reason = ["noise: ", "cannot sample processor time: "].iter().any(|known| why.starts_with(known));
            assert!(is_reason && time["inside"].is_null(), "{time}");
        }
        None => {
            let measured = time["measured_s"].as_f64().expect("seconds");
            let range = time["low_s"].as_f64().expect("low")..=time["high_s"].as_f64().expect("high");
            let drift = time["drift"].as_f64().expect("the machine's speed");
            assert_eq!(time["inside"].as_bool(), Some(range.contains(&(measured / drift))), "{time}");
            assert!(time["measured_error_share"].as_f64().is_some_and(|share| share <= 0.1), "{time}");
        }
    }
}

/// The operations that random-mixed needs with single pages and with huge pages.
pub const OPERATIONS: [&str; 37] = [
    "write_fault",
    "write_fault_apart",
    "memset_untouched",
    "write_fault_8m",
    "write_fault_16m",
    "write_fault_32m",
    "write_fault_128m",
    "populate_write",
    "write_fault_apart_8k",
    "write_fault_apart_32k",
    "write_fault_apart_128k",
    "write_fault_apart_256k",
    "write_fault_apart_512k",
    "zero_read_fault",
    "write_after_zero",
    "refault",
    "refault_near",
    "page_table",
    "huge_fault",
    "huge_fault_8m",
    "huge_fault_16m",
    "huge_fault_32m",
    "huge_fault_128m",
    "huge_fault_far",
    "dontneed_page",
    "dontneed_huge",
    "munmap_page",
    "munmap_huge",
    "drop_folio_page",
    "split_huge",
    "collapse_sparse",
    "mmap_call",
    "munmap_call",
    "madvise_call",
    "flush_page",
    "drop_call",
    "host_backing",
];

/// A profile with one cost for every operation but the faults of folios.
pub fn profile_without_folios() -> String {
    profile(&OPERATIONS)
}

#[test]
fn rows_of_a_sweep_have_times_and_a_pareto_front() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("p.toml"), profile(&OPERATIONS)).expect("a file");
    let flags = "--superslab 256K,2M --huge never,thp --profile p.toml";
    let sweep = bench.json(&format!("sweep rm.hkt {flags}"));
    let rows = sweep["rows"].as_array().expect("rows");
    let mut costs = Vec::new();
    for (row, design) in rows.iter().zip(["256K never", "256K thp", "2M never", "2M thp"]) {
        let (superslab, huge) = design.split_once(' ').expect("two words");
        let sim = bench.json(&format!("sim rm.hkt --superslab {superslab} --huge {huge} --profile p.toml"));
        assert_eq!(row["system_time"], sim["system_time"], "{design}");
        let time = row["system_time"]["median_s"].as_f64().expect("seconds");
        costs.push((time, row["rss_bytes_peak"].as_f64().expect("bytes")));
    }
    let beaten = |own: &(f64, f64)| costs.iter().any(|other| other != own && other.0 <= own.0 && other.1 <= own.1);
    let front: Vec<Value> = (0..costs.len()).filter(|&row| !beaten(&costs[row])).map(Value::from).collect();
    assert_eq!(sweep["pareto_system_time"], Value::from(front));
    let table = bench.ok(&format!("sweep rm.hkt {flags}"));
    let head = table.lines().find(|line| line.starts_with('#')).expect("a head");
    assert!(head.contains("system time"), "{head}");
    assert!(table.lines().any(|line| line.ends_with('T')), "{table}");
    assert!(bench.ok(&format!("sweep rm.hkt --format csv {flags}")).contains("system_time_median_s"));
    let plain = bench.json("sweep rm.hkt --huge never");
    assert!(plain.get("pareto_system_time").is_none() && plain["rows"][0].get("system_time").is_none());
}

/// If an operation is priced higher, the predicted times rise for exactly the designs that perform it.
#[test]
fn each_operation_is_priced_at_its_own_cost() {
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 60k --ws 400 --min 100 --max 30k -o rm.hkt");
    let operations = [&OPERATIONS[..], &["free_page", "free_page_again", "rewrite_freed"]].concat();
    let text = profile(&operations);
    std::fs::write(bench.path("p.toml"), &text).expect("a file");
    let one = "median_ns = 1200.0\nhigh_ns = 1550";
    let median = |design: &str, profile: &str| {
        let sim = bench.json(&format!("sim rm.hkt {design} --purge-delay 1us --profile {profile}"));
        let again = sim["page_operations"]["madv_free_repeated_pages"].as_f64().expect("a count");
        (sim["system_time"]["median_s"].as_f64().unwrap_or_else(|| panic!("no time: {sim}")), again)
    };
    let designs = [
        "never --purge none",
        "never --purge dontneed",
        "never --purge free",
        "thp --superslab 4M --slab 256K --purge none",
    ];
    for (operation, dearer) in [
        ("refault", [false, true, false, false]),
        ("free_page_again", [false, false, true, false]),
        ("flush_page", [false, true, true, false]),
        ("drop_call", [false, true, false, false]),
        ("huge_fault_far", [false, false, false, true]),
    ] {
        let at = text.find(&format!("[costs.{operation}]")).expect("its cost");
        let dear = text[at..].replacen(one, "median_ns = 2200.0\nhigh_ns = 2550", 1);
        std::fs::write(bench.path("dear.toml"), text[..at].to_string() + &dear).expect("a file");
        for (design, dearer) in designs.iter().zip(dearer) {
            let design = format!("--huge {design}");
            let ((before, again), (after, _)) = (median(&design, "p.toml"), median(&design, "dear.toml"));
            assert_eq!(after > before, dearer, "{operation} of {design}: {before} and {after}");
            if operation == "free_page_again" {
                assert_eq!(again > 0.0, dearer);
                assert!((after - before - again * 1e-6).abs() < 1e-9, "{design}: {again} pages, {before} and {after}");
            }
        }
    }
}

/// If a cost or a measurement is missing, only the time is missing: the counts are still reported.
#[test]
fn a_missing_cost_is_reported_with_the_counts() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("p.toml"), profile(&["madvise_call"])).expect("a file");
    let skipped = |time: &Value| {
        assert!(time["skipped"].as_str().is_some_and(|why| why.contains("no cost of ")), "{time}");
        assert!(time["median_s"].is_null() && time["inside"].is_null(), "{time}");
    };
    let sim = bench.json("sim rm.hkt --huge never --profile p.toml");
    skipped(&sim["system_time"]);
    assert!(sim["installs"]["total"].as_u64() > Some(0));
    assert!(bench.ok("sim rm.hkt --huge never --profile p.toml").contains("system time skipped: "));
    let sweep = bench.json("sweep rm.hkt --huge never,thp --profile p.toml");
    sweep["rows"].as_array().expect("rows").iter().for_each(|row| skipped(&row["system_time"]));
    assert!(bench.ok("sweep rm.hkt --huge never,thp --profile p.toml").contains("skipped"));
    let validation = bench.json("validate rm.hkt --huge never --profile p.toml");
    skipped(&validation["rows"][0]["system_time"]);
    // The range contains any time, so no time is judged.
    std::fs::write(bench.path("p.toml"), profile(&OPERATIONS).replace("low_ns = 1000", "low_ns = 0")).expect("a file");
    let validation = bench.json("validate rm.hkt --huge never --profile p.toml");
    let time = &validation["rows"][0]["system_time"];
    assert!(time["inside"].is_null() && time["low_s"].as_f64() >= Some(0.0), "{time}");
    assert!(time["skipped"].as_str().is_some(), "{time}");
}

#[test]
fn an_invalid_profile_is_refused() {
    let bench = Bench::with_trace();
    for (text, needle) in [
        ("", "not a cost profile"),
        ("version = 1\n", "version 1"),
        (&profile(&["madvise_call"]).replace("version = 11", "version = 10"), "version 10"),
        (&profile(&["madvise_call"]).replace("kernel_share = 0.9\nrounds", "kernel_share = 0\nrounds"), "kernel_share"),
        (&profile(&["write_fold"]), "write_fold"),
        (&profile(&["write_fault"]).replace("low_ns = 1000", "low_ns = 9000"), "not in order"),
    ] {
        std::fs::write(bench.path("p.toml"), text).expect("a file");
        let message = bench.refused("sim rm.hkt --huge never --profile p.toml");
        assert!(message.contains(needle), "{text}: {message}");
    }
    assert!(bench.refused("sim rm.hkt --profile nowhere.toml").contains("nowhere.toml"));
    bench.refused("calibrate --rounds 0");
}

/// A profile of this machine with these costs, as `calibrate` keeps it.
fn of_this_machine(bench: &Bench) -> (std::path::PathBuf, String) {
    let kept = bench.run("calibrate --rounds 1 --seconds 1");
    assert_eq!(kept.code, Some(0), "{}", kept.stderr);
    let place = kept.stderr.rsplit_once('(').and_then(|(_, place)| place.split_once(')')).expect("its place").0;
    assert!(place.starts_with(&bench.folder().display().to_string()), "{place}");
    let text = std::fs::read_to_string(place).expect("a kept profile");
    let head = text.split("[[skipped]]").next().and_then(|head| head.split("[costs").next()).expect("its first lines");
    let costs = profile(&OPERATIONS);
    (place.into(), head.to_string() + &costs[costs.find("[costs").expect("costs")..])
}

#[test]
fn a_kept_profile_prices_without_being_asked() {
    let mut bench = Bench::with_trace();
    bench.keep_profiles();
    assert!(bench.json("sim rm.hkt --huge never").get("system_time").is_none(), "nothing is kept yet");
    let (place, text) = of_this_machine(&bench);
    std::fs::write(&place, &text).expect("a file");
    std::fs::write(bench.path("p.toml"), profile(&OPERATIONS)).expect("a file");
    let kept = bench.json("sim rm.hkt --huge never");
    let given = bench.json("sim rm.hkt --huge never --profile p.toml");
    assert_eq!(kept["system_time"]["median_s"], given["system_time"]["median_s"]);
    let words: Vec<&str> = kept["command"].as_array().expect("words").iter().filter_map(Value::as_str).collect();
    assert_eq!(words[words.len() - 2..], ["--profile", place.to_str().expect("a plain path")], "the result states it");
    assert!(bench.json("sim rm.hkt --huge never --profile none").get("system_time").is_none());
    let said = bench.run("sim rm.hkt --huge never").stderr;
    assert!(said.contains("profile of this machine, calibrated ") && said.contains(" than at calibration"), "{said}");
    let said = bench.run("sim rm.hkt --huge never --profile p.toml").stderr;
    assert!(said.contains("another machine: m, Linux k"), "{said}");
    // A damaged profile is no reason to stop: it is named, and the next calibration replaces it.
    std::fs::write(&place, &text[..text.len() / 2]).expect("a file");
    let ran = bench.run("sim rm.hkt --huge never");
    assert!(
        ran.code == Some(0) && ran.stderr.contains("is ignored") && !ran.stdout.contains("system time"),
        "{}",
        ran.stderr
    );
    of_this_machine(&bench);
    assert!(!bench.run("sim rm.hkt --huge never").stderr.contains("is ignored"));
}

#[test]
fn new_huge_pages_have_a_second_time_for_cold_memory() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("p.toml"), profile(&OPERATIONS)).expect("a file");
    let line = "sim rm.hkt --huge thp --superslab 4M --slab 256K --purge none";
    let sim = bench.json(&format!("{line} --profile p.toml"));
    let (warm, cold) = (&sim["system_time"]["median_s"], &sim["system_time"]["cold"]["median_s"]);
    let huge = sim["installs"]["by_kind"]["thp"].as_f64().expect("a count");
    let more_s = cold.as_f64().expect("seconds") - warm.as_f64().expect("seconds");
    assert!(huge > 0.0 && (more_s - huge * 1200.0 / 1e9).abs() < 1e-9, "{more_s} for {huge} huge pages");
    assert!(bench.ok(&format!("{line} --profile p.toml")).contains("cold"));
    // Without that cost, the other time stays.
    let text = profile(&OPERATIONS);
    std::fs::write(bench.path("p.toml"), &text[..text.find("[costs.host_backing]").expect("the last one")])
        .expect("a file");
    let sim = bench.json(&format!("{line} --profile p.toml"));
    assert_eq!(&sim["system_time"]["median_s"], warm);
    assert!(sim["system_time"]["cold_skipped"].as_str().is_some_and(|why| why.contains("host_backing")), "{sim}");
    let small = bench.json("sim rm.hkt --huge never --profile p.toml");
    assert!(small["system_time"].get("cold").is_none() && small["system_time"].get("cold_skipped").is_none());
}
