//! Truncated, torn, corrupted and forged files. The reader returns all intact events and then one clear error. No
//! length field makes it allocate memory out of proportion.

use crate::support::{Random, random_events, read_all, write_trace};
use hksim_trace::error::TraceError;
use hksim_trace::event::Event;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

/// Records the largest request of each thread, to detect absurd allocations.
struct Counting;

thread_local! {
    static LARGEST_BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to `System` unchanged. The counter is a const-initialised thread-local without a
// destructor, so accessing it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST_BYTES.with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Above the reader's buffers: those for a chunk of maximum size take a few hundred KiB each.
const ALLOCATION_BYTES_MAX: usize = 2 << 20;

/// The writer's chunks have 16 384 events, so this file has two full chunks and a short third.
const EVENTS: usize = 34_000;

struct Sample {
    folder: tempfile::TempDir,
    events: Vec<Event>,
    bytes: Vec<u8>,
}

impl Sample {
    fn new(seed: u64, length: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("whole.hkt");
        let events = random_events(&mut Random::new(seed), length);
        write_trace(&path, &events);
        Sample { events, bytes: std::fs::read(&path).unwrap(), folder }
    }

    /// Opens modified bytes and reads them to the first error or the end. Returns the events, that error and the
    /// reader, or the error of `open`.
    fn read(&self, bytes: &[u8]) -> Result<(Vec<Event>, Option<TraceError>, TraceReader), TraceError> {
        let path = self.folder.path().join("changed.hkt");
        std::fs::write(&path, bytes).unwrap();
        LARGEST_BYTES.set(0);
        let mut reader = TraceReader::open(&path)?;
        let mut events = Vec::with_capacity(0);
        let failed = loop {
            match reader.next_batch() {
                Ok(Some(batch)) => {
                    let largest = LARGEST_BYTES.get();
                    events.extend_from_slice(batch);
                    LARGEST_BYTES.set(largest); // the test's own copies do not count
                }
                Ok(None) => break None,
                Err(why) => {
                    assert!(reader.next_batch().unwrap().is_none(), "the stream continues after {why}");
                    break Some(why);
                }
            }
        };
        assert!(LARGEST_BYTES.get() < ALLOCATION_BYTES_MAX, "one request of {} bytes", LARGEST_BYTES.get());
        Ok((events, failed, reader))
    }

    /// Offsets of the end of each section: header of the file, chunks, footer.
    fn section_ends(&self) -> Vec<usize> {
        let u32_at = |at: usize| u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap()) as usize;
        let mut ends = vec![16 + u32_at(12) + 4];
        while *ends.last().unwrap() < self.bytes.len() {
            let start = *ends.last().unwrap();
            ends.push(start + 48 + u32_at(start + 4));
        }
        ends
    }
}

#[test]
fn a_small_file_truncated_at_any_byte_keeps_its_complete_chunks() {
    let sample = Sample::new(11, 60);
    let ends = sample.section_ends();
    assert_eq!(ends.len(), 3);
    for length in 0..sample.bytes.len() {
        let found = sample.read(&sample.bytes[..length]);
        if length < ends[0] {
            let message = found.err().map(|why| why.to_string()).unwrap_or_default();
            assert!(message.contains("changed.hkt"), "{length}: {message}");
            continue;
        }
        let (events, failed, reader) = found.unwrap();
        assert!(failed.is_none(), "{length}: {failed:?}");
        assert!(!reader.summary().complete);
        let expected = if length < ends[1] { &[][..] } else { &sample.events[..] };
        assert!(events == expected, "{length}");
        assert_eq!(reader.summary().events, expected.len() as u64);
        let tail = reader.tail().unwrap();
        let whole = if length < ends[1] { ends[0] } else { ends[1] };
        assert_eq!((tail.offset, tail.bytes), (whole as u64, (length - whole) as u64), "{length}");
    }
}

