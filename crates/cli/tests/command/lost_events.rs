//! Events that the kernel drops because the recorder does not read them: `lost-events.c` stops its recorder, and ends
//! before it continues. So the losses are the last thing that happens, and no later record reports them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use hksim_trace::event::{AllocCall, Event, InitialTouch, ObjectId, Op, SiteId, ThreadId};
use hksim_trace::header::{Clock, Footer, Header, Origin, Quality, TouchSource};
use hksim_trace::hkt::TraceWriter;
use serde_json::Value;

use crate::support::recordings::{can_record, data};
use crate::support::{Bench, Ran, number};

/// Bytes of a block: above every threshold of malloc, so that each block gets fresh memory.
const BLOCK_BYTES: u64 = 64 << 20;
const BLOCK_PAGES: u64 = BLOCK_BYTES / 4096;

/// A directory for all users with the program; `None`, with the reason printed, without a compiler.
fn with_program() -> Option<Bench> {
    let bench = Bench::new();
    fs::set_permissions(bench.folder(), fs::Permissions::from_mode(0o777)).expect("a directory for all");
    bench.compile(data("lost-events.c"), "lost", &["-O1", "-fno-builtin"])?;
    Some(bench)
}

/// Runs the program, which touches `blocks` blocks, under a recorder.
fn record(bench: &Bench, flags: &str, blocks: u64) -> Ran {
    bench.run(&format!("record {flags} -- {} {BLOCK_BYTES} {blocks}", bench.path("lost").display()))
}

#[test]
fn a_memory_recording_with_losses_says_so_in_every_result() {
    let Some(bench) = can_record().then(with_program).flatten() else { return };
    let blocks = 96;
    let ran = record(&bench, "--memory -o lost.hkm --format json", blocks);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stderr).expect("JSON");
    let lost = number(&report, "lost_events");
    let info = bench.json("info lost.hkm");
    let touches = number(&info, "touches.write") + number(&info, "touches.read");
    // Most losses are faults; the others are calls: a mapping has two records and a note, its end two.
    let (faults, others) = (blocks * BLOCK_PAGES, blocks * 5 + 100);
    assert!(lost > faults / 4, "{report}");
    assert!((faults..faults + others + 1000).contains(&(touches + lost)), "{touches} + {lost}, of {faults}");

    assert_eq!((&info["complete"], number(&info, "lost_events")), (&false.into(), lost), "{info}");
    assert_eq!(number(&info, "footer.lost_events"), lost);
    let words = "the recorder lost";
    assert!(bench.ok("info lost.hkm").lines().any(|line| line.starts_with("complete") && line.contains(words)));
    let sim = bench.json("sim lost.hkm --thp never");
    assert_eq!((&sim["recording"]["complete"], number(&sim, "recording.lost_events")), (&false.into(), lost));
    let sweep = bench.json("sweep lost.hkm --thp never,always");
    assert_eq!(number(&sweep["rows"][1], "recording.lost_events"), lost);
    for command in ["sim lost.hkm --thp never", "sweep lost.hkm --thp never,always"] {
        let ran = bench.run(command);
        assert!(ran.stdout.contains(words) && ran.stderr.contains(words), "{command}: {}", ran.stdout);
    }
    for (command, file) in [("sim lost.hkm", "sim.json"), ("sweep lost.hkm --thp never,always", "sweep.json")] {
        bench.ok(&format!("{command} --format json -o {file}"));
        bench.ok(&format!("report {file} -o report.html"));
        assert!(fs::read_to_string(bench.path("report.html")).expect("a report").contains(words), "{file}");
        bench.ok(&format!("plot {file} -o plot.svg"));
        assert!(fs::read_to_string(bench.path("plot.svg")).expect("a plot").contains(words), "{file}");
    }
    let verify = bench.json("trace verify lost.hkm");
    assert!(verify["findings"].to_string().contains("the recorder lost events"), "{verify}");
}

#[test]
fn losses_of_a_recording_by_a_user_are_counted() {
    let Some(bench) = with_program() else { return };
    let own = Path::new(env!("CARGO_BIN_EXE_hksim"));
    fs::copy(own, bench.path("hksim")).expect("a copy that other users can read");
    let mut run = Command::new("setpriv");
    run.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]).arg(bench.path("hksim"));
    run.args(["record", "--memory", "-o", "user.hkm", "--format", "json", "--"]).arg(bench.path("lost"));
    // One block: the program would stop at the next call.
    let blocks = 1;
    run.args([(16 * BLOCK_BYTES).to_string(), blocks.to_string()]).env("XDG_CACHE_HOME", bench.folder());
    let output = run.current_dir(bench.folder()).output();
    let said = output.as_ref().map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
    let Ok(report) = serde_json::from_str::<Value>(&said) else {
        eprintln!("skipped: recording as another user: {output:?}");
        return;
    };
    let lost = number(&report, "lost_events");
    let info = bench.json("info user.hkm");
    let touches: u64 = info["touches"].as_object().expect("touches").values().filter_map(Value::as_u64).sum();
    let faults = 16 * BLOCK_PAGES;
    assert!(
        lost > faults / 4 && (faults..faults + 1000).contains(&(touches + lost)),
        "{touches} + {lost}, of {faults}"
    );
    assert_eq!(info["complete"], false);
}

