//! The bodies of the fuzz targets for memory recordings. The input may be rejected, but every event accepted from it
//! must be valid. `crates/memory-trace/tests/it/fuzz_targets.rs` also compiles this file and runs it on its seeds.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use hksim_memory_trace::{Cut, Frame, Op, Reader, SiteId, anonymise, cut, repair, summarise, verify};

/// Pages of the largest address space of x86-64, and the kernel's limit of process ids.
const PAGES_MAX: u64 = 1 << 45;
const THREADS_MAX: u32 = 1 << 22;

/// A file in memory for the calling thread.
fn file(name: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/hksim-fuzz-{}-{:?}-{name}.hkm", std::process::id(), thread::current().id()))
}

/// Reads the bytes as a recording. Also runs the tools on it; what they write must be sound. Returns whether it was
/// read to its end.
pub fn read_recording(data: &[u8]) -> bool {
    let [source, out] = ["source", "out"].map(file);
    fs::write(&source, data).expect("cannot write to /dev/shm");
    let is_whole = read(&source);
    assert_eq!(summarise(&source).is_ok(), is_whole);
    let is_sound = || verify(&out).is_ok_and(|verified| verified.valid);
    assert!(repair(&source, &out).is_err() || is_sound());
    assert!(cut(&source, &out, Cut { until_ns: 1 << 20, events: 100 }).is_err() || is_sound());
    assert!(anonymise(&source, &out).is_err() || is_sound());
    [source, out].iter().for_each(|path| drop(fs::remove_file(path)));
    is_whole
}

/// Splits the bytes after the first into contents of chunks and reads the resulting recording. Each content is preceded by 4 bytes: its
/// length and its number of events. All checksums are correct, so that the reader decodes the contents.
pub fn read_contents(data: &[u8]) -> bool {
    // A leading byte says whether there are call stacks.
    let Some((&kind, data)) = data.split_first() else { return false };
    let header: &[u8] = match kind & 1 {
        0 => br#"{"producer":"fuzz","run_id":"","command":[],"pid":1,"image":0,"beginning":{"kind":"exec"},"visibility":{"faults":"accesses","calls":"tracepoints"},"machine":{"kernel_release":"","thp_mode":null,"addresses_random":true,"overcommit_memory":null,"thp_disabled":true}}"#,
        _ => br#"{"producer":"fuzz","run_id":"","command":[],"pid":1,"image":0,"beginning":{"kind":"exec"},"visibility":{"faults":"accesses","calls":"tracepoints"},"machine":{"kernel_release":"","thp_mode":null,"addresses_random":true,"overcommit_memory":null,"thp_disabled":true},"stack_depth":64}"#,
    };
    let mut recording = b"\x89HKM\r\n\x1a\n".to_vec();
    recording.extend((1 + u32::from(kind & 1)).to_le_bytes());
    recording.extend((header.len() as u32).to_le_bytes());
    recording.extend(header);
    recording.extend(crc(&recording).to_le_bytes());
    let (mut rest, mut events) = (data, 0);
    while let Some((announced, after)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([announced[0], announced[1]])).min(after.len());
        let (content, next) = after.split_at(length);
        let count = u32::from(u16::from_le_bytes([announced[2], announced[3]])).max(1);
        events += u64::from(count);
        let payload = frame(content);
        recording.extend(section(b"HMch", &payload, content.len(), count, events));
        recording.extend(payload);
        rest = next;
    }
    let footer = br#"{"end":"exit","lost_events":0}"#;
    recording.extend(section(b"HMft", footer, footer.len(), 0, events));
    recording.extend(footer);
    read_recording(&recording)
}

fn section(tag: &[u8; 4], payload: &[u8], plain_bytes: usize, count: u32, events: u64) -> Vec<u8> {
    let mut section = tag.to_vec();
    for field in [payload.len() as u32, crc(payload), plain_bytes as u32, count] {
        section.extend(field.to_le_bytes());
    }
    section.extend(events.to_le_bytes());
    section.extend([0; 12]);
    section.extend(crc(&section).to_le_bytes());
    section
}

/// A zstd frame with one block that is stored as it is (RFC 8878: single segment, content size of 8 bytes).
fn frame(content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0xE0];
    frame.extend((content.len() as u64).to_le_bytes());
    let header = (content.len() as u32) << 3 | 1;
    frame.extend(&header.to_le_bytes()[..3]);
    frame.extend(content);
    frame
}

/// Reads a recording and checks its events. Returns whether it was read without an error.
fn read(path: &Path) -> bool {
    let Ok(mut reader) = Reader::open(path) else { return false };
    let (mut chunk, mut last_ns, mut seen) = (Vec::new(), 0, 0);
    loop {
        match reader.next_chunk(&mut chunk) {
            Ok(true) => {}
            Ok(false) => return true,
            Err(_) => return false,
        }
        for event in &chunk {
            assert!(event.time_ns >= last_ns && event.thread < THREADS_MAX);
            last_ns = event.time_ns;
            let pages = match &event.op {
                Op::Touch { page, .. } => *page..*page + 1,
                Op::Map(map) => map.pages.clone(),
                Op::Remap { old, new, .. } => old.start.min(new.start)..old.end.max(new.end),
                Op::Unmap(pages) | Op::Unlock(pages) => pages.clone(),
                Op::Protect { pages, .. } | Op::Advise { pages, .. } | Op::Lock { pages, .. } => pages.clone(),
                _ => 0..0,
            };
            assert!(pages.start <= pages.end && pages.end <= PAGES_MAX, "{event:?}");
            if event.site == SiteId::UNKNOWN {
                continue;
            }
            let stack = reader.sites().stack(event.site).expect("a call site is defined before its use");
            let has_module = |frame: &Frame| frame.module.is_none() || reader.sites().module_of(frame).is_some();
            let frames: Vec<&Frame> = reader.sites().frames_of(event.site).collect();
            assert!(frames.len() == stack.frames.len() && frames.into_iter().all(has_module), "{stack:?}");
        }
        seen += chunk.len() as u64;
        assert_eq!(seen, reader.events_total());
    }
}

/// CRC-32 as in zip, computed bit by bit: independent of the reader's implementation.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    })
}
