//! The exporters: importing an export yields the original events, except for what the format cannot express. An
//! independent reader finds the same events.

use crate::support::{Random, random_events, read_all, write_trace};
use hksim_trace::event::*;
use hksim_trace::export::{ExportReport, Kind, export};
use hksim_trace::hkt::TraceReader;
use hksim_trace::import::{Options, import};
use hksim_trace::source::EventSource;
use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

const ORACLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/exports.py");

fn write(trace: &Path, kind: Kind, out: &Path) -> ExportReport {
    let mut source = TraceReader::open(trace).unwrap();
    export(&mut source, kind, out, &mut BufWriter::new(File::create(out).unwrap())).unwrap()
}

/// Exports events and imports them again. Returns what the export lost, and the imported events.
fn round_trip(events: &[Event], kind: Kind, format: &str) -> (ExportReport, TraceReader, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let [trace, out, back] = ["t.hkt", "t.out", "back.hkt"].map(|name| folder.path().join(name));
    write_trace(&trace, events);
    let report = write(&trace, kind, &out);
    // The import must recognise the format.
    let imported = import(&out, &Options::default(), &back).unwrap();
    assert_eq!(imported.format, format);
    (report, TraceReader::open(&back).unwrap(), folder)
}

#[test]
fn a_csv_export_is_imported_without_loss() {
    for seed in 0..6 {
        let mut events = random_events(&mut Random::new(seed), 50_000);
        // An import would generate names for marks that have none in the footer.
        for event in &mut events {
            if let Op::Mark { name } = &mut event.op {
                *name %= 2;
            }
        }
        let (report, mut back, folder) = round_trip(&events, Kind::Csv, "csv");
        assert_eq!((report.events, report.losses.len()), (50_000, 0));
        assert_eq!(report.rows, 50_000 + 3, "column names, header and footer");
        let found = read_all(&mut back).unwrap();
        for (index, (event, other)) in events.iter().zip(&found).enumerate() {
            assert_eq!(event, other, "seed {seed}, event {index}");
        }
        assert_eq!(events.len(), found.len());
        let original = TraceReader::open(&folder.path().join("t.hkt")).unwrap();
        assert_eq!(original.header(), back.header());
        assert_eq!(original.footer(), back.footer());
        assert_eq!(original.summary(), back.summary());
        let bytes = |name| std::fs::read(folder.path().join(name)).unwrap();
        assert!(bytes("t.hkt") == bytes("back.hkt"), "the files are not byte-identical");
    }
}

/// The part of an event that android text can express.
fn as_android(op: Op) -> Option<Op> {
    let initial_touch = InitialTouch::None;
    Some(match op {
        Op::Alloc { object, size, align_log2, call, .. } => {
            let call = android_call(align_log2, call);
            Op::Alloc { object, size, align_log2, call, initial_touch }
        }
        Op::AllocFailed { size, align_log2, call } => {
            Op::AllocFailed { size, align_log2, call: android_call(align_log2, call) }
        }
        Op::ReallocUnknown { object, size, .. } => {
            Op::Alloc { object, size, align_log2: 0, call: AllocCall::Realloc, initial_touch }
        }
        Op::Realloc { object, size, .. } => Op::Realloc { object, size, call: ReallocCall::Realloc, initial_touch },
        Op::ReallocFree { object, .. } => Op::ReallocFree { object, call: ReallocCall::Realloc },
        Op::ReallocFailed { size: 0, .. } => return None,
        Op::ReallocFailed { object, size, .. } => Op::ReallocFailed { object, size, call: ReallocCall::Realloc },
        Op::Free { .. } | Op::FreeNull | Op::ThreadExit => op,
        _ => return None,
    })
}

fn android_call(align_log2: u8, call: AllocCall) -> AllocCall {
    match call {
        _ if align_log2 > 0 => AllocCall::Memalign,
        AllocCall::Malloc | AllocCall::Calloc | AllocCall::Realloc => call,
        AllocCall::Reallocarray => AllocCall::Realloc,
        _ => AllocCall::Memalign,
    }
}

