//! The Python reader, which was written from the format's description alone, reads the events that were written.

use crate::support::{Random, random_events, write_trace};
use hksim_trace::event::*;
use hksim_trace::memory_policy::{LockAll, MemoryPolicy, ThpDisable};
use serde_json::{Value, json};
use std::process::Command;

const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/hksim/hkt.py");

/// The Python to use: `HKSIM_PYTHON`, else `python3`; `None`, with the reason printed, if it cannot read zstd.
fn python() -> Option<String> {
    let python = std::env::var("HKSIM_PYTHON").unwrap_or_else(|_| "python3".to_string());
    match Command::new(&python).args(["-c", "import zstandard"]).output() {
        Ok(output) if output.status.success() => Some(python),
        Ok(_) => {
            eprintln!("skipped: {python} has no package zstandard");
            None
        }
        Err(why) => {
            eprintln!("skipped: cannot run {python}: {why}");
            None
        }
    }
}

fn initial_touch_name(initial_touch: InitialTouch) -> &'static str {
    match initial_touch {
        InitialTouch::None => "none",
        InitialTouch::FirstByte => "first",
        InitialTouch::All => "all",
        InitialTouch::Watched => "watched",
        InitialTouch::Read => "read",
        InitialTouch::ReadThenWrite => "read-then-write",
        // Only created when a profile is applied: no file contains it.
        InitialTouch::PerPage(_) => unreachable!("a file has a per-page initial touch"),
    }
}

/// The event as the Python reader names it.
fn expected(event: &Event) -> Value {
    let alloc_call = |call: AllocCall| {
        let names = ["malloc", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "memalign"];
        names.iter().chain(&["valloc", "pvalloc"]).nth(call as usize).unwrap().to_string()
    };
    let realloc_call = |call| if call == ReallocCall::Realloc { "realloc" } else { "reallocarray" };
    let (name, mut fields) = match event.op {
        Op::Alloc { object, size, align_log2, call, initial_touch } => (
            "alloc",
            json!({"object": object.0, "size": size, "align_log2": align_log2, "call": alloc_call(call), "birth": initial_touch_name(initial_touch)}),
        ),
        Op::Realloc { object, size, call, initial_touch } => (
            "realloc",
            json!({"object": object.0, "size": size, "align_log2": 0, "call": realloc_call(call), "birth": initial_touch_name(initial_touch)}),
        ),
        Op::ReallocFree { object, call } => {
            ("realloc_free", json!({"object": object.0, "align_log2": 0, "call": realloc_call(call), "birth": "none"}))
        }
        Op::ReallocUnknown { object, size, call } => (
            "realloc_unknown",
            json!({"object": object.0, "size": size, "align_log2": 0, "call": realloc_call(call), "birth": "none"}),
        ),
        Op::ReallocFailed { object, size, call } => (
            "realloc_failed",
            json!({"object": object.0, "size": size, "align_log2": 0, "call": realloc_call(call), "birth": "none"}),
        ),
        Op::AllocFailed { size, align_log2, call } => {
            ("alloc_failed", json!({"size": size, "align_log2": align_log2, "call": alloc_call(call), "birth": "none"}))
        }
        Op::Free { object } => ("free", json!({"object": object.0})),
        Op::UsableSize { object } => ("usable_size", json!({"object": object.0})),
        Op::FreeNull => ("free_null", json!({})),
        Op::FreeUnknown => ("free_unknown", json!({})),
        Op::ThreadStart => ("thread_start", json!({})),
        Op::ThreadExit => ("thread_exit", json!({})),
        Op::Fork { child_pid } => ("fork", json!({"number": child_pid})),
        Op::ForkEnd { child_pid, outlives } => ("fork_end", json!({"number": child_pid, "outlives": outlives})),
        Op::Exec => ("exec", json!({})),
        Op::Mark { name } => ("mark", json!({"number": name})),
        Op::Touch { object, offset, bytes, access } => (
            if access == Access::Read { "read" } else { "write" },
            json!({"object": object.0, "offset": offset, "number": bytes}),
        ),
        Op::MemoryPolicy { policy, inherited } => {
            let (policy, number) = match policy {
                MemoryPolicy::ThpDisable(ThpDisable::Off) => ("thp-disable", 0),
                MemoryPolicy::ThpDisable(ThpDisable::All) => ("thp-disable", 1),
                MemoryPolicy::ThpDisable(ThpDisable::ExceptAdvised) => ("thp-disable", 3),
                MemoryPolicy::LockAll(LockAll { current, future, on_fault }) => {
                    ("mlockall", u32::from(current) + 2 * u32::from(future) + 4 * u32::from(on_fault))
                }
                MemoryPolicy::Personality(personality) => ("personality", personality),
            };
            ("memory_policy", json!({"policy": policy, "inherited": inherited, "number": number}))
        }
    };
    if event.op.asks_for_memory() {
        fields["site"] = json!(event.site.0);
    }
    json!([event.time_ns, event.thread.0, name, fields])
}

#[test]
fn python_reads_the_same_events() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.hkt");
    for seed in 0..2 {
        let events = random_events(&mut Random::new(seed), 40_000);
        write_trace(&path, &events);
        let output = Command::new(&python).arg(READER).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), events.len());
        for (index, (line, event)) in text.lines().zip(&events).enumerate() {
            let read: Value = serde_json::from_str(line).unwrap();
            assert_eq!(read, expected(event), "seed {seed}, event {index}");
        }
    }
}
