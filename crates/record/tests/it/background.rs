//! Conversion of logs while the program runs: the trace has every call, with the correct object.

use hksim_record::{Options, record};
use hksim_trace::event::Op;

use crate::support::{compile, events, scratch};

/// Number of calls of all threads: the logs are twice as large as early conversion requires.
const CALLS: u64 = 4_000_000;

#[test]
fn early_conversion_misses_no_call() {
    for threads in [1, 4] {
        let dir = scratch();
        let program = compile(dir.path(), "bursts", &["-pthread"]);
        let options = Options { output: dir.path().join("trace.hkt"), ..Options::default() };
        let words = [format!("{threads}"), format!("{}", CALLS / threads), "6000".to_string()];
        let command: Vec<_> = [program.into_os_string()].into_iter().chain(words.map(Into::into)).collect();
        let report = record(&options, &command).expect("a recording");
        let trace = &report.traces[0];
        let (mut allocations, mut frees) = (0, 0);
        for event in events(trace) {
            match event.op {
                Op::Alloc { size, .. } if (16..516).contains(&size) => allocations += 1,
                Op::Free { .. } | Op::FreeNull => frees += 1,
                _ => {}
            }
        }
        // The C library makes a few more calls.
        assert!((CALLS / 2..CALLS / 2 + 100).contains(&allocations), "{threads} threads: {allocations} allocations");
        assert!((CALLS / 2 + 512..CALLS / 2 + 612).contains(&frees), "{threads} threads: {frees} frees");
        assert_eq!((trace.quality.unknown_frees, trace.quality.reuse_repaired), (0, 0), "{threads} threads");
        assert_eq!(trace.quality.events_lost, 0, "{threads} threads");
        println!("{threads} threads: {} of {} events ahead", report.events_converted_live, trace.events);
        // A machine may have no idle core for six seconds; the test then shows nothing.
        if report.events_converted_live == 0 {
            println!("skipped: conversion while the program runs: no core was idle for it");
        }
    }
}
