//! What is written is read again, and tools keep what they promise.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{Named, OP_KINDS, footer, random_events, read, write};
use hksim_memory_trace::{
    Beginning, Cut, Event, Footer, Header, MapOp, MappingAtStart, MappingKind, MappingTraits, MemoryTraceError, Op,
    Origin, PageAtStart, PagesAtStart, Reader, SiteId, TouchKind, Verified, Writer, anonymise, cut, repair, summarise,
    verify,
};

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn every_event_survives() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    let first = number_from("HKSIM_SEED", 0);
    // The last one has several chunks.
    for (seed, count) in [(first, 1), (first + 1, 40), (first + 2, 3_000), (first + 3, 150_000)] {
        let events = random_events(seed, count);
        let kinds: BTreeSet<u8> = events.iter().map(|(event, _)| kind(&event.op)).collect();
        assert!(count < 100 || kinds.len() as u64 == OP_KINDS - 2, "every kind occurs");
        write(&path, &events);
        let (found, is_whole) = read(&path).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(is_whole);
        let differs = found.iter().zip(&events).position(|(found, event)| found != event);
        assert_eq!((differs, found.len()), (None, events.len()), "seed {seed}");
        let verified = verify(&path).expect("the file");
        assert_eq!((verified.valid, verified.events), (true, count), "seed {seed}: {verified:?}");
        let mut reader = Reader::open(&path).expect("the file");
        assert_eq!(*reader.header(), Header::example(&["app", "--flag"]));
        let mut chunk = Vec::new();
        while reader.next_chunk(&mut chunk).expect("a chunk") {}
        assert_eq!(reader.footer(), Some(&footer()));
    }
}

fn kind(op: &Op) -> u8 {
    match op {
        Op::Touch { .. } => 0,
        Op::Map(_) => 1,
        Op::Unmap(_) => 2,
        Op::Remap { .. } => 3,
        Op::Protect { .. } => 4,
        Op::Advise { .. } => 5,
        Op::Lock { .. } => 6,
        Op::Unlock(_) => 7,
        Op::LockAll(_) => 8,
        Op::UnlockAll => 9,
        Op::NameMapping { .. } => 10,
        Op::DisableThp { .. } => 11,
        Op::Fork { .. } => 12,
        Op::ChildEnded { .. } => 13,
        Op::Lost { .. } => 14,
        Op::MappingAtStart(_) => 15,
        Op::PagesAtStart(_) => 16,
    }
}

/// The bytes of a recording of one touch, written down from the format's description.
#[test]
fn the_bytes_are_those_of_the_description() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    let header = Header::example(&["app"]);
    let mut writer = Writer::create(&path, &header).expect("a file");
    writer
        .push(Event {
            time_ns: 300,
            thread: 0,
            op: Op::Touch { page: 3, kind: TouchKind::Write },
            site: SiteId::UNKNOWN,
        })
        .expect("an event");
    writer.finish(&Footer::default()).expect("the end");
    let bytes = std::fs::read(&path).expect("the file");
    assert_eq!(bytes[..12], *b"\x89HKM\r\n\x1a\n\x01\0\0\0");
    let json_bytes = u32::from_le_bytes(bytes[12..16].try_into().expect("4 bytes")) as usize;
    let json: Header = serde_json::from_slice(&bytes[16..16 + json_bytes]).expect("the header");
    assert_eq!(json, header);
    let chunk = &bytes[16 + json_bytes + 4..];
    assert_eq!(chunk[..4], *b"HMch");
    let word = |at: usize| u32::from_le_bytes(chunk[at..at + 4].try_into().expect("4 bytes"));
    let (packed_bytes, plain_bytes) = (word(4) as usize, word(12) as usize);
    let plain = zstd::decode_all(&chunk[44..44 + packed_bytes]).expect("a zstd frame");
    // No names; code 1 with a time; 300 ns; page 0 + 3.
    assert_eq!((plain.as_slice(), plain_bytes), ([0, 0x41, 0xac, 2, 6].as_slice(), 5));
    assert_eq!((word(16), word(20), word(28)), (1, 1, 300), "events, their total, the last time");
    assert_eq!(chunk[44 + packed_bytes..][..4], *b"HMft");
}

