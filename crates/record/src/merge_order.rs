//! Test: [`Merge`], which merges common calls in batches, gives the order of a merge of one event at a time.

use std::sync::Arc;

use hksim_testkit::Random;
use hksim_trace::resolve::{RawEvent, RawOp};

use crate::buffer_reader::Extent;
use crate::clock::{ClockPair, TickRate};
use crate::encoding::{Kind, Record};
use crate::error::RecordError;
use crate::growing::{Process, open};
use crate::merge::{EventSink, Merge};
use crate::stamps::Stamps;
use crate::thread_events::ThreadEvents;

/// Time, the address freed, and the address allocated.
type Seen = (u64, Option<u64>, Option<u64>);

/// Collects the merged events.
#[derive(Default)]
struct Taken {
    seen: Vec<Seen>,
    /// Calls that arrived in batches.
    gathered: usize,
}

impl EventSink for Taken {
    fn take(&mut self, raw: &RawEvent) -> Result<(), RecordError> {
        self.seen.push(match raw.op {
            RawOp::Alloc { address, .. } => (raw.time_ns, None, Some(address)),
            RawOp::Free { address } => (raw.time_ns, Some(address), None),
            RawOp::Realloc { old, new, .. } => (raw.time_ns, Some(old), Some(new)),
            RawOp::ThreadStart => return Ok(()),
            ref other => panic!("{other:?}"),
        });
        Ok(())
    }

    fn take_plain(&mut self, calls: &[hksim_trace::resolve::Plain]) -> Result<(), RecordError> {
        self.gathered += calls.len();
        calls.iter().try_for_each(|call| self.take(&call.raw()))
    }
}

/// A record as the order sees it.
#[derive(Clone, Copy)]
struct Call {
    time_ns: u64,
    begun_ns: u64,
    freed: Option<u64>,
    allocated: Option<u64>,
}

/// A thread buffer's calls, at times that never decrease.
fn calls(records: &[Record]) -> Vec<Call> {
    let at_their_times = records.iter().scan(0, |last_ns, record| {
        let (freed, allocated) = match record.kind {
            Kind::Free => (Some(record.address), None),
            Kind::Realloc => (Some(record.old), Some(record.address)),
            _ => (None, Some(record.address)),
        };
        *last_ns = (record.ticks + record.duration).max(*last_ns);
        Some(Call { time_ns: *last_ns, begun_ns: record.ticks, freed, allocated })
    });
    at_their_times.collect()
}

/// What is left of each buffer, and the events so far.
struct Naive<'a> {
    buffers: Vec<&'a [Call]>,
    seen: Vec<Seen>,
    /// Moves placed before their second stamp, as their old address was allocated again.
    early: usize,
}

impl Naive<'_> {
    /// Looks at all buffers for each event.
    fn run(&mut self) {
        let next = |buffers: &[&[Call]]| {
            let heads = buffers.iter().enumerate().filter_map(|(buffer, calls)| Some((calls.first()?.time_ns, buffer)));
            heads.min()
        };
        while let Some((time_ns, buffer)) = next(&self.buffers) {
            self.emit(buffer, time_ns);
        }
    }

    /// Emits a thread buffer's next event, after the move that left the address which it allocates.
    fn emit(&mut self, buffer: usize, time_ns: u64) {
        let (call, rest) = self.buffers[buffer].split_first().expect("the buffer has a next event");
        self.buffers[buffer] = rest;
        self.early += usize::from(time_ns < call.time_ns);
        let leaves = |head: &Call| {
            call.allocated.is_some()
                && head.freed == call.allocated
                && head.allocated.is_some()
                && head.begun_ns <= time_ns
        };
        if let Some(moving) = self.buffers.iter().position(|calls| calls.first().is_some_and(leaves)) {
            self.emit(moving, time_ns);
        }
        self.seen.push((time_ns, call.freed, call.allocated));
    }
}

#[test]
fn batches_are_in_the_order_of_single_events() {
    let (mut events, mut gathered, mut early) = (0, 0, 0);
    for seed in 1..=8 {
        let mut random = Random::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7-0.spool");
        let mut process = Process::begin(&path);
        // Few buffers, and many.
        let threads = [2, 3, 5, 17][seed as usize % 4];
        (0..threads).for_each(|_| process.begin_thread());
        for _ in 0..40_000 {
            let thread = random.below(threads) as usize;
            process.step(thread, &mut random);
        }
        process.show();

        let log = open(&path, false);
        let (start, end) = (ClockPair { ticks: 0, ns: 0 }, ClockPair { ticks: 1, ns: 1 });
        let stamps = Stamps::Ticks(TickRate::between(start, end).unwrap());
        let mut merge = Merge::new();
        let buffers = log.look(false).unwrap();
        let opened = |buffer| ThreadEvents::new(Arc::clone(&log), buffer, Extent::Whole, stamps, Arc::default());
        merge.extend(buffers, Extent::Whole, opened).unwrap();
        let mut taken = Taken::default();
        // In pieces, as while a process runs.
        (1..6).for_each(|piece| merge.run(piece * 200_000, &mut taken).unwrap());
        merge.run(u64::MAX, &mut taken).unwrap();

        let buffers: Vec<Vec<Call>> = process.buffers.iter().map(|buffer| calls(&buffer.records)).collect();
        let mut naive = Naive { buffers: buffers.iter().map(Vec::as_slice).collect(), seen: Vec::new(), early: 0 };
        naive.run();
        if let Some(at) = (0..naive.seen.len()).find(|&at| taken.seen.get(at) != naive.seen.get(at)) {
            panic!("seed {seed}, event {at}: {:x?} and not {:x?}", taken.seen.get(at), naive.seen[at]);
        }
        assert_eq!(taken.seen.len(), naive.seen.len(), "seed {seed}");
        (events, gathered, early) = (events + naive.seen.len(), gathered + taken.gathered, early + naive.early);
    }
    assert!(gathered > events / 4, "only {gathered} of {events} in batches");
    assert!(early > 10, "only {early} moves before their second stamp");
}
