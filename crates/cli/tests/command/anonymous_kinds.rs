//! Private anonymous memory that is not made with `MAP_PRIVATE | MAP_ANONYMOUS`, against a program that reads its own smaps.

use std::process::Command;

use serde_json::Value;

use crate::support::recordings::{can_record, data};
use crate::support::{Bench, number};

const BYTES: u64 = 6 << 20;

/// The two numbers that the program prints: resident and huge KiB.
fn printed(output: &str) -> [u64; 2] {
    let line = output.lines().find(|line| line.split(' ').all(|word| word.parse::<u64>().is_ok()));
    let numbers: Vec<u64> = line.unwrap_or_default().split(' ').filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("two numbers: {output}"))
}

/// The program's own mapping.
fn region(prediction: &Value) -> &Value {
    let regions = prediction["regions"].as_array().expect("regions");
    let found = regions.iter().find(|region| region["bytes"] == BYTES && region["use"] == "mmap");
    found.unwrap_or_else(|| panic!("no mapping of {BYTES} bytes: {regions:?}"))
}

#[test]
fn private_zero_device_and_droppable_memory_is_predicted() {
    let bench = Bench::new();
    let modes = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let Some(mode) = ["always", "madvise"].into_iter().find(|mode| modes.contains(&format!("[{mode}]"))) else {
        return eprintln!("skipped: huge pages are off: {modes}");
    };
    if !can_record() {
        return;
    }
    let program = bench.path("kinds");
    if bench.compile(data("anonymous-kinds.c"), "kinds", &["-O1"]).is_none() {
        return;
    }
    for kind in ["private", "zero-device", "droppable"] {
        let run = Command::new(&program).arg(kind).output().expect("the program starts");
        if run.status.code() == Some(2) {
            eprintln!("skipped: this kernel has no {kind} memory");
            continue;
        }
        let [resident, huge] = printed(&String::from_utf8_lossy(&run.stdout));
        bench.ok(&format!("record --memory --no-aslr -o kinds.hkm -- {} {kind}", program.display()));
        let prediction = bench.json(&format!("sim kinds.hkm --thp {mode}"));
        assert_eq!(number(region(&prediction), "touches"), (5 << 20) / 4096, "{kind}");
        assert_eq!(number(region(&prediction), "bytes_installed"), resident << 10, "{kind} under {mode}");
        assert_eq!(number(&prediction, "huge_pages_end"), huge / 2048, "{kind} under {mode}");
        assert!(huge > 0, "{kind}: the kernel gave no huge pages");
    }
}
