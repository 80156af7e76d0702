//! Test: converting a log while it grows gives the same trace as converting it at the end.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use hksim_testkit::Random;
use hksim_trace::event::{ObjectId, Op};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::clock::{ClockPair, TickRate};
use crate::control::{ControlEntry, ControlEvent};
use crate::convert::{Conversion, ConversionConfig, ImageEnd, convert};
use crate::encoding::{Kind, Record, Regions};
use crate::event_log::{
    CHUNK_BUFFER, CHUNK_BYTES, CHUNK_DRAINED, CHUNK_WORDS, ChunkHeader, Control, LOG_MAGIC, WORDS_OFFSET,
};
use crate::log_reader::LogReader;
use crate::missing::Missing;
use crate::touch_full::Merging;

/// A thread's buffer: its own chunk, as in memory.
pub(crate) struct ThreadBuffer {
    number: u64,
    fill: u64,
    regions: Regions,
    words: Vec<u64>,
    /// When its thread ended; 0 while it runs.
    ended_ticks: u64,
    /// The end of the realloc in progress, and the block's new address.
    resize: Option<(u64, u64)>,
    /// All records written, in order, with times as they can be read back.
    pub(crate) records: Vec<Record>,
}

/// Writes the log of an invented process, whose threads begin one after another and free each other's blocks.
pub(crate) struct Process {
    file: File,
    chunks: u64,
    pub(crate) buffers: Vec<ThreadBuffer>,
    live: Vec<u64>,
    ticks: u64,
}

impl Process {
    pub(crate) fn begin(path: &Path) -> Self {
        // SAFETY: all fields are integers, for which zero is valid.
        let mut control: Control = unsafe { std::mem::zeroed() };
        (control.magic, control.pid) = (LOG_MAGIC, 7);
        // SAFETY: plain integers; padding is zeroed above.
        let page = unsafe { std::slice::from_raw_parts((&raw const control).cast::<u8>(), size_of::<Control>()) };
        let file = File::create(path).unwrap();
        file.write_all_at(page, 0).unwrap();
        file.set_len(CHUNK_BYTES as u64).unwrap();
        Self { file, chunks: 1, buffers: Vec::new(), live: Vec::new(), ticks: 1000 }
    }

    pub(crate) fn begin_thread(&mut self) {
        self.buffers.push(ThreadBuffer {
            number: self.chunks,
            fill: 0,
            regions: Regions::new(),
            words: Vec::new(),
            ended_ticks: 0,
            resize: None,
            records: Vec::new(),
        });
        self.chunks += 1;
        self.show();
    }

