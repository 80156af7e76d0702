//! The fields of JSON results that other programs rely on.

use serde_json::Value;

use crate::support::{Bench, number};

fn has(value: &Value, names: &[&str]) {
    for name in names {
        let found = name.split('.').try_fold(value, |value, part| value.get(part));
        assert!(found.is_some(), "no `{name}`");
    }
}

#[test]
fn sim_has_its_fields_and_sums() {
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

/// CRC-32 of bytes, bit by bit: the polynomial of zip and PNG.
fn crc32(parts: &[&[u8]]) -> u32 {
    let shift = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
    !parts
        .iter()
        .flat_map(|part| part.iter())
        .fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| shift(crc)))
}

/// The checksum of a trace as docs/reference/trace-format.md defines it: of the file's header and all section headers,
/// each without its own CRC-32.
fn checksum(file: &[u8]) -> String {
    let u32_at = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize;
    let mut at = 16 + u32_at(12) + 4;
    let mut parts = vec![&file[..at - 4]];
    while at < file.len() {
        parts.push(&file[at..at + 44]);
        at += 48 + u32_at(at + 4);
    }
    format!("{:08x}", crc32(&parts))
}

#[test]
fn every_result_has_schema_version_and_trace() {
    let bench = Bench::with_trace();
    let version = bench.ok("--version");
    let version = version.trim().strip_prefix("hksim ").expect("a version");
    let of_file = checksum(&std::fs::read(bench.path("rm.hkt")).expect("the trace"));
    let trace_at = |line: &str, path: &str| {
        let result = bench.json(line);
        assert_eq!((&result["schema"], &result["hksim_version"]), (&2.into(), &version.into()), "{line}");
        let label = result.pointer(path).unwrap_or_else(|| panic!("{line}: no {path}"));
        assert_eq!(label["checksum"], of_file.as_str(), "{line}");
    };
    trace_at("sim rm.hkt", "/trace");
    trace_at("sweep rm.hkt", "/rows/0/trace");
    trace_at("validate rm.hkt --huge never", "/rows/0/predicted/trace");
    trace_at("compare rm.hkt --runs 1 --allocators glibc", "/trace");
    trace_at("replay rm.hkt --on glibc", "/trace");
    std::fs::write(bench.path("ops"), "map 0 16 w -\n").expect("a script");
    for line in ["rules --script ops --predict-only", "rules --random 1"] {
        let rules = bench.run(&format!("{line} --format json"));
        let Ok(rules) = serde_json::from_str::<Value>(&rules.stdout) else {
            eprintln!("skipped: {line}: {}", rules.stderr);
            continue;
        };
        assert_eq!((&rules["schema"], &rules["hksim_version"]), (&2.into(), &version.into()), "{line}");
    }
    let workloads = bench.json("sweep --huge never");
    assert_eq!(workloads["rows"][0]["trace"]["checksum"], Value::Null, "no file");
    bench.ok("gen random-mixed --cycles 20k --ws 400 --min 100 --max 3k --seed 7 -o other.hkt");
    assert_ne!(bench.json("sim other.hkt")["trace"]["checksum"], of_file.as_str());
}

#[test]
fn info_has_its_fields() {
    let info = Bench::with_trace().json("info rm.hkt");
    has(
        &info,
        &["schema", "events", "mallocs", "callocs", "reallocs", "aligned_allocs", "frees", "frees_null", "threads"],
    );
    has(&info, &["cross_thread_frees", "live_bytes_peak", "live_objects_peak", "live_objects_end", "unknown_frees"]);
    has(&info, &["size_bytes.p50", "size_bytes.p90", "size_bytes.p99", "size_bytes.max"]);
}

#[test]
fn a_result_has_the_inputs_to_reproduce_it() {
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
    for part in ["policy", "installs", "placement_digest", "rss_bytes_peak", "os_calls"] {
        assert_eq!(again[part], sim[part], "{part}");
    }
}

#[test]
fn replay_has_the_fields_of_sim() {
    let bench = Bench::with_trace();
    let replay = bench.json("replay rm.hkt --huge never");
    has(&replay, &["schema", "trace", "policy", "touch", "events", "installs", "faults", "traps", "rss_bytes_peak"]);
    has(
        &replay,
        &[
            "rss_bytes_end",
            "vmas_peak",
            "page_table_bytes_peak",
            "os_calls",
            "ops_per_s",
            "cpu_ns_per_call",
            "ratio_to_first",
            "rounds",
        ],
    );
    has(&replay, &["environment", "control", "skipped"]);
    assert_eq!(replay["events"], 20_000);
    assert_eq!(
        replay["placement_digest"],
        bench.json("sim rm.hkt --huge never")["placement_digest"],
        "simulation and replay place objects alike"
    );
    assert_eq!(number(&replay, "control.faults"), 0);
    assert!(bench.ok("replay rm.hkt --mode threaded").contains("native, threaded"));
    let glibc = bench.json("replay rm.hkt --on glibc");
    assert_eq!((&glibc["policy"], &glibc["events"]), (&Value::Null, &Value::from(20_000)));
}

#[test]
fn tlb_figures_need_a_core() {
    let bench = Bench::with_trace();
    assert_eq!(bench.json("sim rm.hkt").get("tlb"), None);
    let sim = bench.json("sim rm.hkt --tlb zen3");
    assert_eq!(sim["tlb"]["core"]["name"], "zen3");
    // random-mixed writes one byte of each block: one access per allocation.
    let hits = ["l1_hits", "l2_hits", "misses"].map(|name| number(&sim, &format!("tlb.lookups.application.{name}")));
    assert_eq!(hits.iter().sum::<u64>(), number(&bench.json("info rm.hkt"), "mallocs"));
    assert!(bench.ok("sim rm.hkt --tlb zen3").contains("TLB of zen3"));
}
