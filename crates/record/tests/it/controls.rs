//! Marks, pausing and resuming, and limits, for processes that keep running.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use hksim_record::control::{Begin, Control};
use hksim_record::{Exit, Options, RecordReport, RecordedTrace, record};
use hksim_trace::event::{Event, Op};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::support::{compile, events, mallocs_of, record_words, scratch};

/// Number of short-lived blocks of a phase, in all threads together.
const CHURNED: usize = 400_000;

fn mark_names(trace: &RecordedTrace) -> Vec<String> {
    TraceReader::open(&trace.path).expect("a readable trace").footer().mark_names.clone()
}

/// The names of the marks, in order, each with the number of mallocs of a certain size before it.
fn marks(trace: &RecordedTrace, events: &[Event]) -> Vec<String> {
    let names = mark_names(trace);
    let named = |event: &Event| match event.op {
        Op::Mark { name } => Some(names[name as usize].clone()),
        Op::Alloc { size: size @ (11 | 22 | 33), .. } => Some(size.to_string()),
        _ => None,
    };
    events.iter().filter_map(named).collect()
}

#[test]
fn a_program_marks_its_own_trace() {
    let dir = scratch();
    let program = compile(dir.path(), "marks", &[]);
    assert!(Command::new(&program).status().expect("it runs").success(), "it works without the recorder");
    let report = record_words(dir.path(), [&program]);
    let trace = &report.traces[0];
    let events = events(trace);
    let expected = [
        "start",
        "11",
        "a name of more than two times twenty-four bytes: \u{e4}",
        "22",
        "a first event of its thread",
        "start",
        "",
        "33",
    ];
    assert_eq!(marks(trace, &events), expected);
    let threads: Vec<u32> =
        events.iter().filter_map(|event| matches!(event.op, Op::Mark { .. }).then_some(event.thread.0)).collect();
    assert_eq!(threads, [0, 0, 1, 0, 0]);
}

/// `phases`, recorded in a thread of this test.
struct Phases {
    dir: PathBuf,
    input: File,
    output: File,
    recording: JoinHandle<RecordReport>,
}

impl Phases {
    fn start(dir: &Path, options: Options) -> Phases {
        let program = compile(dir, "phases", &[]);
        let [input, output] = ["in", "out"].map(|name| dir.join(name));
        assert!(Command::new("mkfifo").args([&input, &output]).status().expect("mkfifo").success());
        let words: Vec<OsString> = vec![program.into(), input.clone().into(), output.clone().into()];
        let recording = spawn(move || record(&options, &words).expect("a recording"));
        let input = File::options().write(true).open(input).expect("the program's input");
        let output = File::open(output).expect("its output");
        Phases { dir: dir.to_path_buf(), input, output, recording }
    }

    /// Runs one phase; returns the program's process id.
    fn run_one(&mut self) -> u32 {
        self.input.write_all(&[1]).expect("the program listens");
        let mut pid = [0; 4];
        self.output.read_exact(&mut pid).expect("the program answers");
        u32::from_ne_bytes(pid)
    }

    fn finish(self) -> RecordReport {
        drop(self.input);
        let report = self.recording.join().expect("a recording");
        assert_eq!(report.exit, Some(Exit::Code(0)));
        let left = fs::read_dir(self.dir).expect("the directory").flatten();
        let left = left.filter(|entry| entry.file_name().to_string_lossy().contains("recording")).count();
        assert_eq!(left, 0, "no session is left");
        report
    }
}

fn options(dir: &Path) -> Options {
    Options { output: dir.join("app.hkt"), ..Options::default() }
}

/// Numbers of long-lived and of short-lived blocks, in phases 1 to 4.
fn counts(events: &[Event]) -> Vec<(usize, usize)> {
    (1..=4).map(|phase| (mallocs_of(events, 1000 + phase), mallocs_of(events, 2000 + phase))).collect()
}

