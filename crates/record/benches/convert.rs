//! Speed of the conversion from log to trace, in events per second of one core.
//!
//! The benchmark writes the logs itself: the events of random_mixed in the recorder's encoding. The events come from
//! one thread, from two threads whose events alternate, or from many threads, each of which begins when the previous
//! one has ended.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hksim_record::encoding::{Kind, Record, Regions};
use hksim_record::event_log::{
    CHUNK_BUFFER, CHUNK_BYTES, CHUNK_DRAINED, CHUNK_WORDS, ChunkHeader, Control, LOG_MAGIC, WORDS_OFFSET,
};
use hksim_record::measure::convert_log;
use hksim_trace::event::Op;
use hksim_trace::generate::{RandomMixed, Workload};

const EVENTS: u64 = 4_000_000;
/// Time between two events of a process in ticks, which are nanoseconds here.
const PACE: u64 = 12;

/// A thread's buffer: chunk `number` of the log, which holds the last fill.
struct ThreadBuffer {
    number: u32,
    regions: Regions,
    fill: u32,
    words: Vec<u64>,
}

struct Log {
    file: File,
    chunks: u32,
}

impl Log {
    fn write_chunk(&self, number: u32, header: &ChunkHeader, words: &[u64]) {
        let offset = u64::from(number) * CHUNK_BYTES as u64;
        // SAFETY: a header is plain integers without padding.
        let header = unsafe { std::slice::from_raw_parts((&raw const *header).cast::<u8>(), size_of::<ChunkHeader>()) };
        self.file.write_all_at(header, offset).unwrap();
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&words, offset + WORDS_OFFSET as u64).unwrap();
    }
}

impl ThreadBuffer {
    fn push(&mut self, log: &mut Log, record: &Record) {
        if self.words.len() + 10 > CHUNK_WORDS {
            self.finish(log, CHUNK_DRAINED);
        }
        if self.words.is_empty() {
            let thread = Record::new(Kind::Thread, record.ticks, 1000, u64::from(self.number - 1));
            self.words.extend(self.regions.escape(&thread));
        }
        match self.regions.compact(record) {
            Some(word) => self.words.push(word),
            None => self.words.extend(self.regions.escape(record)),
        }
    }

    fn finish(&mut self, log: &mut Log, kind: u32) {
        let cursor = u64::from(self.fill) << 32 | self.words.len() as u64;
        let header = ChunkHeader { kind, buffer: self.number, cursor, nested: 0, unused: 0, ended_ticks: 0 };
        let number = if kind == CHUNK_BUFFER { self.number } else { log.chunks };
        log.chunks += u32::from(kind == CHUNK_DRAINED);
        log.write_chunk(number, &header, &self.words);
        self.fill += 1;
        self.words.clear();
        self.regions = Regions::new();
    }
}

/// The order of the threads' events in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    Alternate,
    OneAfterAnother,
}

/// Writes the log of random_mixed, with `threads` threads of `ws` slots each.
fn write_log(path: &Path, threads: u32, turns: Turns, ws: u32) {
    let mut log = Log { file: File::create(path).unwrap(), chunks: 1 + threads };
    // SAFETY: all fields are integers, for which zero is valid.
    let mut control: Control = unsafe { std::mem::zeroed() };
    control.magic = LOG_MAGIC;
    // SAFETY: plain integers; padding, if any, is zeroed above.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const control).cast::<u8>(), size_of::<Control>()) };
    log.file.write_all_at(bytes, 0).unwrap();
    log.file.set_len(CHUNK_BYTES as u64).unwrap();
    let parameters = RandomMixed { cycles: EVENTS / u64::from(threads), ws, ..RandomMixed::default() };
    let new_buffer = |number| ThreadBuffer { number, regions: Regions::new(), fill: 0, words: Vec::new() };
    let mut buffers: Vec<ThreadBuffer> = (1..=threads).map(new_buffer).collect();
    let mut ticks = 1000;
    let together = if turns == Turns::Alternate { threads as usize } else { 1 };
    for buffers in buffers.chunks_mut(together) {
        let mut source = Workload::RandomMixed(parameters.clone()).source().unwrap();
        while let Some(batch) = source.next_batch().unwrap() {
            for event in batch {
                let (kind, object, size) = match event.op {
                    Op::Alloc { object, size, .. } => (Kind::Malloc, object.0, size),
                    Op::Free { object } => (Kind::Free, object.0, 0),
                    _ => continue,
                };
                // A block of 1 KiB per id, so that every slot has a separate address.
                for buffer in &mut *buffers {
                    ticks += PACE;
                    let address = 0x7f00_0000_0000 + (u64::from(buffer.number) << 31) + u64::from(object) * 1040;
                    buffer.push(&mut log, &Record::new(kind, ticks, address, size));
                }
            }
        }
    }
    for buffer in &mut buffers {
        buffer.finish(&mut log, CHUNK_BUFFER);
    }
}

fn conversion(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let (log, output) = (folder.path().join("1-0.spool"), folder.path().join("out.hkt"));
    let mut group = criterion.benchmark_group("convert");
    for (name, threads, turns, ws) in [
        ("ws=400 x1", 1, Turns::Alternate, 400),
        ("ws=400 x2", 2, Turns::Alternate, 400),
        ("ws=400 x100, one after another", 100, Turns::OneAfterAnother, 400),
        ("ws=100k x1", 1, Turns::Alternate, 100_000),
    ] {
        write_log(&log, threads, turns, ws);
        let events = convert_log(&log, &output).unwrap();
        assert!(events >= EVENTS, "events are missing: {events}");
        println!("{name}: {:.2} bytes per event", std::fs::metadata(&output).unwrap().len() as f64 / events as f64);
        group.sample_size(10).throughput(Throughput::Elements(events));
        group.bench_function(name, |bencher| bencher.iter(|| convert_log(&log, &output).unwrap()));
    }
    group.finish();
}

criterion_group!(benches, conversion);
criterion_main!(benches);