#[test]
fn lost_faults_of_watched_pages_are_counted() {
    let Some(bench) = with_program() else { return };
    let ran = record(&bench, "--accesses pages --sample 1 -o pages.hkt", 16);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let info = bench.json("info pages.hkt");
    let watched = |name: &str| number(&info, &format!("quality.watched.{name}"));
    assert_eq!(watched("touches"), 16 * BLOCK_PAGES, "the scans find all touches");
    assert_eq!(info["complete"], watched("faults_lost") == 0);
    // Untimed are the lost ones, except the faults of a call that the kernel answered itself, and of pages that are not
    // watched: of the recorder's own log, too, which grows with the pauses of a loaded machine.
    let (lost, untimed) = (watched("faults_lost"), watched("touches_untimed"));
    assert!(lost >= untimed && lost < untimed + 1000 + lost / 10, "{lost} lost, {untimed} without a time");
    if lost == 0 {
        eprintln!("skipped: this machine's rings hold all faults");
    }
}

/// A trace of `blocks` blocks whose recorder lost `lost` events.
fn write_lossy(bench: &Bench, blocks: u32, lost: u64) {
    let origin = Origin::Imported { format: "test".into(), file: "test".into() };
    let header = Header::new(origin, TouchSource::Assumed, Clock::PerEvent);
    let mut writer = TraceWriter::create(&bench.path("lossy.hkt"), &header).expect("a trace");
    for number in 0..blocks {
        let (call, initial_touch) = (AllocCall::Malloc, InitialTouch::None);
        let op = Op::Alloc { object: ObjectId(number), size: 10_000, align_log2: 0, call, initial_touch };
        writer.push(&Event { time_ns: 0, thread: ThreadId(0), site: SiteId::default(), op }).expect("an event");
    }
    let quality = Quality { events_lost: lost, ..Quality::default() };
    writer.finish(&Footer { quality, ..Footer::default() }).expect("a trace");
}

#[test]
fn a_trace_with_losses_says_so_in_every_result() {
    let bench = Bench::new();
    write_lossy(&bench, 40, 7);
    let warning = "lossy.hkt: the recorder lost 7 events";
    for (command, label) in [
        ("sim lossy.hkt", "/trace"),
        ("sweep lossy.hkt --huge never,thp", "/rows/1/trace"),
        ("explain lossy.hkt", "/trace"),
        ("replay lossy.hkt", "/trace"),
        ("validate lossy.hkt", "/rows/0/predicted/trace"),
    ] {
        let ran = bench.run(&format!("{command} --format json -o result.json"));
        assert!(ran.stderr.contains(warning), "{command}: {}", ran.stderr);
        let result = fs::read_to_string(bench.path("result.json")).expect("a result");
        let result: Value = serde_json::from_str(&result).expect("JSON");
        let label = result.pointer(label).unwrap_or_else(|| panic!("{command}: no label: {result}"));
        assert_eq!((&label["complete"], number(label, "events_lost")), (&false.into(), 7), "{command}: {label}");
        if !command.starts_with("replay") {
            bench.ok("report result.json -o report.html");
            assert!(fs::read_to_string(bench.path("report.html")).expect("a report").contains(warning), "{command}");
        }
    }
    for command in ["sim lossy.hkt", "sweep lossy.hkt --huge never,thp"] {
        let text = bench.ok(command);
        assert!(text.contains("40 events (the recorder lost 7 more)"), "{text}");
    }
    let cut = bench.json("trace cut lossy.hkt --events 0..20 -o cut.hkt");
    assert_eq!(cut["complete"], false, "{cut}");
    assert_eq!(bench.json("sim cut.hkt")["trace"]["events_lost"], 7);
    // A sound one says nothing.
    write_lossy(&bench, 40, 0);
    let sim = bench.json("sim lossy.hkt");
    assert_eq!((&sim["trace"]["complete"], sim["trace"].get("events_lost")), (&true.into(), None));
}
