//! `--accesses full` on C programs whose accesses can be counted by hand, and a comparison of hktouch with lackey.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hksim_record::touch_full::{Merging, TouchFull};
use hksim_record::{Exit, Options, RecordReport, record};
use hksim_trace::event::{Access, Event, ObjectId, Op};
use hksim_trace::header::{Clock, TouchSource};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::support::{compile, have, read, scratch};

/// hktouch; prints a message to stderr and returns `None` if it is not available.
fn own_tool() -> Option<TouchFull> {
    if !have("valgrind") {
        return None;
    }
    let tool = TouchFull::find().expect("valgrind is there");
    match tool.why_lackey() {
        None => Some(tool),
        Some(why) => {
            eprintln!("skipped: the valgrind tool cannot be built: {why}");
            None
        }
    }
}

fn record_part(dir: &Path, name: &str, program: &Path, part: &str, tool: TouchFull) -> RecordReport {
    let words = [program.as_os_str().to_owned(), OsString::from(part)];
    let options = Options { output: dir.join(name), touch: hksim_record::Touch::Full(tool), ..Options::default() };
    let report = record(&options, &words).unwrap_or_else(|why| panic!("{part}: {why}"));
    assert_eq!(report.exit, Some(Exit::Code(0)), "{part}");
    report
}

/// The accesses to one object between allocation and free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Life {
    sizes: Vec<u64>,
    reads: u64,
    writes: u64,
    read_bytes: u64,
    written_bytes: u64,
    threads: Vec<u32>,
}

/// The lives in a trace, by the size requested at allocation.
fn lives(events: &[Event]) -> HashMap<u64, Vec<Life>> {
    let mut live: HashMap<ObjectId, Life> = HashMap::new();
    let mut all: HashMap<u64, Vec<Life>> = HashMap::new();
    for event in events {
        match event.op {
            Op::Alloc { object, size, .. } => {
                live.insert(object, Life { sizes: vec![size], ..Life::default() });
            }
            Op::Realloc { object, size, .. } => live.get_mut(&object).expect("a live object").sizes.push(size),
            Op::Free { object } => {
                let life = live.remove(&object).expect("a live object");
                all.entry(life.sizes[0]).or_default().push(life);
            }
            Op::Touch { object, offset, bytes, access } => {
                let life = live.get_mut(&object).expect("a live object");
                let size = *life.sizes.last().expect("a size");
                assert!(offset + u64::from(bytes) <= size, "{event:?} is within {size} bytes");
                let (count, sum) = match access {
                    Access::Read => (&mut life.reads, &mut life.read_bytes),
                    Access::Write => (&mut life.writes, &mut life.written_bytes),
                };
                *count += 1;
                *sum += u64::from(bytes);
                life.threads.push(event.thread.0);
            }
            _ => {}
        }
    }
    all
}

/// Reads, writes, bytes read and bytes written of the only object of that size.
fn only(lives: &HashMap<u64, Vec<Life>>, size: u64) -> [u64; 4] {
    let [life] = lives.get(&size).map(Vec::as_slice).unwrap_or_default() else {
        panic!("one object of {size} bytes, not {:?}", lives.get(&size));
    };
    [life.reads, life.writes, life.read_bytes, life.written_bytes]
}

