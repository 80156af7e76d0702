//! Damaged files give an error or the undamaged events, and never need much memory.

#[path = "it/support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hksim_memory_trace::{
    Event, Footer, Header, MemoryTraceError, Op, SiteId, TouchKind, Writer, repair, summarise, verify,
};
use support::{Named, random_events, read, write};

/// Counts the live bytes of this test, and their peak.
struct Counting;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);
/// One test at a time: the peak belongs to the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE_BYTES.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK_BYTES.fetch_max(live, Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above; the block came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Twice the largest chunk, the largest events of a chunk, and the buffers.
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// Reads a file in every way. Returns the events of a file that is read without an error.
fn read_all_ways(path: &Path) -> Option<Vec<Named>> {
    let repaired = path.with_extension("repaired");
    let before = LIVE_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    let (summary, verified) = (summarise(path), verify(path));
    let copied = repair(path, &repaired);
    let events = read(path);
    let used_bytes = PEAK_BYTES.load(Relaxed) - before;
    assert!(used_bytes < MEMORY_BYTES_MAX, "{used_bytes} bytes of memory");
    assert_eq!(summary.is_ok(), events.is_ok());
    if let (Ok(verified), Ok(copied)) = (&verified, &copied) {
        assert_eq!(verified.events, copied.events);
        assert!(verify(&repaired).expect("a copy").valid);
    }
    events.ok().map(|(events, _)| events)
}

fn small_file(path: &Path) -> (Vec<u8>, Vec<Named>) {
    let events = random_events(11, 60);
    write(path, &events);
    (std::fs::read(path).expect("the file"), events)
}

#[test]
fn truncated_at_every_byte() {
    let _one = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    let (bytes, events) = small_file(&path);
    let mut whole = 0;
    for length in 0..bytes.len() {
        std::fs::write(&path, &bytes[..length]).expect("a file");
        let found = read_all_ways(&path);
        let is_beginning = found.as_ref().is_none_or(|found| found.is_empty() || *found == events);
        assert!(is_beginning, "{length} bytes");
        whole += usize::from(found.is_some_and(|found| !found.is_empty()));
        let verified = verify(&path);
        assert!(verified.is_err() || verified.is_ok_and(|verified| !verified.valid), "{length} bytes are not sound");
    }
    assert!(whole > 44, "without the footer the events are readable");
}

#[test]
fn every_flipped_bit() {
    let _one = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    let (bytes, _) = small_file(&path);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            std::fs::write(&path, &changed).expect("a file");
            // Everything is covered by a checksum.
            assert!(read(&path).is_err(), "bit {bit} of byte {at}");
            let verified = verify(&path);
            assert!(verified.is_err() || verified.is_ok_and(|verified| !verified.valid), "bit {bit} of byte {at}");
        }
        if at % 16 == 0 {
            read_all_ways(&path);
        }
    }
}

/// A chunk with correct checksums around these values.
fn chunk(plain: &[u8], plain_bytes: u32, events: u32, packed: Option<Vec<u8>>) -> Vec<u8> {
    let packed = packed.unwrap_or_else(|| zstd::encode_all(plain, 1).expect("zstd"));
    let mut section = b"HMch".to_vec();
    for word in [packed.len() as u32, crc32fast::hash(&packed), plain_bytes, events] {
        section.extend(word.to_le_bytes());
    }
    section.extend(u64::from(events).to_le_bytes());
    section.extend(0u64.to_le_bytes());
    section.extend(0u32.to_le_bytes());
    section.extend(crc32fast::hash(&section).to_le_bytes());
    section.extend(packed);
    section
}

fn with_chunk(path: &Path, chunk: &[u8]) -> Option<Vec<Named>> {
    let writer = Writer::create(path, &Header::example(&["app"])).expect("a file");
    drop(writer);
    let mut bytes = std::fs::read(path).expect("the header");
    bytes.extend(chunk);
    std::fs::write(path, bytes).expect("a file");
    read_all_ways(path)
}

#[test]
fn hostile_sizes_are_refused() {
    let _one = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    let largest = 16 << 20;
    let zeros = vec![0u8; largest];
    // As many empty names as fit.
    let mut names = vec![0xff, 0xff, 0xff, 7];
    names.resize(largest, 0);
    for (what, hostile) in [
        ("more bytes than the chunk has", chunk(&[0, 0, 2], u32::MAX, 1, None)),
        ("larger than a chunk may be", chunk(&[0; 100], (largest + 1) as u32, 1, None)),
        ("fewer bytes than the chunk has", chunk(&[0, 1, 2, 3], 2, 1, None)),
        ("too many events", chunk(&zeros, largest as u32, 65_537, None)),
        ("no event", chunk(&[0], 1, 0, None)),
        ("many empty names", chunk(&names, largest as u32, 1, None)),
        ("bytes after the events", chunk(&zeros, largest as u32, 65_536, None)),
        ("not zstd", chunk(&[], 100, 1, Some(vec![7; 100]))),
        ("a name longer than the chunk", chunk(&[1, 0xff, 0xff, 0xff, 0xff, 0xf], 6, 1, None)),
        ("an unknown code", chunk(&[0, 0x3f], 2, 1, None)),
        (
            "a page beyond the address space",
            chunk(&[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], 12, 1, None),
        ),
        ("a thread beyond the kernel's limit", chunk(&[0, 0x80, 0x80, 0x80, 0x80, 2, 2], 7, 1, None)),
        ("a name that does not exist", chunk(&[0, 3, 2, 2, 0, 0, 0, 0, 0, 1], 10, 1, None)),
    ] {
        assert_eq!(with_chunk(&path, &hostile), None, "{what}");
    }
    let sound = with_chunk(&path, &chunk(&[0, 0x80, 0xff, 0xff, 0xff, 1, 2], 7, 1, None)).expect("a sound chunk");
    assert_eq!(
        sound[0].0,
        Event {
            time_ns: 0,
            thread: (1 << 22) - 1,
            op: Op::Touch { page: 1, kind: TouchKind::Read },
            site: SiteId::UNKNOWN
        }
    );
}

#[test]
fn a_header_that_is_too_long_is_refused() {
    let _one = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    let mut bytes = b"\x89HKM\r\n\x1a\n\x01\0\0\0".to_vec();
    bytes.extend(u32::MAX.to_le_bytes());
    bytes.resize(1000, b' ');
    std::fs::write(&path, &bytes).expect("a file");
    assert_eq!(read_all_ways(&path), None);
    let long = "x".repeat(2 << 20);
    let refused = Writer::create(&path, &Header::example(&[&long])).err();
    assert!(matches!(refused, Some(MemoryTraceError::TooLong { part: "header", .. })), "{refused:?}");
    let writer = Writer::create(&path, &Header::example(&["app"])).expect("a file");
    let calls = std::collections::BTreeMap::from([(long, Some(1))]);
    let refused = writer.finish(&Footer { unrecorded_calls: calls, ..Footer::default() }).err();
    assert!(matches!(refused, Some(MemoryTraceError::TooLong { part: "footer", .. })), "{refused:?}");
}
