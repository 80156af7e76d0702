//! Addresses that a program rounds within its mappings: each run with random addresses rounds to other places, and the
//! prediction follows.

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
    bench.ok(&format!("record --memory -o a.hkm -- {} rounded", program.display()));
    let row = validated(&bench, "a.hkm", "madvise");
    assert_eq!((row["class"].as_str(), row["verdict"].as_str()), (Some("exact"), Some("ok")), "{row}");
    for run in row["measured"].as_array().expect("runs") {
        assert_eq!(number(run, "huge_pages_end"), 40, "{row}");
    }
}
