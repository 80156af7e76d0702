//! A trace read by column has the same events as one read event by event, on every seeded random trace, and the same
//! error after the same events.

use crate::support::{Random, random_events, read_all, sample_footer, sample_header, write_trace};
use hksim_trace::error::TraceError;
use hksim_trace::event::*;
use hksim_trace::generate::{Server, Workload};
use hksim_trace::hkt::{Batch, BatchReader, CommonAlloc, TraceReader, TraceWriter};
use hksim_trace::source::EventSource;
use std::path::Path;

/// The rest of a batch, call by call, in parts of random length.
fn rest_of(reader: &mut BatchReader<'_>, batch: &Batch, random: &mut Random) -> Vec<Event> {
    let mut events = Vec::new();
    while reader.passed() < batch.len() {
        let end = reader.passed() + 1 + random.below(300) as usize;
        if let Some(event) = reader.uncommon() {
            events.push(*event);
            continue;
        }
        let mut run = reader.common(end);
        let before = events.len();
        while let Some(call) = run.next() {
            events.push(Event::new(reader.time_ns_after(run.passed()), run.thread(), call.op()));
        }
        reader.pass(run);
        assert!(events.len() > before && reader.passed() <= end, "a run of {} events", events.len() - before);
        let time_ns = reader.time_ns();
        assert_eq!(events.last().map(|event| event.time_ns), Some(time_ns));
    }
    assert!(reader.uncommon().is_none() && reader.common(usize::MAX).next().is_none(), "the batch continues");
    events
}

/// All events by column, without call sites: common calls have none.
fn read_by_call(source: &mut dyn EventSource, random: &mut Random) -> Vec<Event> {
    let (mut events, mut batch) = (Vec::new(), Batch::new());
    while source.next_into(&mut batch).unwrap() {
        assert!(!batch.is_empty());
        events.extend(rest_of(&mut batch.read(), &batch, random));
    }
    assert!(batch.is_empty());
    events
}

fn without_sites(events: &[Event]) -> Vec<Event> {
    events.iter().map(|event| Event { site: SiteId::UNKNOWN, ..*event }).collect()
}

#[test]
fn columns_hold_the_events_of_random_traces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("random.hkt");
    for (seed, length) in [(1, 0), (2, 1), (3, 1024), (4, 16_384), (5, 16_385), (6, 70_000)] {
        let random = &mut Random::new(seed);
        let events = random_events(random, length);
        write_trace(&path, &events);
        let mut reader = TraceReader::open(&path).unwrap();
        let by_call = read_by_call(&mut reader, random);
        assert!(without_sites(&by_call) == without_sites(&events), "seed {seed}");
        reader.rewind().unwrap();
        // Both ways in turn, in random order, each with sites.
        let (mut mixed, mut batch) = (Vec::new(), Batch::new());
        loop {
            let before = mixed.len();
            if random.chance(80) {
                mixed.extend_from_slice(reader.next_batch().unwrap().unwrap_or_default());
            } else if reader.next_into(&mut batch).unwrap() {
                batch.read().events(batch.len(), &mut mixed);
            }
            if mixed.len() == before {
                break;
            }
        }
        assert!(mixed == events, "seed {seed}: mixed");
    }
}

#[test]
fn a_source_without_columns_is_read_by_column() {
    let parameters = Server { live: 1 << 20, events: 50_000, seed: 3, ..Default::default() };
    let mut source = Workload::Server(parameters).source().unwrap();
    let events = read_all(source.as_mut()).unwrap();
    source.rewind().unwrap();
    assert!(read_by_call(source.as_mut(), &mut Random::new(1)) == events);
}

#[test]
fn touches_of_no_common_kind_are_kept() {
    let touches = PageTouches::ALL.into_iter().map(InitialTouch::PerPage).chain(InitialTouch::ALL);
    let alloc = |(id, initial_touch)| {
        let op = Op::Alloc { object: ObjectId(id), size: 9, align_log2: 0, call: AllocCall::Calloc, initial_touch };
        Event::new(u64::from(id) * 7, ThreadId(id / 4), op)
    };
    let events: Vec<Event> = (0..).zip(touches).map(alloc).collect();
    let (mut batch, mut copied) = (Batch::new(), Vec::new());
    batch.copy_from(&events);
    batch.read().events(usize::MAX, &mut copied);
    assert_eq!(copied, events);
    let kinds = CommonAlloc::table(|kind| kind);
    assert!(kinds.iter().all(|kind| kinds[kind.index()] == *kind));
    assert_eq!(CommonAlloc::table(|kind| kind.call()).iter().filter(|&&call| call == AllocCall::Malloc).count(), 3);
}

/// A trace of one chunk: `allocations` allocations, then frees of the objects 2 and 1.
fn write_two_frees(path: &Path, allocations: u32) -> Vec<u8> {
    let mut writer = TraceWriter::create(path, &sample_header()).unwrap();
    let (call, initial_touch) = (AllocCall::Malloc, InitialTouch::None);
    let alloc = |id| Op::Alloc { object: ObjectId(id), size: 8, align_log2: 0, call, initial_touch };
    let frees = [2, 1].map(|id| Op::Free { object: ObjectId(id) });
    for op in (0..allocations).map(alloc).chain(frees) {
        writer.push(&Event::new(0, ThreadId(0), op)).unwrap();
    }
    writer.finish(&sample_footer()).unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn a_batch_can_be_filled_on_one_thread_and_read_on_another() {
    fn sent<T: Send>() {}
    sent::<Batch>();
    sent::<TraceReader>();
}

#[test]
fn the_events_before_a_bad_one_are_returned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dead.hkt");
    let at = 3_000;
    let mut bytes = write_two_frees(&path, at);
    // The second free gets the object of the first.
    let header = 16 + u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize + 4;
    let payload =
        header + 48..header + 48 + u32::from_le_bytes(bytes[header + 4..header + 8].try_into().unwrap()) as usize;
    let ids = bytes[payload.clone()].windows(3).position(|bytes| bytes == [0, 2, 1]).expect("the object column");
    bytes[payload.start + ids + 2] = 2;
    let crc = crc32fast::hash(&bytes[payload]);
    bytes[header + 8..header + 12].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32fast::hash(&bytes[header..header + 44]);
    bytes[header + 44..header + 48].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let is_dead = |failed| matches!(failed, Err(TraceError::DeadObject { event, object: ObjectId(2), .. }) if event == u64::from(at) + 1);
    let mut reader = TraceReader::open(&path).unwrap();
    let mut batch = Batch::new();
    assert!(reader.next_into(&mut batch).unwrap());
    assert_eq!(batch.len(), at as usize + 1);
    assert!(is_dead(reader.next_into(&mut batch)) && batch.is_empty());
    assert!(!reader.next_into(&mut batch).unwrap());
    reader.rewind().unwrap();
    let mut events = 0;
    let failed = loop {
        match reader.next_batch() {
            Ok(batch) => events += batch.expect("an error").len(),
            Err(why) => break Err(why),
        }
    };
    assert!(is_dead(failed) && events == at as usize + 1);
}
