//! Results as a Rust program reads them: with the types that wrote them, so nothing is lost.

use hksim_results::{AnyResult, Kind, read};
use serde_json::Value;

use crate::support::Bench;

/// Runs a command, reads its result with the types of its kind, and writes it again.
fn reads_back(bench: &Bench, line: &str, kind: Kind) {
    bench.run(&format!("{line} --format json -o result.json"));
    let path = bench.path("result.json");
    let Value::Object(mut written) = read(&path).unwrap_or_else(|why| panic!("{line}: {why}")) else {
        panic!("{line}: no object")
    };
    // The arguments stand around the result, and not in it.
    written.remove("command");
    let written = Value::Object(written);
    assert_eq!(Kind::of(line, &written).ok(), Some(kind), "{line}");
    let result = AnyResult::of(line, &written)
        .unwrap_or_else(|why| panic!("{line}: {why}: {:?}", std::error::Error::source(&why)));
    assert_eq!(result.to_value().expect("JSON"), written, "{line}");
}

#[test]
fn results_are_read_by_the_types_that_wrote_them() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("p.toml"), crate::times::profile()).expect("a profile");
    // A row is read by the version that wrote it: this test stands for the command.
    let stated = bench.json("sim rm.hkt")["hksim_version"].as_str().expect("a version").to_string();
    hksim_sim::report::set_version(stated.leak());
    for (line, kind) in [
        ("sim rm.hkt --fork-at 5000 --tlb zen4", Kind::Sim),
        ("sim rm.hkt --align kernel --huge thp", Kind::Sim),
        ("sweep rm.hkt --huge never,thp --superslab 1M,2M", Kind::Sweep),
        ("sweep rm.hkt rm.hkt --huge never,thp --touch all,first", Kind::Sweep),
        ("explain rm.hkt --huge never --against hakmem", Kind::Explain),
        ("advise rm.hkt --huge never,thp --superslab 1M,2M --limit rss+100%", Kind::Advise),
        ("validate rm.hkt --huge never", Kind::Validate),
        ("validate rm.hkt --time --profile p.toml --runs 2", Kind::TimeValidate),
    ] {
        reads_back(&bench, line, kind);
    }
    let budget =
        "result = \"stored.json\"\ntraces = [\"rm.hkt\"]\n[design.a]\npolicy = \"default\"\nrss_peak = \"1G\"\n";
    std::fs::write(bench.path("budget.toml"), budget).expect("a budget");
    reads_back(&bench, "check budget.toml", Kind::Check);
}

#[test]
fn inspections_are_read_by_the_types_that_wrote_them() {
    let pid = std::process::id();
    reads_back(&Bench::new(), &format!("inspect {pid} --wait 10ms"), Kind::Inspect);
}

#[test]
fn results_of_memory_recordings_are_read_by_the_types_that_wrote_them() {
    let bench = Bench::new();
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/python-json.hkm");
    reads_back(&bench, &format!("sim {recording} --thp always"), Kind::MemorySim);
    reads_back(&bench, &format!("sweep {recording} --thp never,always --advise none,>=1M"), Kind::MemorySweep);
    // This program is not here, so that the row is skipped.
    reads_back(&bench, &format!("validate {recording} --run-recorded"), Kind::MemoryValidate);
}