#[test]
fn a_recording_stops_and_starts_exactly_when_requested() {
    let dir = scratch();
    let mut phases = Phases::start(dir.path(), options(dir.path()));
    let pid = phases.run_one();
    let control = Control::of_process(pid).expect("the program is recorded");
    assert!(control.stop().expect("a session") && !control.stop().expect("a session"), "once is enough");
    phases.run_one();
    assert!(control.start().expect("a session") && !control.start().expect("a session"), "once is enough");
    phases.run_one();
    control.mark("by the operator").expect("a session");
    phases.run_one();
    control.mark("at the end").expect("a session");
    let report = phases.finish();
    let trace = &report.traces[0];
    let events = events(trace);
    assert_eq!(counts(&events), [(5, CHURNED), (0, 0), (5, CHURNED), (5, CHURNED)]);
    assert_eq!(
        marks(trace, &events),
        ["recording stopped", "recording started", "by the operator", "at the end"],
        "in order"
    );
    let quality = trace.quality;
    assert!(quality.stopped_ns > 1_000_000, "a phase takes longer: {quality:?}");
    assert_eq!((quality.unknown_frees, quality.reuse_repaired, quality.events_lost), (0, 0, 0), "{quality:?}");
    assert!(control.mark("too late").is_err(), "the session is gone");
}

#[test]
fn a_recording_can_begin_stopped() {
    let dir = scratch();
    let mut phases = Phases::start(dir.path(), Options { begin: Begin::Stopped, ..options(dir.path()) });
    let pid = phases.run_one();
    Control::of_process(pid).and_then(|control| control.start()).expect("the program is recorded");
    phases.run_one();
    let report = phases.finish();
    let events = events(&report.traces[0]);
    assert_eq!(counts(&events), [(0, 0), (5, CHURNED), (0, 0), (0, 0)]);
    assert!(report.traces[0].quality.stopped_ns > 1_000_000);
}

#[test]
fn a_recording_that_was_never_started_is_reported() {
    let dir = scratch();
    let stopped = Options { begin: Begin::Stopped, ..options(dir.path()) };
    let why = record(&stopped, &[compile(dir.path(), "rounds", &[]).into(), "5".into()]).expect_err("nothing");
    assert!(why.to_string().contains("never started"), "{why}");
}

#[test]
fn a_recording_ends_after_its_time_and_the_program_continues() {
    let dir = scratch();
    let limited = Options { duration: Some(Duration::from_secs(2)), ..options(dir.path()) };
    let mut phases = Phases::start(dir.path(), limited);
    phases.run_one();
    let output = dir.path().join("app.hkt");
    while !output.exists() {
        sleep(Duration::from_millis(20));
    }
    phases.run_one();
    phases.run_one();
    let report = phases.finish();
    assert_eq!(counts(&events(&report.traces[0])), [(5, CHURNED), (0, 0), (0, 0), (0, 0)]);
    assert!(report.traces[0].still_running, "its trace was written before its end");
    assert_eq!(report.preload_object_kept, None);
}

#[test]
fn a_recording_ends_at_its_size_and_the_program_continues() {
    let dir = scratch();
    // A phase takes 6.4 MB.
    let limited = Options { bytes_max: Some(9 << 20), ..options(dir.path()) };
    let mut phases = Phases::start(dir.path(), limited);
    phases.run_one();
    phases.run_one();
    phases.run_one();
    let report = phases.finish();
    let trace = &report.traces[0];
    let counts = counts(&events(trace));
    assert_eq!(counts[0], (5, CHURNED));
    assert!((10_000..CHURNED).contains(&counts[1].1), "{counts:?}");
    assert_eq!(counts[2], (0, 0));
    let quality = trace.quality;
    assert_eq!((quality.unknown_frees, quality.reuse_repaired, quality.events_lost), (0, 0, 0), "{quality:?}");
}

#[test]
fn a_process_that_is_not_recorded_has_no_controls() {
    let why = Control::of_process(std::process::id()).expect_err("it is not recorded");
    assert!(why.to_string().contains("not being recorded"), "{why}");
    assert!(Control::of_process(u32::MAX).is_err());
}
