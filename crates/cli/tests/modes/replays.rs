//! `hksim validate --on --set-modes`: replays on malloc libraries under each mode, predicted with huge pages off.

use serde_json::Value;

use super::alone;
use super::support::recordings::can_record;
use super::support::{Bench, number};

#[test]
fn replays_under_each_mode_are_as_predicted() {
    let _alone = alone();
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    bench.ok("gen server --live 8M --threads 1 --events 40k -o s.hkt");
    let modes = ["never", "madvise", "always"];
    let line = format!(
        "validate s.hkt --on glibc,glibc:hugetlb=1,mimalloc --thp {} --mthp 2M=inherit --set-modes --runs 2",
        modes.join(",")
    );
    let result = bench.json(&line);
    let rows = result["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 9);
    for (at, row) in rows.iter().enumerate() {
        let setting: Vec<&Value> = row["setting"].as_array().into_iter().flatten().collect();
        assert!(setting.iter().any(|pair| pair[0] == "thp" && pair[1] == modes[at % 3]), "row {at}: {row}");
        match row["verdict"].as_str() {
            Some("ok") => {}
            Some("skipped") => println!("skipped: row {at}: {}", row["reason"]),
            _ => panic!("row {at}: {row}"),
        }
    }
    // glibc advises its heap only if it reads the mode madvise at its start.
    let huge = |at: usize| number(&rows[at]["measured"][0], "huge_pages_end");
    if [3, 4].iter().all(|&at| rows[at]["verdict"] == "ok") {
        assert!(huge(3) == 0 && huge(4) > 0, "{rows:?}");
    }
}
