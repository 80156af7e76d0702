//! Recordings of `operations.c`, which prints its own calls and touches.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hksim_memory_record::{RecordingReport, Source};
use hksim_memory_trace::{MapOp, Op, Origin};

use crate::support::{operations, options, recorded, with_program};

/// The pages of `operations.c` that it maps itself.
const OWN_PAGES: std::ops::Range<u64> = 0x1_0000_0000..0x1_0000_0800;
/// Advice at the beginning and at the end of its calls.
const MARKERS: [u32; 2] = [12345, 12346];

/// Calls by name, and touched pages in order.
#[derive(Debug, Default, PartialEq)]
struct Account {
    calls: BTreeMap<String, u64>,
    touched: Vec<u64>,
}

/// What the program printed.
fn printed(text: &str) -> Account {
    let mut account = Account::default();
    for line in text.lines() {
        let (name, value) = line.split_once(' ').expect("a name and a value");
        if name == "touch" {
            account.touched.push(u64::from_str_radix(value, 16).expect("a page"));
        } else {
            account.calls.insert(name.to_string(), value.parse().expect("a number"));
        }
    }
    account
}

/// What a recording shows between the markers.
fn shown(operations: &[Op]) -> Account {
    let marker = |wanted: u32| {
        let is_marker = |op: &Op| matches!(op, Op::Advise { advice, .. } if *advice == wanted);
        operations.iter().position(is_marker).expect("a marker")
    };
    let mut account = Account::default();
    for name in ["mmap", "munmap", "madvise", "mprotect", "brk"] {
        account.calls.insert(name.to_string(), 0);
    }
    for op in &operations[marker(MARKERS[0]) + 1..marker(MARKERS[1])] {
        let name = match op {
            Op::Map(map) if matches!(**map, MapOp { origin: Origin::Mmap, .. }) => "mmap",
            Op::Map(map) if matches!(**map, MapOp { origin: Origin::Brk, .. }) => "brk",
            Op::Unmap(_) => "munmap",
            Op::Advise { .. } => "madvise",
            Op::Protect { .. } => "mprotect",
            Op::Touch { page, .. } => {
                if OWN_PAGES.contains(page) {
                    account.touched.push(*page);
                }
                continue;
            }
            other => panic!("{other:?}"),
        };
        *account.calls.entry(name.to_string()).or_default() += 1;
    }
    account
}

/// Compares a recording with what the program printed. Returns its operations.
pub fn check(report: &RecordingReport, file: &Path, seed: &str) -> Vec<Op> {
    assert_eq!((report.exit_code, report.lost_events), (Some(0), 0), "seed {seed}");
    let operations = operations(file);
    let own = printed(&fs::read_to_string(file.with_extension("output")).expect("the program's output"));
    assert!(own.touched.len() > 1000 && own.calls["mmap"] > 100, "seed {seed}: the program does little");
    assert_eq!(shown(&operations), own, "seed {seed}");
    operations
}

#[test]
fn every_call_and_first_touch_is_recorded() {
    let Some((directory, program)) = with_program("operations.c") else { return };
    for seed in ["1", "2", "3"] {
        let file = directory.path().join(format!("{seed}.hkm"));
        let Some(report) = recorded(&options(&file, Source::Stops), &program, &[seed, "1000"]) else { return };
        check(&report, &file, seed);
    }
}

/// With root's rights faults inside system calls show in both ways, so that the recordings are equal.
#[test]
fn both_ways_record_the_same_operations() {
    let Some((directory, program)) = with_program("operations.c") else { return };
    let record = |name: &str, source| {
        let file = directory.path().join(name);
        let report = recorded(&options(&file, source), &program, &["4", "1000"])?;
        Some((report.visibility.faults, check(&report, &file, "4")))
    };
    let Some((_, by_tracepoints)) = record("tracepoints.hkm", Source::Tracepoints) else { return };
    // The first run of a new file can find pages of it absent.
    let Some((_, again)) = record("again.hkm", Source::Tracepoints) else { return };
    let Some((_, by_stops)) = record("stops.hkm", Source::Stops) else { return };
    assert!(by_tracepoints.len().abs_diff(again.len()) < 10);
    if let Some(at) = (0..again.len().max(by_stops.len())).find(|&at| again.get(at) != by_stops.get(at)) {
        panic!("operation {at}: {:?} by tracepoints, {:?} by stops", again.get(at), by_stops.get(at));
    }
}