fn written(folder: &Path) -> (std::path::PathBuf, Vec<Named>) {
    let path = folder.join("whole.hkm");
    let events = random_events(7, 70_000);
    write(&path, &events);
    (path, events)
}

#[test]
fn cuts_keep_the_beginning() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, events) = written(folder.path());
    let [part, again] = ["part.hkm", "again.hkm"].map(|name| folder.path().join(name));
    let half_ns = events[35_000].0.time_ns;
    let count_until = events.iter().filter(|(event, _)| event.time_ns <= half_ns).count();
    for (keep, kept) in [
        (Cut { events: 66_000, ..Cut::NOTHING }, 66_000),
        (Cut { until_ns: half_ns, ..Cut::NOTHING }, count_until),
        (Cut { until_ns: half_ns, events: 9 }, 9),
        (Cut::NOTHING, events.len()),
    ] {
        let totals = cut(&path, &part, keep).expect("a part");
        let (found, is_whole) = read(&part).expect("the part");
        assert!(is_whole && found == events[..kept], "{keep:?}");
        assert_eq!((totals.events, totals.duration_ns), (kept as u64, events[kept - 1].0.time_ns));
        assert_eq!(totals.complete, kept == events.len());
        assert_eq!(Reader::open(&part).expect("the part").header().history.len(), 1);
        let is_part = kept < events.len();
        let calls = summarise(&part).expect("the part").footer.expect("a footer").unrecorded_calls;
        assert_eq!(calls["mbind"], (!is_part).then_some(7), "{keep:?}");
        // A part of a part knows as much.
        cut(&part, &again, Cut { events: 5, ..Cut::NOTHING }).expect("a part");
        let calls = summarise(&again).expect("the part").footer.expect("a footer").unrecorded_calls;
        assert_eq!(calls["mbind"], None, "{keep:?}");
    }
    let nothing = cut(&path, &part, Cut { events: 0, ..Cut::NOTHING });
    assert!(matches!(nothing, Err(MemoryTraceError::EmptyPart { .. })), "{nothing:?}");
}

#[test]
fn anonymised_recordings_have_no_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, events) = written(folder.path());
    let public = folder.path().join("public.hkm");
    anonymise(&path, &public).expect("a copy");
    let (found, _) = read(&public).expect("the copy");
    assert_eq!(found.len(), events.len());
    for ((found, found_name), (event, name)) in found.iter().zip(&events) {
        assert_eq!((found.time_ns, found.thread, kind(&found.op)), (event.time_ns, event.thread, kind(&event.op)));
        assert_eq!(found_name.is_some(), name.is_some());
        let shown = found_name.as_deref().unwrap_or("file-");
        assert!(shown.starts_with("file-") || shown == "[stack]", "{shown}");
    }
    assert_eq!(summarise(&public).expect("the copy").mapped_bytes, summarise(&path).expect("the file").mapped_bytes);
}

#[test]
fn names_longer_than_a_chunk_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    let mapping = |number: u64| {
        let op = MapOp {
            pages: number..number + 1,
            hint_page: 0,
            kind: MappingKind::PrivateFile,
            origin: Origin::Mmap,
            protection: 1,
            flags: 2,
            name: None,
        };
        let name = format!("{number}{}", "x".repeat(4090));
        (Event { time_ns: number, thread: 0, op: Op::Map(Box::new(op)), site: SiteId::UNKNOWN }, Some(name))
    };
    let events: Vec<Named> = (0..6_000).map(mapping).collect();
    write(&path, &events);
    assert!(read(&path).expect("the file").0 == events, "24 MB of names");
}

