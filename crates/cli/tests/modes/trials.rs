//! `hksim trial --thp`: the machine's mode is that of each row while the row runs, and is restored.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::alone;
use crate::support::{Bench, Ran};

const MODE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

pub fn mode() -> Option<String> {
    fs::read_to_string(MODE).ok()
}

/// Whether this user may set the mode; prints the reason if not.
pub fn can_set() -> bool {
    let may = fs::OpenOptions::new().write(true).open(MODE).map_err(|why| eprintln!("skipped: {MODE}: {why}"));
    may.is_ok()
}

#[test]
fn each_row_runs_in_its_mode_which_is_restored() {
    let _turn = alone();
    if !can_set() {
        return;
    }
    let (bench, before) = (Bench::new(), mode());
    let line = format!("trial --thp madvise,always --runs 2 --seed 3 --format json -- cat {MODE}");
    let ran = Ran::of(&line, bench.command(&line).output().expect("hksim starts"));
    assert_eq!(mode(), before);
    let trial: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|why| panic!("{why}: {}", ran.stderr));
    let rows = trial["rows"].as_array().expect("rows");
    // The program writes the mode, so exactly the row of another mode has another output.
    for (row, word) in rows[1..].iter().zip(["madvise", "always"]) {
        assert_eq!(row["setting"], format!("thp={word}"));
        let is_before = before.as_ref().is_some_and(|mode| mode.contains(&format!("[{word}]")));
        assert_eq!(row["equal_output"], is_before, "{row}");
        assert!(row["cpu_s"]["median"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn the_mode_is_restored_when_hksim_is_killed() {
    let _turn = alone();
    if !can_set() {
        return;
    }
    let (bench, before) = (Bench::new(), mode());
    let other = if before.as_ref().is_some_and(|mode| mode.contains("[always]")) { "madvise" } else { "always" };
    let mut command = bench.command(&format!("trial --thp {other} -- sleep 0.2"));
    let mut hksim = command.spawn().expect("hksim starts");
    let begin = Instant::now();
    let until = |is_changed: bool| {
        while (mode() != before) != is_changed {
            assert!(begin.elapsed() < Duration::from_secs(60), "changed: {is_changed}");
            thread::sleep(Duration::from_millis(5));
        }
    };
    until(true);
    hksim.kill().expect("still running");
    let _ = hksim.wait();
    until(false);
}