    fn write(&self, chunk: u64, kind: u32, buffer: &ThreadBuffer) {
        let cursor = buffer.fill << 32 | buffer.words.len() as u64;
        let ended_ticks = buffer.ended_ticks;
        let header = ChunkHeader { kind, buffer: buffer.number as u32, cursor, nested: 0, unused: 0, ended_ticks };
        // SAFETY: a header is plain integers without padding.
        let header = unsafe { std::slice::from_raw_parts((&raw const header).cast::<u8>(), size_of::<ChunkHeader>()) };
        let words: Vec<u8> = buffer.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&words, chunk * CHUNK_BYTES as u64 + WORDS_OFFSET as u64).unwrap();
        self.file.write_all_at(header, chunk * CHUNK_BYTES as u64).unwrap();
    }

    /// Writes the buffers' memory to the file, as a shared mapping does.
    pub(crate) fn show(&self) {
        self.buffers.iter().for_each(|buffer| self.write(buffer.number, CHUNK_BUFFER, buffer));
    }

    fn push(&mut self, index: usize, record: &Record) {
        if self.buffers[index].words.len() + 10 > CHUNK_WORDS {
            self.write(self.chunks, CHUNK_DRAINED, &self.buffers[index]);
            self.chunks += 1;
            let buffer = &mut self.buffers[index];
            (buffer.fill, buffer.regions) = (buffer.fill + 1, Regions::new());
            buffer.words.clear();
        }
        let buffer = &mut self.buffers[index];
        if buffer.words.is_empty() {
            let thread = Record::new(Kind::Thread, record.ticks, 100 + buffer.number, buffer.number);
            buffer.words.extend(buffer.regions.escape(&thread));
        }
        // A compact record rounds its time down to 4 ticks.
        let ticks = match buffer.regions.compact(record) {
            Some(word) => {
                buffer.words.push(word);
                buffer.regions.last_ticks()
            }
            None => {
                buffer.words.extend(buffer.regions.escape(record));
                record.ticks
            }
        };
        buffer.records.push(Record { ticks, ..*record });
    }

    /// Ends a thread's resize if it is due, and returns whether the thread can make a call. No thread may use the new
    /// address before the resize has ended.
    fn is_free_to_call(&mut self, index: usize) -> bool {
        let ticks = self.ticks;
        let ended = self.buffers[index].resize.take_if(|(end_ticks, _)| *end_ticks < ticks);
        self.live.extend(ended.map(|(_, address)| address));
        self.buffers[index].resize.is_none()
    }

    /// A thread's next call.
    pub(crate) fn step(&mut self, index: usize, random: &mut Random) {
        self.ticks += 1 + random.below(60);
        if !self.is_free_to_call(index) {
            return;
        }
        let place = random.below(self.live.len().max(1) as u64) as usize;
        // An address is reused soon after it was freed.
        let address = 0x7f00_0000_0000 + 64 * random.below(3000);
        let is_moved_to = |buffer: &ThreadBuffer| buffer.resize.is_some_and(|(_, new)| new == address);
        let is_live = self.live.contains(&address) || self.buffers.iter().any(is_moved_to);
        match random.below(10) {
            0..=4 if !is_live => {
                self.live.push(address);
                self.push(index, &Record::new(Kind::Malloc, self.ticks, address, 1 + random.below(60)));
            }
            5 if !is_live && !self.live.is_empty() => {
                let old = self.live.swap_remove(place);
                // Some resizes take so long that their thread must have been interrupted. The other threads continue
                // and may reuse the old address.
                let longest = if random.below(50) == 0 { 40_000 } else { 400 };
                let duration = 1 + random.below(longest);
                let record = Record { old, duration, ..Record::new(Kind::Realloc, self.ticks, address, 50) };
                self.buffers[index].resize = Some((self.ticks + duration, address));
                self.push(index, &record);
            }
            _ if !self.live.is_empty() => {
                let address = self.live.swap_remove(place);
                self.push(index, &Record::new(Kind::Free, self.ticks, address, 0));
            }
            _ => {}
        }
    }
}

pub(crate) fn how() -> ConversionConfig {
    let (start, end) = (ClockPair { ticks: 0, ns: 0 }, ClockPair { ticks: 1, ns: 1 });
    ConversionConfig {
        rate: TickRate::between(start, end).unwrap(),
        merging: Merging::default(),
        clock_events: 1,
        missing: Missing::default(),
    }
}

pub(crate) fn open(path: &Path, live: bool) -> Arc<LogReader> {
    Arc::new(LogReader::open(path, live).unwrap().unwrap())
}