#[test]
fn every_access_is_counted_once() {
    let Some(tool) = own_tool() else { return };
    let dir = scratch();
    let program = compile(dir.path(), "touches", &[]);
    let report = record_part(dir.path(), "a.hkt", &program, "plain", tool.clone().with_merging(Merging::None));
    let trace = &report.traces[0];
    let header = TraceReader::open(&trace.path).expect("a trace").header().clone();
    assert_eq!((header.touch, header.clock), (TouchSource::FullStream, Clock::PerEvent));
    let lives = lives(&read(&trace.path));
    let nodes = &lives[&16];
    assert_eq!(nodes.len(), 100);
    for node in nodes {
        assert_eq!([node.reads, node.writes, node.read_bytes, node.written_bytes], [3, 2, 24, 16]);
    }
    assert_eq!(only(&lives, 4000), [1000, 1000, 4000, 4000], "the array");
    assert_eq!(only(&lives, 10000), [0; 4], "the untouched block");
    assert_eq!(only(&lives, 801), [0, 1, 0, 1], "the zeroed block");
    assert_eq!(only(&lives, 24), [0; 4], "the block that prevents growth in place");
    assert_eq!(only(&lives, 1200), [1, 2, 4, 8], "the block that moved");
    assert_eq!(only(&lives, 56), [6, 4, 48, 32], "locked additions");
    let [reads, writes, read_bytes, written_bytes] = only(&lives, 300);
    assert_eq!((reads, read_bytes), (1, 1));
    // The C library's memset selects its stores by processor, and they may overlap.
    assert!(writes <= 300 && (300..600).contains(&written_bytes), "{writes} stores of {written_bytes} bytes");
    let touches = trace.touches.expect("counts");
    assert_eq!(touches.reads + touches.writes, touches.events, "touches were merged");

    let merged = record_part(dir.path(), "b.hkt", &program, "plain", tool);
    let merged = merged.traces[0].touches.expect("counts");
    assert_eq!((merged.reads, merged.writes), (touches.reads, touches.writes));
    assert_eq!((merged.read_bytes, merged.written_bytes), (touches.read_bytes, touches.written_bytes));
    assert!(merged.events < touches.events / 4, "the array is written in one event, and read in one: {merged:?}");
}

/// The bytes of the file after the header. The header contains the process id, so it differs from run to run.
fn body(path: &Path) -> Vec<u8> {
    let file = fs::read(path).expect("a trace");
    let header_bytes = u32::from_le_bytes(file[12..16].try_into().expect("four bytes")) as usize;
    file[16 + header_bytes + 4..].to_vec()
}

#[test]
fn hktouch_and_lackey_give_the_same_trace() {
    let Some(tool) = own_tool() else { return };
    let lackey = TouchFull::lackey().expect("valgrind is there");
    assert_eq!(lackey.why_lackey(), Some("requested"));
    let dir = scratch();
    let program = compile(dir.path(), "touches", &[]);
    for merging in [Merging::None, Merging::Extending] {
        let [own, other] = [("own.hkt", &tool), ("lackey.hkt", &lackey)]
            .map(|(name, tool)| record_part(dir.path(), name, &program, "plain", tool.clone().with_merging(merging)));
        assert!(own.traces[0].touches.is_some_and(|touches| touches.reads > 1000));
        assert_eq!(own.traces[0].touches, other.traces[0].touches);
        assert_eq!(body(&own.traces[0].path), body(&other.traces[0].path), "{merging:?}");
    }
}

#[test]
fn accesses_by_system_calls_are_counted() {
    let Some(tool) = own_tool() else { return };
    let dir = scratch();
    let program = compile(dir.path(), "touches", &[]);
    let report = record_part(dir.path(), "a.hkt", &program, "system-calls", tool);
    let events = read(&report.traces[0].path);
    let lives = lives(&events);
    assert_eq!(only(&lives, 6000), [1, 1, 100, 5000], "read(2) writes, write(2) reads");
    assert_eq!(only(&lives, 70000), [1, 0, 70000, 0], "writev(2) reads two adjacent parts");
    let written = events.iter().find_map(|event| match event.op {
        Op::Touch { offset, bytes, access: Access::Read, .. } => Some((offset, bytes)),
        _ => None,
    });
    assert_eq!(written, Some((10, 100)), "the offset in the block is recorded");
}

#[test]
fn each_thread_has_its_own_accesses() {
    let Some(tool) = own_tool() else { return };
    let dir = scratch();
    let program = compile(dir.path(), "touches", &[]);
    for tool in [tool, TouchFull::lackey().expect("valgrind is there")] {
        let report = record_part(dir.path(), "a.hkt", &program, "threads", tool.with_merging(Merging::None));
        assert_eq!(report.traces[0].threads, 2);
        let lives = lives(&read(&report.traces[0].path));
        let blocks = &lives[&48];
        assert_eq!(blocks.len(), 2000);
        for block in blocks {
            assert_eq!([block.reads, block.writes, block.read_bytes, block.written_bytes], [6, 6, 48, 48]);
            assert_eq!(block.threads, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1], "written by one, read by the other");
        }
    }
}

