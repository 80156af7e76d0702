//! The bodies of the fuzz targets. Each writes its input to a file and imports or reads the file. The input may be
//! rejected, but every trace and event accepted from it must be valid.
//!
//! The files are in `/dev/shm`, in one folder per thread. `crates/trace/tests/it/fuzz_targets.rs` also compiles this
//! file and runs every target on its seeds without a nightly toolchain.

use hksim_trace::event::Event;
use hksim_trace::hkt::{Batch, TraceReader};
use hksim_trace::import::{Format, Options, import};
use hksim_trace::source::EventSource;
use hksim_trace::tools::{repair, verify};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    static FOLDER: Folder = Folder::new();
    static ACCEPTED: Cell<u64> = const { Cell::new(0) };
}

/// A folder in `/dev/shm`, removed when its thread ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from(format!("/dev/shm/hksim-fuzz-{process}-{number}"));
        fs::create_dir_all(&path).expect("cannot create a folder in /dev/shm");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn file(name: &str) -> PathBuf {
    FOLDER.with(|folder| folder.0.join(name))
}

/// Number of inputs that this thread accepted: imported, or read to the end.
pub fn accepted() -> u64 {
    ACCEPTED.get()
}

fn accept() {
    ACCEPTED.set(ACCEPTED.get() + 1);
}

/// Imports the bytes as the format with this name. The result must be a valid trace.
pub fn import_as(format: &str, data: &[u8]) {
    let (source, out) = (file("source"), file("out"));
    fs::write(&source, data).expect("cannot write to /dev/shm");
    let format = Format::from_name(format).expect("unknown format name");
    let options = Options { format: Some(format), ..Options::default() };
    if import(&source, &options, &out).is_ok() {
        let verified = verify(&out).expect("the imported trace cannot be read");
        // Two findings come from the input, not from the importer. A program may touch a block beyond its requested
        // size, up to the usable size. An event may refer to a call site that the input does not define.
        let known = ["a touch beyond", "a call site that"];
        let mut flaws = verified
            .findings
            .iter()
            .filter(|finding| !known.iter().any(|start| finding.description.starts_with(start)));
        assert!(verified.valid && flaws.next().is_none(), "{verified:?}");
        read(&out);
        accept();
    }
}

/// Imports the bytes, with format and compression detected from the contents.
pub fn import_any(data: &[u8]) {
    let (source, out) = (file("source"), file("out"));
    fs::write(&source, data).expect("cannot write to /dev/shm");
    if import(&source, &Options::default(), &out).is_ok() {
        assert!(verify(&out).expect("the imported trace cannot be read").valid);
        accept();
    }
}

/// Reads the bytes as a trace. Also tries to repair them; a repaired trace must verify.
pub fn read_trace(data: &[u8]) {
    let (source, out) = (file("trace"), file("repaired"));
    fs::write(&source, data).expect("cannot write to /dev/shm");
    let whole = read(&source);
    if repair(&source, &out).is_ok() {
        assert!(verify(&out).expect("the repaired trace cannot be read").valid);
    }
    if whole {
        accept();
    }
}

/// Splits the bytes into payloads of chunks and reads the resulting trace.
///
/// Each payload is preceded by 12 bytes for its section header: length, events, objects, threads and time. All
/// checksums are correct, so that the reader decodes the payloads.
pub fn read_payloads(data: &[u8]) {
    let header = br#"{"origin":{"kind":"imported","format":"fuzz","file":"x"},"touch":"assumed","clock":"measured","producer":"fuzz"}"#;
    let mut trace = b"\x89HKT\r\n\x1a\n".to_vec();
    trace.extend(2u32.to_le_bytes());
    trace.extend((header.len() as u32).to_le_bytes());
    trace.extend(header);
    trace.extend(crc(&trace).to_le_bytes());
    let (mut rest, mut events, mut objects, mut threads, mut time_ns) = (data, 0u64, 0u32, 0u32, 0u64);
    while let Some((announced, after)) = rest.split_first_chunk::<12>() {
        let length = usize::from(u16::from_le_bytes([announced[0], announced[1]])).min(after.len());
        let (payload, next) = after.split_at(length);
        let count = u32::from(u16::from_le_bytes([announced[2], announced[3]])).clamp(1, 16_384);
        events += u64::from(count);
        objects = objects.wrapping_add(u32::from(u16::from_le_bytes([announced[4], announced[5]])));
        threads = threads.wrapping_add(u32::from(u16::from_le_bytes([announced[6], announced[7]])));
        time_ns += u64::from(u32::from_le_bytes([announced[8], announced[9], announced[10], announced[11]]));
        let mut section = b"HKch".to_vec();
        for field in [payload.len() as u32, crc(payload), count] {
            section.extend(field.to_le_bytes());
        }
        section.extend(events.to_le_bytes());
        section.extend(objects.to_le_bytes());
        section.extend(threads.to_le_bytes());
        section.extend(time_ns.to_le_bytes());
        section.extend(0u32.to_le_bytes());
        section.extend(crc(&section).to_le_bytes());
        trace.extend(section);
        trace.extend(payload);
        rest = next;
    }
    read_trace(&trace);
}

/// Reads a trace and checks the contract of [`EventSource`]. Returns whether the trace was read to its end.
fn read(path: &Path) -> bool {
    let Ok(mut reader) = TraceReader::open(path) else { return false };
    let summary = *reader.summary();
    let (mut seen, mut last_ns) = (0u64, 0);
    let mut check = |event: &Event| {
        assert!(event.time_ns >= last_ns && event.thread.0 < summary.threads);
        assert!(event.op.object().is_none_or(|object| object.0 < summary.objects_peak));
        assert!(event.flaw().is_none(), "{event:?}");
        last_ns = event.time_ns;
        seen += 1;
    };
    let mut events = Vec::new();
    let failed = loop {
        match reader.next_batch() {
            Ok(Some(batch)) => {
                batch.iter().for_each(&mut check);
                events.extend_from_slice(batch);
            }
            Ok(None) => break None,
            Err(why) => break Some(why.to_string()),
        }
    };
    assert!(seen <= summary.events);
    let (by_column, failed_by_column) = read_by_column(&mut reader);
    assert!(by_column == events, "the columns hold other events");
    assert_eq!(failed_by_column, failed);
    failed.is_none()
}

/// Reads the trace again, by column. Returns its events and the error, if any.
fn read_by_column(reader: &mut TraceReader) -> (Vec<Event>, Option<String>) {
    let (mut events, mut batch) = (Vec::new(), Batch::new());
    if let Err(why) = reader.rewind() {
        return (events, Some(why.to_string()));
    }
    loop {
        match reader.next_into(&mut batch) {
            Ok(true) => batch.read().events(batch.len(), &mut events),
            Ok(false) => return (events, None),
            Err(why) => return (events, Some(why.to_string())),
        }
    }
}

/// CRC-32 as in zip, computed bit by bit: short, and independent of the reader's implementation.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    })
}
