//! Tests `--clock 16`, with which only some events read the clock: calls in close succession share times, and times are
//! exact after a pause.

use std::collections::BTreeSet;
use std::path::Path;

use hksim_record::{ClockReads, Exit, Options, record};
use hksim_trace::event::{Event, Op};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::support::{compile, events, scratch};

const ROW: u64 = 100_000;
const RESTS: usize = 10;
const REST_NS: u64 = 30_000_000;
/// Maximum number of recordings. The first call of each millisecond reads the clock anyway, so [`RUNS_QUICK`]
/// recordings must run fast enough that times could be reused.
const RUNS: usize = 60;
const RUNS_QUICK: usize = 3;
const QUICK_NS: u64 = 500_000;

fn recorded(dir: &Path, clock: ClockReads) -> (Vec<Event>, Option<u32>) {
    let program = compile(dir, "paused", &[]);
    let options = Options { output: dir.join("app.hkt"), clock, ..Options::default() };
    let words = [program.into_os_string(), ROW.to_string().into(), RESTS.to_string().into()];
    let report = record(&options, &words).expect("a recording");
    let quality = report.traces[0].quality;
    assert_eq!((quality.unknown_frees, quality.reuse_repaired, quality.events_lost), (0, 0, 0), "{quality:?}");
    let reader = TraceReader::open(&report.traces[0].path).expect("a readable trace");
    (events(&report.traces[0]), reader.header().clock_events)
}

/// The times of the allocations of this size.
fn times_of(events: &[Event], bytes: u64) -> Vec<u64> {
    let is_one = |event: &&Event| matches!(event.op, Op::Alloc { size, .. } if size == bytes);
    events.iter().filter(is_one).map(|event| event.time_ns).collect()
}

#[test]
fn successive_calls_share_times_and_a_pause_renews_the_time() {
    let dir = scratch();
    let (events, clock_events) = recorded(dir.path(), ClockReads::Sixteenth);
    assert_eq!(clock_events, Some(16));
    let row = times_of(&events, 5000);
    assert_eq!(row.len() as u64, ROW);
    let distinct = row.iter().collect::<BTreeSet<_>>().len() as u64;
    // 8 rounds share a reading. Further readings are made once a millisecond.
    assert!((ROW / 10..=ROW / 4).contains(&distinct), "{distinct} times for {ROW} blocks");
    let rested = times_of(&events, 6000);
    assert_eq!(rested.len(), RESTS);
    for pair in rested.windows(2) {
        // The program pauses for at least REST_NS. A time may be a millisecond old, or more on a busy machine.
        assert!(pair[1] - pair[0] >= REST_NS / 2, "{rested:?}");
    }
}

#[test]
fn every_event_has_its_own_time_with_clock_reads_every() {
    let dir = scratch();
    let (events, clock_events) = recorded(dir.path(), ClockReads::Every);
    assert_eq!(clock_events, None);
    let row = times_of(&events, 5000);
    let distinct = row.iter().collect::<BTreeSet<_>>().len() as u64;
    assert!(distinct > ROW * 9 / 10, "{distinct} times for {ROW} blocks");
}

/// The second thread's resize frees an address before the resize is recorded. If the main thread, which is then given
/// the address, reused an earlier time, its allocation would appear to return an address in use.
#[test]
fn a_thread_whose_first_call_is_a_resize_has_all_calls_timed() {
    let dir = scratch();
    let library = compile(dir.path(), "gives_away", &["-shared", "-fPIC"]);
    let flags = ["-Wl,--no-as-needed", library.to_str().expect("UTF-8")];
    let program = compile(dir.path(), "first_resize", &flags);
    let options = Options { output: dir.path().join("app.hkt"), clock: ClockReads::Sixteenth, ..Options::default() };
    let mut quick = 0;
    for _ in 0..RUNS {
        let report = record(&options, &[program.clone().into_os_string()]).expect("a recording");
        assert_eq!(report.exit, Some(Exit::Code(0)), "the main thread was not given the address");
        let trace = &report.traces[0];
        assert_eq!((trace.quality.parked, trace.quality.reuse_repaired), (0, 0), "{:?}", trace.quality);
        let events = events(trace);
        let position = |wanted: &dyn Fn(&Op) -> bool| events.iter().position(|event| wanted(&event.op));
        let resized = position(&|op| matches!(op, Op::Realloc { size: 5000, .. })).expect("it is resized");
        let made = |event: &Event| matches!(event.op, Op::Alloc { size: 104, .. });
        let [before, after] = events.split_at(resized).into();
        assert_eq!([before, after].map(|part| part.iter().filter(|event| made(event)).count()), [1, 1]);
        quick += usize::from(events[resized].time_ns - times_of(&events, 104)[0] < QUICK_NS);
        if quick == RUNS_QUICK {
            return;
        }
    }
    eprintln!("skipped: the machine is too busy for two threads at once");
}
