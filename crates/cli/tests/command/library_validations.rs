//! `hksim validate --on`: replays on malloc libraries, predicted from a recorded one and measured.

use std::fs;

use serde_json::Value;

use crate::support::recordings::{can_record, data};
use crate::support::{Bench, number};

/// A directory with a trace whose peak is 40 MiB above its end on allocators that give large blocks back; `None` if nothing
/// can be recorded here.
fn with_large_blocks() -> Option<Bench> {
    if !can_record() {
        return None;
    }
    let bench = Bench::new();
    let allocations = (0..20).map(|number| format!("a {number} {}\na {} 3000\n", 2 << 20, 100 + number));
    let frees = (0..20).map(|number| format!("f {number}\n"));
    fs::write(bench.path("large.script"), allocations.chain(frees).collect::<String>()).expect("a script");
    bench.ok("import large.script -o large.hkt");
    Some(bench)
}

/// The rows of a validation, which may fail.
fn rows(bench: &Bench, line: &str) -> Vec<Value> {
    let ran = bench.run(&format!("{line} --format json"));
    let result: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|why| panic!("{line}: {why}: {}", ran.stderr));
    assert_eq!(ran.code == Some(1), result["verdict"] == "failed", "{line}: the exit status is the verdict");
    result["rows"].as_array().expect("rows").clone()
}

#[test]
fn replays_on_installed_libraries_are_as_predicted() {
    let Some(bench) = with_large_blocks() else { return };
    let rows = rows(&bench, "validate large.hkt --on glibc,glibc:mmap_threshold=16M,jemalloc,mimalloc --runs 2");
    assert_eq!(rows.len(), 4);
    for row in &rows {
        let name = row["allocator"]["name"].as_str().unwrap_or_default();
        match row["verdict"].as_str() {
            Some("ok") => {}
            Some("skipped") if !name.starts_with("glibc") => println!("skipped: {name}: {}", row["reason"]),
            _ => panic!("{name}: {}: {}", row["verdict"], row["reason"]),
        }
    }
    let glibc = &rows[0];
    assert_eq!((glibc["class"].as_str(), glibc["file"].as_str()), (Some("exact"), Some("large.hkt")), "{glibc}");
    assert_eq!(glibc["command"].as_array().map(Vec::len), Some(5), "the replay as a command: {}", glibc["command"]);
    for (predicted, measured) in
        glibc["predicted"].as_array().into_iter().flatten().zip(glibc["measured"].as_array().into_iter().flatten())
    {
        assert_eq!(number(predicted, "traps"), number(measured, "traps"));
        let [predicted, least, most] = [
            number(predicted, "rss_bytes_peak"),
            number(measured, "rss_bytes_peak"),
            number(measured, "rss_bytes_peak_max"),
        ];
        assert!(predicted > number(measured, "rss_bytes_end") + (39 << 20), "the peak is another figure than the end");
        assert!((least..=most).contains(&predicted) && most - least < 512 << 10, "{predicted}: {least} to {most}");
    }
    let other = |row: &Value| number(&row["measured"][0], "traps");
    assert_ne!(other(glibc), other(&rows[1]), "the setting has an effect");
}

/// The library behaves otherwise in the run that is measured, so the prediction is wrong, by a figure that is known.
#[test]
fn a_library_unlike_its_prediction_fails_with_the_figure() {
    let Some(bench) = with_large_blocks() else { return };
    let variants: [(&str, &[&str], Option<&str>); 3] = [
        ("same.so", &[], None),
        ("more.so", &["-DMORE_FAULTS"], Some("traps ")),
        ("peak.so", &["-DHIGHER_PEAK"], Some("peak RSS ")),
    ];
    for (library, flags, wrong) in variants {
        if bench.compile(data("replayed.c"), library, &[&["-shared", "-fPIC", "-O1"], flags].concat()).is_none() {
            return;
        }
        let rows = rows(&bench, &format!("validate large.hkt --on ./{library} --runs 2"));
        let [row] = rows.as_slice() else { panic!("one row: {rows:?}") };
        let reason = row["reason"].as_str().unwrap_or_default();
        let Some(figure) = wrong else {
            assert_eq!((row["class"].as_str(), row["verdict"].as_str()), (Some("exact"), Some("ok")), "{row}");
            continue;
        };
        assert_eq!(row["verdict"], "failed", "{library}: {row}");
        assert!(reason.contains(figure), "{library}: {reason}");
        let first = |which: &str, name: &str| number(&row[which][0], name);
        let missed = first("measured", "traps") - first("predicted", "traps");
        assert_eq!(missed, if library == "more.so" { 100 } else { 0 }, "{library}: {reason}");
        if library == "peak.so" {
            let over = first("measured", "rss_bytes_peak_max") - first("predicted", "rss_bytes_peak");
            assert!((64 << 20..(64 << 20) + (512 << 10)).contains(&over), "64 MiB more than predicted, not {over}");
        }
    }
}

#[test]
fn what_cannot_be_combined_is_refused() {
    let bench = Bench::with_trace();
    for (line, expected) in [
        ("validate rm.hkt --on glibc --design bump", "have allocators of their own"),
        ("validate rm.hkt --on glibc --mode threaded", "use --mode ordered"),
        ("validate rm.hkt --on glibc --superslab 1M", "hksim's allocator"),
        ("validate rm.hkt --on glibc --by site", "sim --by site"),
        ("validate rm.hkt --on glibc --advise all", "changes the recording"),
        ("validate rm.hkt --on glib", "glib"),
        ("validate rm.hkt --on ./none.so", "none.so"),
        ("validate rm.hkt --on glibc --time", "cannot be used with"),
        ("validate rm.hkt --set-modes", "--on"),
    ] {
        let text = bench.refused(line);
        assert!(text.contains(expected), "{line}: {text}");
    }
}