#[test]
fn a_large_file_truncated_anywhere_keeps_its_complete_chunks() {
    let sample = Sample::new(12, EVENTS);
    let ends = sample.section_ends();
    assert_eq!(ends.len(), 5);
    let mut random = Random::new(1);
    let mut cuts: Vec<usize> = (0..60).map(|_| random.below(sample.bytes.len() as u64) as usize).collect();
    cuts.extend(ends.iter().flat_map(|&end| [end - 1, end, end + 1, end + 47, end + 48]));
    for length in cuts.into_iter().filter(|&length| length >= ends[0] && length < sample.bytes.len()) {
        let (events, failed, reader) = sample.read(&sample.bytes[..length]).unwrap();
        let chunks = ends[1..4].iter().filter(|&&end| end <= length).count();
        let kept = [0, 16_384, 32_768, EVENTS][chunks];
        assert!(failed.is_none() && events == sample.events[..kept], "{length}");
        assert_eq!(reader.tail().unwrap().offset, ends[chunks] as u64, "{length}");
        // A truncated file may also be torn: its last pages were never written.
        let mut torn = sample.bytes[..length].to_vec();
        let from = length - (length - ends[0]).min(700);
        torn[from..].fill(0);
        let (events, failed, _) = sample.read(&torn).unwrap();
        let kept = [0, 16_384, 32_768, EVENTS][ends[1..4].iter().filter(|&&end| end <= from).count()];
        // Seven hundred bytes are less than a chunk, so all chunks before the torn one are kept.
        assert!(failed.is_none() && events == sample.events[..kept], "torn from {from} to {length}");
    }
}

#[test]
fn flipped_bits_are_detected_without_panic() {
    for (seed, length, step) in [(21, 60, 1), (22, EVENTS, 4999)] {
        let sample = Sample::new(seed, length);
        let mut random = Random::new(seed);
        for at in (0..sample.bytes.len()).step_by(step) {
            let mut bytes = sample.bytes.clone();
            bytes[at] ^= 1 << random.below(8);
            let Ok((events, failed, reader)) = sample.read(&bytes) else { continue };
            // All events that were read are correct, and missing events are reported.
            assert!(events.len() <= sample.events.len() && events == sample.events[..events.len()], "byte {at}");
            if events.len() < sample.events.len() {
                assert!(failed.is_some() || reader.tail().is_some(), "byte {at}: silently short");
            }
            if let Some(why) = failed {
                assert!(matches!(why, TraceError::Corrupt { .. }), "byte {at}: {why}");
            }
        }
    }
}

#[test]
fn errors_name_the_place_of_damage_in_the_middle() {
    let sample = Sample::new(31, EVENTS);
    let ends = sample.section_ends();
    let mut payload = sample.bytes.clone();
    payload[ends[1] + 1000] ^= 1;
    let (events, failed, _) = sample.read(&payload).unwrap();
    assert!(events == sample.events[..16_384]);
    let mut header = sample.bytes.clone();
    header[ends[1] + 5] ^= 1;
    for why in [failed.unwrap(), sample.read(&header).err().unwrap()] {
        let TraceError::Corrupt { offset, chunk, events_before, .. } = why else { panic!("{why}") };
        assert_eq!((offset, chunk, events_before), (ends[1] as u64, 1, 16_384));
        assert!(why.to_string().contains("hksim trace verify --repair"), "{why}");
        let (events, failed, _) = sample.read(&sample.bytes[..offset as usize]).unwrap();
        assert!(failed.is_none() && events == sample.events[..16_384]);
    }
}