#[test]
fn an_android_export_is_imported_except_for_what_it_cannot_express() {
    for seed in 10..16 {
        let events = random_events(&mut Random::new(seed), 50_000);
        let (report, mut back, _folder) = round_trip(&events, Kind::Android, "android");
        // Threads are numbered in order of their first line. If a thread has events after its end, they are those of a
        // new thread.
        let mut threads = HashMap::new();
        let mut seen = 0;
        let mut expected = Vec::new();
        for event in &events {
            let Some(op) = as_android(event.op) else { continue };
            let thread = *threads.entry(event.thread).or_insert_with(|| {
                seen += 1;
                ThreadId(seen - 1)
            });
            if op == Op::ThreadExit {
                threads.remove(&event.thread);
            }
            expected.push(Event::new(event.time_ns, thread, op));
        }
        let start_ns = expected[0].time_ns;
        expected.iter_mut().for_each(|event| event.time_ns -= start_ns);
        assert_eq!(report.rows, expected.len() as u64);
        let count = |is: fn(&Op) -> bool| events.iter().filter(|event| is(&event.op)).count() as u64;
        assert_eq!(report.losses["touch, left out"], count(|op| matches!(op, Op::Touch { .. })));
        assert_eq!(report.losses["malloc_usable_size, left out"], count(|op| matches!(op, Op::UsableSize { .. })));
        let found = read_all(&mut back).unwrap();
        for (index, (event, other)) in expected.iter().zip(&found).enumerate() {
            assert_eq!(event, other, "seed {seed}, event {index}");
        }
        assert_eq!(expected.len(), found.len());
        assert_eq!(back.footer().quality, Default::default(), "nothing had to be repaired");
    }
}

#[test]
fn a_rep_export_is_imported_as_the_blocks_of_one_thread() {
    let events = random_events(&mut Random::new(20), 50_000);
    let folder = tempfile::tempdir().unwrap();
    let [trace, out, back] = ["t.hkt", "t.rep", "back.hkt"].map(|name| folder.path().join(name));
    write_trace(&trace, &events);
    write(&trace, Kind::Rep, &out);
    let imported = import(&out, &Options::default(), &back).unwrap();
    assert_eq!(imported.format, "rep");
    let expected = events.iter().filter_map(|event| match event.op {
        Op::Alloc { object, size, .. } | Op::ReallocUnknown { object, size, .. } => Some(Op::Alloc {
            object,
            size: size.max(1),
            align_log2: 0,
            call: AllocCall::Malloc,
            initial_touch: InitialTouch::None,
        }),
        Op::Realloc { object, size, .. } => {
            Some(Op::Realloc { object, size, call: ReallocCall::Realloc, initial_touch: InitialTouch::None })
        }
        Op::Free { object } | Op::ReallocFree { object, .. } => Some(Op::Free { object }),
        _ => None,
    });
    let found = read_all(&mut TraceReader::open(&back).unwrap()).unwrap();
    assert!(expected.eq(found.iter().map(|event| event.op)));
    assert!(found.iter().all(|event| event.thread == ThreadId(0)));
}

/// The Python to use: `HKSIM_PYTHON`, else `python3`; `None`, with the reason printed, if it lacks a package.
fn python(packages: &str) -> Option<String> {
    let python = std::env::var("HKSIM_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let found = Command::new(&python).args(["-c", &format!("import {packages}")]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: {python} lacks one of the packages {packages}");
    None
}

fn ask_oracle(python: &str, trace: &Path, kind: Kind, out: &Path) -> u64 {
    let asked = Command::new(python).arg(ORACLE).arg(trace).arg(kind.name()).arg(out).output().unwrap();
    assert!(asked.status.success(), "{}: {}", kind.name(), String::from_utf8_lossy(&asked.stderr));
    String::from_utf8(asked.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn an_independent_reader_finds_the_same_events() {
    for (kind, packages) in [
        (Kind::Csv, "zstandard"),
        (Kind::Android, "zstandard"),
        (Kind::Rep, "zstandard"),
        #[cfg(feature = "parquet")]
        (Kind::Parquet, "zstandard, pyarrow"),
    ] {
        let Some(python) = python(packages) else { continue };
        let folder = tempfile::tempdir().unwrap();
        let [trace, out]: [PathBuf; 2] = ["t.hkt", "t.out"].map(|name| folder.path().join(name));
        // Enough events for more than one row group of Parquet.
        write_trace(&trace, &random_events(&mut Random::new(30), 150_000));
        let report = write(&trace, kind, &out);
        let heads = match kind {
            Kind::Csv => 3,
            Kind::Rep => 4,
            _ => 0,
        };
        assert_eq!(ask_oracle(&python, &trace, kind, &out), report.rows - heads);
    }
}

#[test]
fn an_empty_trace_can_be_exported() {
    for &kind in Kind::ALL {
        let folder = tempfile::tempdir().unwrap();
        let [trace, out] = ["t.hkt", "t.out"].map(|name| folder.path().join(name));
        write_trace(&trace, &[]);
        let report = write(&trace, kind, &out);
        assert_eq!(report.events, 0);
        assert!(report.losses.is_empty());
    }
}