#[test]
fn a_growing_log_gives_the_same_trace() {
    let mut drained = 0;
    for seed in 1..=6 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7-0.spool");
        let (ahead, at_end) = (folder.path().join("ahead.hkt"), folder.path().join("end.hkt"));
        let mut process = Process::begin(&path);
        // The process has two threads before its log is first read. Otherwise the early conversion would not delay the
        // frees of a single thread, but a conversion at the end would.
        process.begin_thread();
        process.begin_thread();
        let mut control_log = Vec::new();
        let mut conversion = Conversion::begin(open(&path, true), how(), &folder.path().join("ahead")).unwrap();
        let mut taken = Vec::new();
        for step in 0..200_000 {
            if random.below(30_000) == 0 && process.buffers.len() < 5 {
                process.begin_thread();
            }
            // The second-last thread mostly sleeps.
            let buffers = process.buffers.len() as u64;
            let index = random.below(buffers) as usize;
            let is_awake = index + 2 != process.buffers.len() || random.below(5000) == 0;
            if is_awake && process.buffers[index].ended_ticks == 0 {
                process.step(index, &mut random);
            }
            if step == 100_000 {
                process.buffers[0].ended_ticks = process.ticks + 1;
                process.ticks += 2;
            }
            if random.below(20_000) == 0 {
                control_log
                    .push(ControlEntry { ticks: process.ticks, event: ControlEvent::Mark(format!("step {step}")) });
            }
            if random.below(8_000) == 0 {
                process.show();
                let until = process.ticks.saturating_sub(random.below(3) * random.below(100_000));
                conversion.advance(until, &control_log, &|| true).unwrap();
                taken.push(conversion.events());
            }
        }
        process.show();
        let log = open(&path, false);
        conversion.finish(ImageEnd::Session, &log, &control_log, &ahead).unwrap();
        let partial = folder.path().join("partial");
        let whole = convert(&log, how(), ImageEnd::Session, &control_log, &partial, &at_end).unwrap();
        assert!(whole.quality == Default::default(), "{:?}", whole.quality);
        drained += u32::from(process.chunks > process.buffers.len() as u64 + 1);
        assert!(taken.last() > Some(&(whole.summary.events / 2)), "most events are converted early: {taken:?}");
        assert!(fs::read(&ahead).unwrap() == fs::read(&at_end).unwrap(), "both traces are the same");
    }
    assert!(drained >= 3, "buffers were drained in {drained} of 6 runs");
}

/// While a resize takes long, another thread is given the old address, keeps it and continues. In the trace the resize
/// precedes that allocation, although its record comes last, and it resizes its own block.
#[test]
fn a_long_resize_precedes_the_next_allocation_of_its_old_address() {
    let folder = tempfile::tempdir().unwrap();
    let (path, output) = (folder.path().join("7-0.spool"), folder.path().join("app.hkt"));
    let mut process = Process::begin(&path);
    process.begin_thread();
    process.begin_thread();
    let [left, new, short, other] = [0, 1, 2, 3].map(|block| 0x7f00_0000_0000 + 64 * block);
    let call = |kind, ticks, address, size| Record::new(kind, ticks, address, size);
    process.push(0, &call(Kind::Malloc, 1050, left, 11));
    // When the second thread's events are read, the first thread's next event is an ordinary call.
    process.push(0, &call(Kind::Malloc, 2000, short, 12));
    process.push(0, &call(Kind::Free, 2050, short, 0));
    process.push(0, &Record { old: left, duration: 5_000_000, ..call(Kind::Realloc, 2100, new, 50) });
    process.push(0, &call(Kind::Free, 6_000_000, new, 0));
    process.push(1, &call(Kind::Malloc, 1000, other, 13));
    process.push(1, &call(Kind::Free, 1900, other, 0));
    process.push(1, &call(Kind::Malloc, 3000, left, 14));
    for pair in 0..6000 {
        process.push(1, &call(Kind::Malloc, 4000 + 800 * pair, other, 13));
        process.push(1, &call(Kind::Free, 4400 + 800 * pair, other, 0));
    }
    process.push(1, &call(Kind::Free, 6_100_000, left, 0));
    process.show();
    let partial = folder.path().join("partial");
    let converted = convert(&open(&path, false), how(), ImageEnd::Session, &[], &partial, &output).unwrap();
    assert_eq!(converted.quality, Default::default());
    let mut reader = TraceReader::open(&output).unwrap();
    let mut seen = Vec::new();
    while let Some(events) = reader.next_batch().unwrap() {
        seen.extend(events.iter().filter_map(|event| match event.op {
            Op::Alloc { object, size, .. } if size != 13 => Some(("alloc", object, size)),
            Op::Realloc { object, size, .. } => Some(("realloc", object, size)),
            _ => None,
        }));
    }
    let size_of = |seen: &[(&str, ObjectId, u64)], object| {
        seen.iter().rev().find(|(_, other, _)| *other == object).map(|(_, _, size)| *size)
    };
    let at = seen.iter().position(|(what, ..)| *what == "realloc").unwrap();
    assert_eq!(size_of(&seen[..at], seen[at].1), Some(11), "{seen:?}");
}
