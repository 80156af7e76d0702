//! `--design`: other allocators than SuperSlab in `sim`, `sweep`, `explain`, `validate` and `replay`.

use serde_json::Value;

use crate::support::Bench;

#[test]
fn a_design_is_simulated_swept_and_explained_alike() {
    let bench = Bench::with_trace();
    let sim = bench.json("sim rm.hkt --design page-heap --link lazy");
    assert_eq!(sim["policy"]["design"], "page-heap");
    assert_eq!(sim["policy"]["settings"]["link"], "lazy");
    let sweep = bench.json("sweep rm.hkt --design bump,page-heap --link eager,lazy");
    let rows = sweep["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3);
    for part in ["policy", "installs", "placement_digest", "rss_bytes_peak", "os_calls"] {
        assert_eq!(rows[2][part], sim[part], "{part}");
    }
    let explained = bench.json("explain rm.hkt --design page-heap --link lazy --against page-heap");
    assert_eq!(explained["installs_total"], sim["installs"]["total"]);
    let reasons = explained["by"]["reason"].as_array().expect("parts");
    let sum: u64 = reasons.iter().filter_map(|part| part["installs"].as_u64()).sum();
    assert_eq!(Some(sum), sim["installs"]["total"].as_u64());
    assert_eq!(explained["against"]["policy"]["settings"]["link"], "eager");
}

#[test]
fn a_kernel_flag_applies_to_a_design() {
    let bench = Bench::with_trace();
    let huge = |thp: &str| {
        let sim = bench.json(&format!("sim rm.hkt --design page-heap --thp {thp} --grow 4M"));
        sim["installs"]["by_kind"]["thp"].as_u64().expect("a count")
    };
    assert!(huge("always") > 0 && huge("madvise") == 0);
}

#[test]
fn predictions_for_designs_are_checked_by_replays() {
    let bench = Bench::with_trace();
    let result = bench.json("validate rm.hkt --design bump,page-heap --link lazy");
    assert_ne!(result["verdict"], "failed", "{}", result["rows"][0]["reason"]);
    let rows = result["rows"].as_array().expect("rows");
    assert_eq!(rows.iter().map(|row| &row["policy"]["design"]).collect::<Vec<_>>(), ["bump", "page-heap"]);
    let replay = bench.json("replay rm.hkt --design page-heap --link lazy");
    assert_eq!((&replay["design"]["design"], &replay["policy"]), (&Value::from("page-heap"), &Value::Null));
    if replay["installs"]["total"].is_u64() {
        assert_eq!(replay["installs"]["total"], rows[1]["predicted"]["installs"]["total"]);
    }
}

#[test]
fn rows_of_designs_have_their_settings_in_one_column() {
    let bench = Bench::with_trace();
    let csv = bench.ok("sweep rm.hkt --design bump --chunk 64K,1M --format csv");
    let head: Vec<&str> = csv.lines().next().expect("a head").split(',').collect();
    let column = head.iter().position(|&name| name == "policy_settings").expect("a column");
    let settings: Vec<&str> = csv.lines().skip(1).filter_map(|line| line.split(',').nth(column)).collect();
    assert_eq!(settings, ["chunk=64K", "chunk=1M"]);
}

#[test]
fn flags_that_do_not_fit_a_design_are_refused() {
    let bench = Bench::with_trace();
    for (line, part) in [
        ("sim rm.hkt --design page-heap --superslab 1M", "--superslab is about SuperSlab"),
        ("sim rm.hkt --design page-heap --preset hakmem", "--preset is about SuperSlab"),
        ("sim rm.hkt --chunk 4K", "add --design bump"),
        ("sweep rm.hkt --design bump --shard 1/2 --format json", "joins rows of SuperSlab"),
        ("validate rm.hkt --design bump --mode threaded", "a design serves one thread at a time"),
        ("replay rm.hkt --design bump --on glibc", "name one allocator"),
        ("explain rm.hkt --design bump --against default", "--design default: unknown"),
    ] {
        let message = bench.refused(line);
        assert!(message.contains(part) && message.lines().count() == 1, "{line}: {message}");
    }
}
