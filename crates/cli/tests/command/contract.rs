//! The names of JSON results, which other programs rely on.

use serde_json::Value;

use crate::support::{Bench, number};

fn has(value: &Value, names: &[&str]) {
    for name in names {
        let found = name.split('.').try_fold(value, |value, part| value.get(part));
        assert!(found.is_some(), "no `{name}`");
    }
}

#[test]
fn sim_has_its_names_and_its_sums() {
    let bench = Bench::with_trace();
    let sim = bench.json("sim rm.hkt");
    has(&sim, &["schema", "trace", "policy", "touch", "events", "elapsed_s", "faults", "traps", "superslabs_peak"]);
    let kinds = ["base_4k", "mthp", "thp", "hugetlb", "zero", "cow"].map(|kind| format!("installs.by_kind.{kind}"));
    let total: u64 = kinds.iter().map(|kind| number(&sim, kind)).sum();
    assert_eq!(total, number(&sim, "installs.total"));
    let reasons = sim["installs"]["by_reason"].as_object().expect("reasons");
    assert_eq!(reasons.values().filter_map(Value::as_u64).sum::<u64>(), total);
    has(
        &sim,
        &["rss_bytes_peak", "rss_bytes_end", "live_bytes_peak", "floor_pages", "floor_touched_pages", "vmas_peak"],
    );
    has(&sim, &["page_table_bytes_peak", "os_calls.mmap", "os_calls.munmap", "os_calls.madvise", "os_calls.mremap"]);
    assert_eq!(number(&sim, "floor_pages"), number(&sim, "live_bytes_peak").div_ceil(4096));
    assert_eq!(number(&sim, "live_bytes_peak"), number(&bench.json("info rm.hkt"), "live_bytes_peak"));
}

#[test]
fn info_has_its_names() {
    let info = Bench::with_trace().json("info rm.hkt");
    has(&info, &["schema", "events", "mallocs", "callocs", "reallocs", "aligned", "frees", "free_null", "threads"]);
    has(&info, &["cross_thread_frees", "live_bytes_peak", "live_objects_peak", "live_objects_end", "unknown_frees"]);
    has(&info, &["sizes.p50", "sizes.p90", "sizes.p99", "sizes.max"]);
}

#[test]
fn a_result_holds_what_it_takes_to_make_it_again() {
    let bench = Bench::with_trace();
    let sim = bench.json("sim rm.hkt --preset hakmem --superslab 1M --purge-delay 3us");
    let origin = &sim["trace"]["origin"];
    let parameter = |name: &str| number(origin, &format!("parameters.{name}"));
    let (cycles, ws, min, max) = (parameter("cycles"), parameter("ws"), parameter("min"), parameter("max"));
    let seed = number(origin, "seed");
    bench.ok(&format!(
        "gen random-mixed --cycles {cycles} --ws {ws} --min {min} --max {max} --seed {seed} -o again.hkt"
    ));
    // JSON's fields are those of a policy file.
    let fields = sim["policy"].as_object().expect("a policy");
    let toml: String = fields.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    std::fs::write(bench.path("again.toml"), toml).expect("a policy file");
    let again = bench.json("sim again.hkt --policy again.toml");
    for part in ["policy", "installs", "placement", "rss_bytes_peak", "os_calls"] {
        assert_eq!(again[part], sim[part], "{part}");
    }
}

#[test]
fn replay_has_the_names_of_sim() {
    let bench = Bench::with_trace();
    let replay = bench.json("replay rm.hkt --huge never");
    has(&replay, &["schema", "trace", "policy", "touch", "events", "installs", "faults", "traps", "rss_bytes_peak"]);
    has(&replay, &["rss_bytes_end", "vmas_peak", "page_table_bytes_peak", "os_calls", "ops_per_s", "user_s", "sys_s"]);
    has(&replay, &["environment", "control", "skipped"]);
    assert_eq!(replay["events"], 20_000);
    assert_eq!(replay["placement"], bench.json("sim rm.hkt --huge never")["placement"], "both worlds place alike");
    assert_eq!(number(&replay, "control.faults"), 0);
    assert!(bench.ok("replay rm.hkt --mode threaded").contains("native, threaded"));
    let glibc = bench.json("replay rm.hkt --on glibc");
    assert_eq!((&glibc["policy"], &glibc["events"]), (&Value::Null, &Value::from(20_000)));
}

#[test]
fn tlb_is_told_where_a_core_is_named() {
    let bench = Bench::with_trace();
    assert_eq!(bench.json("sim rm.hkt").get("tlb"), None);
    let sim = bench.json("sim rm.hkt --tlb zen3");
    assert_eq!(sim["tlb"]["core"]["name"], "zen3");
    // random-mixed writes one byte of each block: one access an allocation.
    let hits = ["l1", "l2", "misses"].map(|name| number(&sim, &format!("tlb.misses.application.{name}")));
    assert_eq!(hits.iter().sum::<u64>(), number(&bench.json("info rm.hkt"), "mallocs"));
    assert!(bench.ok("sim rm.hkt --tlb zen3").contains("TLB of zen3"));
}
