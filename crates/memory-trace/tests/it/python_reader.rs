//! The Python reader, which was written from the format's description alone, reads the events that were written.

use std::ops::Range;
use std::process::Command;

use crate::support::{Named, NamedStack, add_sites, named_stack, random_events, random_sites, write, write_with_sites};
use hksim_memory_trace::{Frame, MapOp, Module, Op, Origin, TouchKind};
use serde_json::{Value, json};

const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/hksim/hkm.py");

/// The Python to use: `HKSIM_PYTHON`, else `python3`; `None`, with the reason printed, if it cannot read zstd.
fn python() -> Option<String> {
    let python = std::env::var("HKSIM_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let can_read = "import importlib.util, shutil, sys; \
                    sys.exit(not (importlib.util.find_spec('zstandard') or shutil.which('zstd')))";
    match Command::new(&python).args(["-c", can_read]).output() {
        Ok(output) if output.status.success() => Some(python),
        Ok(_) => {
            eprintln!("skipped: {python} has no package zstandard, and there is no command zstd");
            None
        }
        Err(why) => {
            eprintln!("skipped: cannot run {python}: {why}");
            None
        }
    }
}

/// The fields of a mapping.
fn mapping(map: &MapOp, name: Option<&str>) -> Value {
    let origin = match map.origin {
        Origin::Mmap => "mmap",
        Origin::Brk => "brk",
        Origin::Exec => "exec",
        Origin::Kernel => "kernel",
    };
    json!({"pages": [map.pages.start, map.pages.end], "kind": map.kind, "origin": origin, "hint_page": map.hint_page,
           "protection": map.protection, "flags": map.flags, "name": name})
}

/// The event as the Python reader names it.
fn expected((event, name): &Named) -> Value {
    let pages = |pages: &Range<u64>| json!([pages.start, pages.end]);
    let (what, fields) = match &event.op {
        Op::Touch { page, kind: TouchKind::Read } => ("read", json!({"page": page})),
        Op::Touch { page, kind: TouchKind::Write } => ("write", json!({"page": page})),
        Op::Touch { page, kind: TouchKind::Unknown } => ("touch", json!({"page": page})),
        Op::Map(map) => ("map", mapping(map, name.as_deref())),
        Op::MappingAtStart(start) => {
            let mut fields = mapping(&start.map, name.as_deref());
            fields["traits"] = json!(start.traits.0);
            ("mapping_at_start", fields)
        }
        Op::PagesAtStart(start) => {
            ("pages_at_start", json!({"pages": pages(&start.pages), "state": start.state.name()}))
        }
        Op::Unmap(range) => ("unmap", json!({"pages": pages(range)})),
        Op::Remap { old, new, flags } => ("remap", json!({"old": pages(old), "new": pages(new), "flags": flags})),
        Op::Protect { pages: range, protection, errno } => {
            ("protect", json!({"pages": pages(range), "protection": protection, "errno": errno}))
        }
        Op::Advise { pages: range, advice, errno } => {
            ("advise", json!({"pages": pages(range), "advice": advice, "errno": errno}))
        }
        Op::Lock { pages: range, flags, errno } => {
            ("lock", json!({"pages": pages(range), "flags": flags, "errno": errno}))
        }
        Op::Unlock(range) => ("unlock", json!({"pages": pages(range)})),
        Op::LockAll(flags) => ("lock_all", json!({"flags": flags})),
        Op::UnlockAll => ("unlock_all", json!({})),
        Op::NameMapping { pages: range, name_address } => {
            ("name_mapping", json!({"pages": pages(range), "name_address": name_address}))
        }
        Op::DisableThp { value, flags } => ("disable_thp", json!({"value": value, "flags": flags})),
        Op::Fork { child_pid } => ("fork", json!({"child_pid": child_pid})),
        Op::ChildEnded { child_pid } => ("child_ended", json!({"child_pid": child_pid})),
        Op::Lost { events } => ("lost", json!({"events": events})),
    };
    json!([event.time_ns, event.thread, what, fields])
}

/// The stack as the Python reader prints it.
fn expected_stack((frames, end): &NamedStack) -> Value {
    let module = |module: &Module| json!([&*module.path, module.build_id.as_deref().unwrap_or_default()]);
    let frame = |(frame, of): &(Frame, Option<Module>)| {
        json!([of.as_ref().map(module), frame.address, frame.function.as_deref(), frame.source.as_deref()])
    };
    json!([end, frames.iter().map(frame).collect::<Vec<_>>()])
}

#[test]
fn python_reads_the_same_call_sites() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    let (mut events, sites) = (random_events(2, 70_000), random_sites(2, 300));
    add_sites(2, &mut events, &sites);
    write_with_sites(&path, &events, &sites);
    let output = Command::new(&python).arg(READER).arg(&path).output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(text.lines().count(), events.len());
    for (index, (line, event)) in text.lines().zip(&events).enumerate() {
        let read: Value = serde_json::from_str(line).expect("JSON");
        let mut wanted = expected(event);
        if let Some(stack) = named_stack(&sites, event.0.site) {
            wanted[3]["site"] = expected_stack(&stack);
        }
        assert_eq!(read, wanted, "event {index}");
    }
}

#[test]
fn python_reads_the_same_events() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    for (seed, count) in [(0, 1_000), (1, 70_000)] {
        let events = random_events(seed, count);
        write(&path, &events);
        let output = Command::new(&python).arg(READER).arg(&path).output().expect("python starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(text.lines().count(), events.len());
        for (index, (line, event)) in text.lines().zip(&events).enumerate() {
            let read: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(read, expected(event), "seed {seed}, event {index}");
        }
    }
}
