//! `hksim inspect` on this test's own process.

use crate::support::{Bench, number};

#[test]
fn a_running_process_is_shown_as_text_and_json() {
    let (bench, pid) = (Bench::new(), std::process::id());
    let json = bench.json(&format!("inspect {pid} --wait 10ms"));
    assert_eq!(number(&json, "pid"), u64::from(pid));
    let regions = json["regions"].as_array().expect("regions");
    let sum: u64 = regions.iter().map(|region| number(region, "rss_bytes")).sum();
    assert_eq!(sum, number(&json, "rss_bytes"));
    assert!(sum > 0 && json["before"]["waited_s"].as_f64() >= Some(0.01), "{json}");
    assert_eq!(json["before"]["pid"], json["pid"]);
    let text = bench.ok(&format!("inspect {pid}"));
    for part in [&format!("process       {pid} ("), "why not huge", "What would help:", "khugepaged"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let csv = bench.ok(&format!("inspect {pid} --format csv"));
    assert!(csv.lines().count() > regions.len() / 2 && csv.contains("rss_bytes"), "{csv}");
}

#[test]
fn a_process_that_is_not_there_is_named() {
    let said = Bench::new().refused("inspect 4194305");
    assert!(said.contains("there is no process 4194305"), "{said}");
}
