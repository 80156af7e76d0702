//! No event is lost, whichever way the process ends. The oracle is a program that logs its own calls.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use hksim_record::{ClockReads, Exit, Options, record};
use hksim_trace::event::{AllocCall, Event, Op, ReallocCall};

use crate::support::{compile, events, scratch};

/// Default number of the program's workers.
const WORKERS: usize = 4;
const ENTRY_BYTES: usize = 24;
/// A worker's first call requests this size plus the worker's number.
const FIRST_SIZE: u64 = 1_000_003;

/// One call: function, size, log2 of the alignment. The size of a free is that of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    function: u32,
    align_log2: u32,
    size: u64,
}

const FREE: u32 = 10;
const USABLE: u32 = 11;

fn number(call: AllocCall) -> u32 {
    match call {
        AllocCall::Malloc => 1,
        AllocCall::Calloc => 2,
        AllocCall::Realloc => 3,
        AllocCall::Reallocarray => 4,
        AllocCall::PosixMemalign => 5,
        AllocCall::AlignedAlloc => 6,
        AllocCall::Memalign => 7,
        AllocCall::Valloc => 8,
        AllocCall::Pvalloc => 9,
    }
}

fn resize_number(call: ReallocCall) -> u32 {
    match call {
        ReallocCall::Realloc => 3,
        ReallocCall::Reallocarray => 4,
    }
}

/// The recorded calls of each worker, in order, from the call that identifies the worker.
fn recorded_calls(events: &[Event], workers: usize) -> Vec<Vec<Call>> {
    let mut threads: HashMap<u32, Vec<Call>> = HashMap::new();
    let mut sizes: HashMap<u32, u64> = HashMap::new();
    for event in events {
        let call = match event.op {
            Op::Alloc { object, size, align_log2, call, .. } => {
                sizes.insert(object.0, size);
                Call { function: number(call), align_log2: align_log2.into(), size }
            }
            Op::AllocFailed { size, align_log2, call } => {
                Call { function: number(call), align_log2: align_log2.into(), size }
            }
            Op::Realloc { object, size, call, .. } => {
                sizes.insert(object.0, size);
                Call { function: resize_number(call), align_log2: 0, size }
            }
            Op::ReallocFailed { size, call, .. } => Call { function: resize_number(call), align_log2: 0, size },
            Op::ReallocFree { call, .. } => Call { function: resize_number(call), align_log2: 0, size: 0 },
            Op::Free { object } => Call { function: FREE, align_log2: 0, size: sizes[&object.0] },
            Op::FreeNull => Call { function: FREE, align_log2: 0, size: 0 },
            Op::UsableSize { object } => Call { function: USABLE, align_log2: 0, size: sizes[&object.0] },
            Op::ThreadStart => continue,
            other => panic!("unexpected {other:?} at {} ns", event.time_ns),
        };
        threads.entry(event.thread.0).or_default().push(call);
    }
    let mut of_workers = vec![Vec::new(); workers];
    for mut calls in threads.into_values() {
        let worker = |call: &Call| call.size.checked_sub(FIRST_SIZE).filter(|&worker| worker < workers as u64);
        if let Some((at, worker)) = calls.iter().enumerate().find_map(|(at, call)| Some((at, worker(call)?))) {
            of_workers[worker as usize] = calls.split_off(at);
        }
    }
    of_workers
}

/// The calls that each worker logged, and whether each call returned.
fn logged_calls(log: &Path, workers: usize) -> Vec<Vec<(Call, bool)>> {
    let bytes = fs::read(log).expect("the program's log");
    let worker = |part: &[u8]| {
        part.chunks_exact(ENTRY_BYTES)
            .map(|entry| {
                let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("4 bytes"));
                let long = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
                (Call { function: word(0), align_log2: word(4), size: long(8) }, long(16) != 0)
            })
            .take_while(|(call, _)| call.function != 0)
            .collect()
    };
    bytes.chunks_exact(bytes.len() / workers).map(worker).collect()
}

fn check_end(how: &str, exit: Exit) {
    check(how, exit, WORKERS, &[], ClockReads::Every);
}

/// Records the program with this number of workers, compiled with `flags`, and compares the traces with its logs.
fn check(how: &str, exit: Exit, workers: usize, flags: &[&str], clock: ClockReads) {
    let dir = scratch();
    let program = compile(dir.path(), "self_log", flags);
    let options = Options { output: dir.path().join("app.hkt"), clock, ..Options::default() };
    for seed in 1..=3_u32 {
        let log = dir.path().join(format!("log-{seed}"));
        let words =
            [program.as_os_str(), log.as_os_str(), how.as_ref(), seed.to_string().as_ref()].map(ToOwned::to_owned);
        let report = record(&options, &words).unwrap_or_else(|why| panic!("{how}, seed {seed}: {why}"));
        assert_eq!(report.exit, Some(exit), "{how}, seed {seed}");
        assert_eq!(report.traces.len(), 1, "{how}, seed {seed}");
        let quality = report.traces[0].quality;
        assert_eq!(
            (quality.unknown_frees, quality.reuse_repaired, quality.events_lost),
            (0, 0, 0),
            "{how}, seed {seed}: {quality:?}"
        );
        let recorded = recorded_calls(&events(&report.traces[0]), workers);
        for (worker, (recorded, logged)) in recorded.iter().zip(logged_calls(&log, workers)).enumerate() {
            let place = format!("{how}, seed {seed}, worker {worker}");
            let completed = logged.iter().take_while(|(_, done)| *done).count();
            assert!(completed >= 60_000, "{place}: {completed} calls");
            assert!(logged.len() <= completed + 1, "{place}: more than one call in progress");
            assert!(recorded.len() >= completed, "{place}: {} of {completed} calls recorded", recorded.len());
            assert!(recorded.len() <= logged.len(), "{place}: {} of {} calls recorded", recorded.len(), logged.len());
            for (index, (recorded, (logged, _))) in recorded.iter().zip(&logged).enumerate() {
                assert_eq!(recorded, logged, "{place}, call {index}");
            }
        }
        fs::remove_file(log).expect("the log cannot be removed");
    }
}

#[test]
fn a_coarse_clock_loses_nothing_of_one_thread() {
    check("_exit", Exit::Code(7), 1, &["-DMAIN_WORKS", "-DWORKERS=1"], ClockReads::Sixteenth);
}

#[test]
fn a_coarse_clock_keeps_the_order_of_threads_that_begin_later() {
    check("_exit", Exit::Code(7), WORKERS, &["-DMAIN_WORKS"], ClockReads::Sixteenth);
}

#[test]
fn exit_loses_nothing() {
    check_end("exit", Exit::Code(7));
}

#[test]
fn immediate_exit_loses_nothing() {
    check_end("_exit", Exit::Code(7));
}

#[test]
fn abort_loses_nothing() {
    check_end("abort", Exit::Signal(libc::SIGABRT));
}

#[test]
fn sigkill_loses_nothing() {
    check_end("kill", Exit::Signal(libc::SIGKILL));
}
