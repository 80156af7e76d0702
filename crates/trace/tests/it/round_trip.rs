//! The reader returns the events that the writer wrote. The events are random and of every kind.

use crate::support::{Random, random_events, read_all, sample_footer, sample_header, write_trace};
use hksim_trace::hkt::{TraceReader, TraceWriter};
use hksim_trace::source::EventSource;

#[test]
fn random_events_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("random.hkt");
    for (seed, length) in [(1, 0), (2, 1), (3, 500), (4, 16_384), (5, 16_385), (6, 70_000)] {
        let events = random_events(&mut Random::new(seed), length);
        let written = write_trace(&path, &events);
        let mut reader = TraceReader::open(&path).unwrap();
        assert_eq!(*reader.summary(), written, "seed {seed}");
        assert!(reader.tail().is_none());
        assert_eq!(*reader.header(), sample_header());
        assert_eq!(*reader.footer(), sample_footer());
        assert!(read_all(&mut reader).unwrap() == events, "seed {seed}: first pass");
        reader.rewind().unwrap();
        assert!(read_all(&mut reader).unwrap() == events, "seed {seed}: second pass");
    }
}

/// A file in format version 1, written by `hksim gen server --live 1M --events 20000 --seed 9` of hksim 0.1.0.
const VERSION_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/server-v1.hkt");

#[test]
fn a_file_of_version_1_remains_readable() {
    let mut old = TraceReader::open(VERSION_1.as_ref()).unwrap();
    let parameters = hksim_trace::generate::Server { live: 1 << 20, events: 20_000, seed: 9, ..Default::default() };
    let mut generated = hksim_trace::generate::Workload::Server(parameters).source().unwrap();
    let events = read_all(&mut old).unwrap();
    assert!(events.len() >= 20_000);
    assert!(events == read_all(generated.as_mut()).unwrap());
    assert_eq!(*old.footer(), *generated.footer());
}

#[test]
fn rewinding_in_the_middle_returns_to_the_first_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rewind.hkt");
    let events = random_events(&mut Random::new(7), 40_000);
    write_trace(&path, &events);
    let mut reader = TraceReader::open(&path).unwrap();
    for _ in 0..18 {
        reader.next_batch().unwrap().unwrap();
    }
    reader.rewind().unwrap();
    assert!(read_all(&mut reader).unwrap() == events);
}

#[test]
fn the_writer_refuses_invalid_events() {
    use hksim_trace::error::TraceError as E;
    use hksim_trace::event::*;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("refused.hkt");
    let mut writer = TraceWriter::create(&path, &sample_header()).unwrap();
    let event = |time_ns, thread, op| Event::new(time_ns, ThreadId(thread), op);
    let alloc = |id, size| {
        let (align_log2, call, initial_touch) = (0, AllocCall::Malloc, InitialTouch::None);
        Op::Alloc { object: ObjectId(id), size, align_log2, call, initial_touch }
    };
    writer.push(&event(10, 0, alloc(0, 5))).unwrap();
    let refused = |writer: &mut TraceWriter, event| writer.push(&event).unwrap_err();
    assert!(matches!(refused(&mut writer, event(9, 0, Op::FreeNull)), E::TimeDecreases { event: 1, .. }));
    assert!(matches!(refused(&mut writer, event(10, 2, Op::FreeNull)), E::SparseThread { .. }));
    assert!(matches!(refused(&mut writer, event(10, 0, alloc(0, 5))), E::WrongObject { expected: ObjectId(1), .. }));
    assert!(matches!(refused(&mut writer, event(10, 0, alloc(1, 1 << 47))), E::BadEvent { .. }));
    let free = |id| Op::Free { object: ObjectId(id) };
    assert!(matches!(refused(&mut writer, event(10, 0, free(1))), E::DeadObject { .. }));
    let touch = Op::Touch { object: ObjectId(0), offset: 0, bytes: 0, access: Access::Read };
    assert!(matches!(refused(&mut writer, event(10, 0, touch)), E::BadEvent { .. }));
    let placed = Event { site: SiteId(1), ..event(10, 0, Op::FreeNull) };
    assert!(matches!(refused(&mut writer, placed), E::BadEvent { .. }));
    writer.push(&event(10, 1, free(0))).unwrap();
    let summary = writer.finish(&sample_footer()).unwrap();
    assert_eq!((summary.events, summary.objects_peak, summary.threads), (2, 1, 2));
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let path = std::path::Path::new("/dev/full");
    if !path.exists() {
        eprintln!("skipped: this machine has no /dev/full");
        return;
    }
    let message = match TraceWriter::create(path, &sample_header()) {
        Err(why) => why.to_string(),
        Ok(_) => String::from("no error"),
    };
    assert!(message.starts_with("/dev/full: cannot write: "), "{message}");
}