#[test]
fn totals_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    let events = random_events(3, 5_000);
    write(&path, &events);
    let summary = summarise(&path).expect("the file");
    let of = |wanted: u8| events.iter().filter(|(event, _)| kind(&event.op) == wanted).count() as u64;
    // What a recording begins with is no event.
    assert_eq!(summary.events + of(15) + of(16), 5_000);
    assert_eq!(summary.touches.values().sum::<u64>(), of(0));
    let calls: u64 = (1..=11).map(of).sum();
    assert_eq!((summary.calls.values().sum::<u64>(), summary.forks), (calls, of(12)));
    let own = events.iter().filter(|(event, _)| ![13, 14, 15, 16].contains(&kind(&event.op)));
    assert_eq!(summary.threads, own.map(|(event, _)| event.thread).collect::<BTreeSet<_>>().len() as u64);
    assert_eq!(summary.duration_ns, events[4_999].0.time_ns);
}

#[test]
fn a_repaired_recording_is_sound() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, events) = written(folder.path());
    let bytes = std::fs::read(&path).expect("the file");
    let (damaged, repaired) = (folder.path().join("damaged.hkm"), folder.path().join("repaired.hkm"));
    for at in [bytes.len() / 4, bytes.len() - 700, bytes.len() - 3] {
        let mut changed = bytes.clone();
        changed[at] ^= 4;
        for content in [&changed[..], &bytes[..at]] {
            std::fs::write(&damaged, content).expect("a file");
            let Verified { valid, events: usable, damage, .. } = verify(&damaged).expect("a recording");
            assert!(!valid && damage.is_some(), "byte {at}");
            let totals = repair(&damaged, &repaired).expect("a copy");
            assert_eq!((totals.events, totals.complete), (usable, false));
            assert!(verify(&repaired).expect("the copy").valid);
            assert!(read(&repaired).expect("the copy").0 == events[..usable as usize]);
        }
    }
    std::fs::write(&damaged, [&bytes[..], b"more"].concat()).expect("a file");
    let verified = verify(&damaged).expect("a recording");
    assert!(verified.damage.is_some_and(|damage| damage.starts_with("4 bytes follow")));
}

#[test]
fn a_recording_that_begins_in_the_middle_is_of_version_3() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    let beginning = Beginning::Attached { stopped_ns: 1_234_567, lazy_unknown_bytes: 8192 };
    for stack_depth in [None, Some(8)] {
        let header = Header { beginning, stack_depth, ..Header::example(&["app"]) };
        let pages = PagesAtStart { pages: 5..9, state: PageAtStart::Huge };
        let mapping = MapOp {
            pages: 5..20,
            hint_page: 0,
            kind: MappingKind::Anonymous,
            origin: Origin::Mmap,
            protection: 3,
            flags: 0x22,
            name: None,
        };
        let mapping = MappingAtStart { map: mapping, traits: MappingTraits::HUGE_PAGE.with(MappingTraits::ACCOUNTED) };
        let mut writer = Writer::create(&path, &header).expect("a file");
        for op in [Op::MappingAtStart(Box::new(mapping)), Op::PagesAtStart(pages), Op::Unmap(5..20)] {
            writer.push(Event { time_ns: 0, thread: 0, op, site: SiteId::UNKNOWN }).expect("an event");
        }
        writer.finish(&footer()).expect("the end");
        assert_eq!(std::fs::read(&path).expect("the file")[8..12], [3, 0, 0, 0]);
        assert_eq!(Reader::open(&path).expect("a recording").header(), &header);
        let summary = summarise(&path).expect("a recording");
        let start = summary.at_start.expect("a start");
        assert_eq!((summary.events, start.mappings, start.resident_bytes, start.huge_bytes), (1, 1, 4 << 12, 4 << 12));
        assert_eq!(summary.calls.keys().collect::<Vec<_>>(), [&"munmap"], "the start is no call");
    }
}
