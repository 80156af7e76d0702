//! Other numbers for the objects and threads of a trace change nothing in its simulation.

use crate::designs::random_policy;
use hksim_engine::TouchRule;
use hksim_sim::simulate::Marks;
use hksim_sim::{SimConfig, simulate};
use hksim_testkit::events::random_trace;
use hksim_testkit::{Random, test_scale};
use hksim_trace::error::TraceError;
use hksim_trace::event::{Event, ObjectId, ThreadId};
use hksim_trace::header::{Clock, Footer, Header, Origin, Summary, TouchSource};
use hksim_trace::source::{BATCH_EVENTS_MAX, EventSource};
use serde_json::Value;

/// Events in memory.
struct Events {
    events: Vec<Event>,
    at: usize,
    header: Header,
    summary: Summary,
    footer: Footer,
}

impl Events {
    fn new(events: Vec<Event>, threads: u32, objects_peak: u32) -> Events {
        let origin = Origin::Generated { name: "random".into(), parameters: Default::default(), seed: 0 };
        let duration_ns = events.last().map_or(0, |event| event.time_ns);
        let summary = Summary { events: events.len() as u64, objects_peak, threads, duration_ns, complete: true };
        let header = Header::new(origin, TouchSource::Assumed, Clock::Measured);
        Events { events, at: 0, header, summary, footer: Footer::default() }
    }
}

impl EventSource for Events {
    fn next_batch(&mut self) -> Result<Option<&[Event]>, TraceError> {
        let from = self.at;
        self.at = self.events.len().min(from + BATCH_EVENTS_MAX);
        Ok((from < self.at).then_some(&self.events[from..self.at]))
    }

    fn header(&self) -> &Header {
        &self.header
    }

    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn footer(&self) -> &Footer {
        &self.footer
    }

    fn rewind(&mut self) -> Result<(), TraceError> {
        self.at = 0;
        Ok(())
    }
}

/// Numbers from 0, shuffled.
fn shuffled(count: u32, random: &mut Random) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    for last in (1..numbers.len()).rev() {
        numbers.swap(last, random.below(last as u64 + 1) as usize);
    }
    numbers
}

fn renamed(event: &Event, objects: &[u32], threads: &[u32]) -> Event {
    let mut event = *event;
    event.thread = ThreadId(threads[event.thread.0 as usize]);
    if let Some(object) = event.op.object() {
        let other = ObjectId(objects[object.0 as usize]);
        event.op = event.op.with_object(other);
        assert_eq!(event.op.object(), Some(other), "{:?} has an object that is not renamed", event.op);
    }
    event
}

fn simulated(events: Vec<Event>, threads: u32, objects_peak: u32, config: &SimConfig) -> Value {
    let mut source = Events::new(events, threads, objects_peak);
    let simulated = simulate(&mut source, config, Marks::Skip, &|_| {}).expect("a valid design");
    let mut report = serde_json::to_value(simulated.report).expect("a report is JSON");
    // The digest is of the addresses of numbered objects.
    for name in ["elapsed_s", "placement_digest"] {
        report.as_object_mut().expect("an object").remove(name);
    }
    report
}

#[test]
fn other_numbers_of_objects_and_threads_change_nothing() {
    let mut differed = 0;
    for seed in 0x4E_0000..0x4E_0000 + 12 * test_scale() {
        let mut random = Random::new(seed);
        let trace = random_trace(seed, 4_000, 1 + (seed % 11) as u32, random.pick(&[2_000, 100_000, 6 << 20]));
        let objects = shuffled(trace.objects_peak, &mut random);
        let threads = shuffled(trace.threads, &mut random);
        let renamed: Vec<Event> = trace.events.iter().map(|event| renamed(event, &objects, &threads)).collect();
        differed += usize::from(renamed != trace.events);
        let policy = random_policy(&mut random);
        if policy.prepare().is_err() {
            continue;
        }
        let config = SimConfig {
            policy,
            touch: random.pick(&[TouchRule::All, TouchRule::First, TouchRule::AllAtDeath]),
            ..SimConfig::default()
        };
        let expected = simulated(trace.events, trace.threads, trace.objects_peak, &config);
        let found = simulated(renamed, trace.threads, trace.objects_peak, &config);
        let fields = expected.as_object().expect("an object").iter();
        let other: Vec<_> = fields.filter(|(name, value)| found[name] != **value).collect();
        assert!(other.is_empty(), "seed {seed:#x}: {config:?}: {other:?}, found {found}");
    }
    assert!(differed > 8, "only {differed} traces were renamed");
}
