//! Addresses that a program rounds within its mappings: each run with random addresses rounds to other places, and the
//! prediction follows.

use serde_json::Value;

use super::support::recordings::{can_record, data};
use super::support::{Bench, number};
use super::{alone, validated};

#[test]
fn rounded_addresses_are_rounded_again_in_each_run() {
    let _alone = alone();
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let program = bench.path("app");
    if bench.compile(data("memory-answers.c"), "app", &["-O1"]).is_none() {
        return;
    }
    // One of 512 addresses is aligned as it is, and such a run has one touch less.
    let mut rows = (0..3).map(|number| {
        bench.ok(&format!("record --memory -o {number}.hkm -- {} rounded", program.display()));
        validated(&bench, &format!("{number}.hkm"), "madvise")
    });
    let is_exact = |row: &Value| (row["class"].as_str(), row["verdict"].as_str()) == (Some("exact"), Some("ok"));
    let row = rows.find(is_exact).expect("one of three recordings is exact");
    for run in row["measured"].as_array().expect("runs") {
        assert_eq!(number(run, "huge_pages_end"), 40, "{row}");
    }
}