/// Sets a field of a section header and corrects its checksum.
fn forge(bytes: &mut [u8], section: usize, at: usize, value: &[u8]) {
    bytes[section + at..section + at + value.len()].copy_from_slice(value);
    let crc = crc32fast::hash(&bytes[section..section + 44]);
    bytes[section + 44..section + 48].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn forged_headers_are_refused() {
    let sample = Sample::new(41, EVENTS);
    let chunk = sample.section_ends()[1];
    let most = [0xFF; 8];
    for (at, value, part) in [
        (4, &most[..4], "longer than the format allows"),
        (12, &most[..4], "impossible event count"),
        (12, &[0; 4][..], "impossible event count"),
        (16, &most[..], "do not add up"),
        (24, &most[..4], "do not add up"),
        (28, &most[..4], "do not add up"),
        (32, &[0; 8][..], "the time decreases"),
    ] {
        let mut bytes = sample.bytes.clone();
        forge(&mut bytes, chunk, at, value);
        let why = sample.read(&bytes).err().map(|why| why.to_string()).unwrap_or_default();
        assert!(why.contains(part), "offset {at}: {why}");
    }
    // Limits that are plausible but that the chunk's events exceed.
    let summary = TraceReader::open(&write_to(&sample, &sample.bytes)).unwrap().summary().objects_peak;
    assert!(summary > 100);
    let mut bytes = sample.bytes.clone();
    for section in &sample.section_ends()[..4] {
        forge(&mut bytes, *section, 24, &7u32.to_le_bytes());
    }
    let (_, failed, _) = sample.read(&bytes).unwrap();
    assert!(failed.unwrap().to_string().contains("more objects are live than the section header allows"));
}

fn write_to(sample: &Sample, bytes: &[u8]) -> std::path::PathBuf {
    let path = sample.folder.path().join("other.hkt");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Random payload bytes with a correct checksum, so that the decoder itself must reject them.
#[test]
fn forged_payloads_are_refused_without_panic() {
    for (seed, length, rounds) in [(51, 60, 1000), (52, 20_000, 60)] {
        let sample = Sample::new(seed, length);
        let (start, end) = (sample.section_ends()[0], sample.section_ends()[1]);
        let mut random = Random::new(seed);
        for round in 0..rounds {
            let mut bytes = sample.bytes.clone();
            for _ in 0..1 + random.below(4) {
                let at = start + 48 + random.below((end - start - 48) as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            let crc = crc32fast::hash(&bytes[start + 48..end]);
            forge(&mut bytes, start, 8, &crc.to_le_bytes());
            // Some changes are harmless, such as another size. The test is that nothing panics or allocates too much.
            if let Ok((_, Some(why), _)) = sample.read(&bytes) {
                let typed = matches!(why, TraceError::Corrupt { .. } | TraceError::DeadObject { .. });
                assert!(typed, "seed {seed}, round {round}: {why}");
            }
        }
    }
}

#[test]
fn a_footer_that_is_not_an_object_is_refused() {
    let sample = Sample::new(62, 10);
    let ends = sample.section_ends();
    let (start, end) = (ends[ends.len() - 2], ends[ends.len() - 1]);
    let mut bytes = sample.bytes.clone();
    // An empty array; the white space in it does not matter.
    bytes[start + 48..end].fill(b' ');
    (bytes[start + 48], bytes[end - 1]) = (b'[', b']');
    let crc = crc32fast::hash(&bytes[start + 48..end]);
    forge(&mut bytes, start, 8, &crc.to_le_bytes());
    let why = sample.read(&bytes).err().map(|why| why.to_string()).unwrap_or_default();
    assert!(why.contains("the footer's JSON is not valid"), "{why}");
}

#[test]
fn a_file_that_is_not_a_trace_is_reported_so() {
    let sample = Sample::new(61, 10);
    let newer = [&sample.bytes[..8], &5u32.to_le_bytes(), &sample.bytes[12..]].concat();
    let followed = [&sample.bytes[..], b"more"].concat();
    for (bytes, part) in [
        (&b""[..], "shorter than 16 bytes"),
        (b"# a text, and long enough", "does not begin with the .hkt magic"),
        (&newer, "version 5, but this hksim reads versions up to 4"),
        (&followed, "bytes follow the footer"),
    ] {
        let why = sample.read(bytes).err().map(|why| why.to_string()).unwrap_or_default();
        assert!(why.contains(part), "{why}");
    }
    for path in [sample.folder.path(), Path::new("/dev/null")] {
        assert!(matches!(TraceReader::open(path), Err(TraceError::NotAFile { .. })));
    }
    let missing = TraceReader::open(&sample.folder.path().join("missing.hkt"));
    assert!(matches!(missing, Err(TraceError::Io { action: "open", .. })));
}

#[test]
fn an_error_lasts_until_rewind() {
    let sample = Sample::new(71, EVENTS);
    let at = sample.section_ends()[1] + 1000;
    let mut bytes = sample.bytes.clone();
    bytes[at] ^= 1;
    let (_, failed, mut reader) = sample.read(&bytes).unwrap();
    assert!(failed.is_some());
    assert!(reader.next_batch().unwrap().is_none(), "the stream continues after an error");
    reader.rewind().unwrap();
    assert_eq!(reader.next_batch().unwrap().unwrap()[..], sample.events[..1024]);
    // Read the undamaged file as a control: the helper itself reads correctly.
    let mut whole = TraceReader::open(&write_to(&sample, &sample.bytes)).unwrap();
    assert!(read_all(&mut whole).unwrap() == sample.events);
}