#[test]
fn children_and_new_images_have_separate_traces() {
    let Some(tool) = own_tool() else { return };
    let dir = scratch();
    let program = compile(dir.path(), "touches", &[]);
    let report = record_part(dir.path(), "a.hkt", &program, "forks", tool.clone().with_merging(Merging::None));
    let [parent, child] = report.traces.as_slice() else {
        panic!("two traces, not {:?}", report.traces);
    };
    assert!(child.forked && !parent.forked);
    assert_eq!(only(&lives(&read(&parent.path)), 72), [0, 10, 0, 80]);
    assert_eq!(only(&lives(&read(&parent.path)), 64), [0, 1, 0, 8]);
    let of_child = lives(&read(&child.path));
    assert_eq!(only(&of_child, 88), [0, 10, 0, 80]);
    assert!(!of_child.contains_key(&64), "inherited blocks are not the child's");

    let report = record_part(dir.path(), "a.hkt", &program, "exec", tool);
    assert_eq!(only(&lives(&read(&report.traces[0].path)), 10000), [0; 4], "the new image was recorded");
}

#[test]
fn a_killed_program_keeps_its_calls() {
    let Some(tool) = own_tool() else { return };
    let dir = scratch();
    let program = compile(dir.path(), "touches", &[]);
    let words = [program.as_os_str().to_owned(), OsString::from("kill")];
    let options =
        Options { output: dir.path().join("a.hkt"), touch: hksim_record::Touch::Full(tool), ..Options::default() };
    let report = record(&options, &words).expect("a recording");
    assert_eq!(report.exit, Some(Exit::Signal(9)));
    let touches = report.traces[0].touches.expect("counts");
    // The stream lacks the accesses to the last nodes. The report counts their calls.
    let all = lives(&read(&report.traces[0].path));
    assert_eq!(all[&16].len(), 10_000);
    let whole = all[&16].iter().filter(|node| (node.read_bytes, node.written_bytes) == (24, 16)).count();
    assert!(whole > 5_000, "{whole} whole nodes");
    let cut = (10_000 - whole) as u64;
    assert!((1..=touches.calls_without_stream + 100).contains(&cut), "{cut} cut nodes, {touches:?}");
}

#[test]
fn programs_of_the_system_give_the_same_output() {
    let Some(tool) = own_tool() else { return };
    if !have("/usr/bin/python3") {
        return;
    }
    let dir = scratch();
    let script = "import json, sys, threading; \
        work = lambda: [json.loads(json.dumps({str(i): [i, i * 0.5, 'x' * i] for i in range(50)}))]; \
        threads = [threading.Thread(target=work) for _ in range(3)]; \
        [t.start() for t in threads]; [t.join() for t in threads]; \
        open(sys.argv[1], 'w').write(str(len(str(work()))))";
    let [plain, recorded] = ["plain", "recorded"].map(|name| dir.path().join(name));
    let run = |output: &PathBuf| ["/usr/bin/python3", "-c", script, &output.to_string_lossy()].map(OsString::from);
    assert!(Command::new("/usr/bin/python3").args(&run(&plain)[1..]).status().expect("python3").success());
    let options =
        Options { output: dir.path().join("a.hkt"), touch: hksim_record::Touch::Full(tool), ..Options::default() };
    let report = record(&options, &run(&recorded)).expect("a recording");
    assert_eq!(report.exit, Some(Exit::Code(0)));
    assert_eq!(fs::read(&plain).expect("output"), fs::read(&recorded).expect("output"));
    let trace = &report.traces[0];
    assert!(trace.threads >= 4 && trace.quality.unknown_frees == 0 && trace.quality.uses_dropped == 0, "{trace:?}");
    assert_eq!(trace.touches.map(|touches| touches.calls_without_stream), Some(0));
    let counted = read(&trace.path).iter().filter(|event| matches!(event.op, Op::Touch { .. })).count() as u64;
    assert_eq!(trace.touches.map(|touches| touches.events), Some(counted));
}
