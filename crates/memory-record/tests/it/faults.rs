//! The number of page faults, against what `perf stat` counts.

use std::path::Path;
use std::process::{Command, Stdio};

use hksim_memory_record::Source;
use hksim_memory_trace::Op;

use crate::support::{MAPPINGS, operations, options, recorded, with_program};

/// Cases that ask for no huge pages.
const CASES: [&str; 5] = ["remap", "fixed", "unmap", "protect", "zero"];

/// Exceptions of page faults of a program; `None`, with the reason printed, where perf is missing or not permitted.
fn counted(program: &Path, case: &str, file: &Path) -> Option<u64> {
    let mut perf = Command::new("setarch");
    perf.args(["-R", "perf", "stat", "-x,", "-e", "exceptions:page_fault_user,exceptions:page_fault_kernel", "-o"]);
    match perf.arg(file).arg(program).arg(case).stdout(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        failed => {
            eprintln!("skipped: perf: {failed:?}");
            return None;
        }
    }
    let text = std::fs::read_to_string(file).expect("the output of perf");
    let counts: Vec<u64> = text
        .lines()
        .filter(|line| line.contains("page_fault_"))
        .filter_map(|line| line.split(',').next()?.parse().ok())
        .collect();
    if counts.len() != 2 {
        eprintln!("skipped: perf: {text}");
        return None;
    }
    Some(counts.iter().sum())
}

#[test]
fn as_many_faults_as_perf_counts() {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if mode.contains("[always]") {
        return eprintln!("skipped: perf counts fewer faults where huge pages are on");
    }
    let Some((directory, program)) = with_program(MAPPINGS) else { return };
    for case in CASES {
        let Some(counted) = counted(&program, case, &directory.path().join("perf")) else { return };
        let file = directory.path().join(format!("{case}.hkm"));
        let Some(report) = recorded(&options(&file, Source::Tracepoints), &program, &[case]) else { return };
        let operations = operations(&report.files[0].path);
        let touches = operations.iter().filter(|op| matches!(op, Op::Touch { .. })).count() as u64;
        // perf counts from the exec on, and faults of files depend on the page cache: a handful.
        assert!(touches.abs_diff(counted) <= 8, "{case}: {touches} recorded, {counted} counted");
    }
}
