//! Test: a spool that is converted while it grows gives the same trace as one converted at the end.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::clock::{ClockPair, TickRate};
use crate::control::{Deed, Entry};
use crate::convert::{Conversion, How, ImageEnd, convert};
use crate::encoding::{Kind, Record, Regions};
use crate::spool::{
    Control, FRAME_BLOCK, FRAME_BYTES, FRAME_LANE, FRAME_WORDS, FrameHeader, SPOOL_MAGIC, WORDS_OFFSET,
};
use crate::spool_reader::SpoolReader;
use crate::touch_full::Merging;

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A thread's lane: its own frame, as it would stand in memory.
struct Lane {
    number: u64,
    fill: u64,
    regions: Regions,
    words: Vec<u64>,
    /// When its thread ended; 0 while it lives.
    ended_ticks: u64,
}

/// A process as its recorder would write it: threads that begin one after another, and free each other's blocks.
struct Process {
    file: File,
    frames: u64,
    lanes: Vec<Lane>,
    live: Vec<u64>,
    ticks: u64,
}

impl Process {
    fn begin(path: &Path) -> Self {
        // SAFETY: all fields are integers, for which zero is valid.
        let mut control: Control = unsafe { std::mem::zeroed() };
        (control.magic, control.pid) = (SPOOL_MAGIC, 7);
        // SAFETY: plain integers; padding is zeroed above.
        let page = unsafe { std::slice::from_raw_parts((&raw const control).cast::<u8>(), size_of::<Control>()) };
        let file = File::create(path).unwrap();
        file.write_all_at(page, 0).unwrap();
        file.set_len(FRAME_BYTES as u64).unwrap();
        Self { file, frames: 1, lanes: Vec::new(), live: Vec::new(), ticks: 1000 }
    }

    fn begin_thread(&mut self) {
        self.lanes.push(Lane {
            number: self.frames,
            fill: 0,
            regions: Regions::new(),
            words: Vec::new(),
            ended_ticks: 0,
        });
        self.frames += 1;
        self.show();
    }

    fn write(&self, frame: u64, kind: u32, lane: &Lane) {
        let cursor = lane.fill << 32 | lane.words.len() as u64;
        let ended_ticks = lane.ended_ticks;
        let header = FrameHeader { kind, lane: lane.number as u32, cursor, nested: 0, unused: 0, ended_ticks };
        // SAFETY: a header is plain integers without padding.
        let header = unsafe { std::slice::from_raw_parts((&raw const header).cast::<u8>(), size_of::<FrameHeader>()) };
        let words: Vec<u8> = lane.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&words, frame * FRAME_BYTES as u64 + WORDS_OFFSET as u64).unwrap();
        self.file.write_all_at(header, frame * FRAME_BYTES as u64).unwrap();
    }

    /// Puts what stands in the lanes' memory into the file, as a shared mapping does.
    fn show(&self) {
        self.lanes.iter().for_each(|lane| self.write(lane.number, FRAME_LANE, lane));
    }

    fn push(&mut self, index: usize, record: &Record) {
        if self.lanes[index].words.len() + 10 > FRAME_WORDS {
            self.write(self.frames, FRAME_BLOCK, &self.lanes[index]);
            self.frames += 1;
            let lane = &mut self.lanes[index];
            (lane.fill, lane.regions) = (lane.fill + 1, Regions::new());
            lane.words.clear();
        }
        let lane = &mut self.lanes[index];
        if lane.words.is_empty() {
            let thread = Record::new(Kind::Thread, record.ticks, 100 + lane.number, lane.number);
            lane.words.extend(lane.regions.escape(&thread));
        }
        match lane.regions.compact(record) {
            Some(word) => lane.words.push(word),
            None => lane.words.extend(lane.regions.escape(record)),
        }
    }

    /// A thread's next call.
    fn step(&mut self, index: usize, random: &mut Random) {
        self.ticks += 1 + random.below(60);
        let place = random.below(self.live.len().max(1) as u64) as usize;
        // An address is given out again soon after it was freed.
        let address = 0x7f00_0000_0000 + 64 * random.below(3000);
        let is_live = self.live.contains(&address);
        match random.below(10) {
            0..=4 if !is_live => {
                self.live.push(address);
                self.push(index, &Record::new(Kind::Malloc, self.ticks, address, 1 + random.below(60)));
            }
            5 if !is_live && !self.live.is_empty() => {
                let old = std::mem::replace(&mut self.live[place], address);
                let duration = 1 + random.below(400);
                let record = Record { old, duration, ..Record::new(Kind::Realloc, self.ticks, address, 50) };
                self.ticks += duration; // nobody else does anything meanwhile
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

fn how() -> How {
    let (start, end) = (ClockPair { ticks: 0, ns: 0 }, ClockPair { ticks: 1, ns: 1 });
    How { rate: TickRate::between(start, end).unwrap(), merging: Merging::default(), clock_events: 1 }
}

fn open(path: &Path, live: bool) -> Arc<SpoolReader> {
    Arc::new(SpoolReader::open(path, live).unwrap().unwrap())
}

#[test]
fn a_growing_spool_gives_the_same_trace() {
    for seed in 1..=6 {
        println!("seed {seed}");
        let mut random = Random(0x9E37_79B9_7F4A_7C15u64.wrapping_mul(seed));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7-0.spool");
        let (ahead, at_end) = (folder.path().join("ahead.hkt"), folder.path().join("end.hkt"));
        let mut process = Process::begin(&path);
        // From the first look on there are two: what is taken over of one alone needs no frees held back, and comes out
        // in its exact order, while a conversion at the end holds them.
        process.begin_thread();
        process.begin_thread();
        let mut log = Vec::new();
        let mut conversion = Conversion::begin(open(&path, true), how(), &folder.path().join("partial")).unwrap();
        let mut taken = Vec::new();
        for step in 0..150_000 {
            if random.below(30_000) == 0 && process.lanes.len() < 5 {
                process.begin_thread();
            }
            // The last thread but one sleeps mostly.
            let lanes = process.lanes.len() as u64;
            let index = random.below(lanes) as usize;
            let is_awake = index + 2 != process.lanes.len() || random.below(5000) == 0;
            if is_awake && process.lanes[index].ended_ticks == 0 {
                process.step(index, &mut random);
            }
            if step == 100_000 {
                process.lanes[0].ended_ticks = process.ticks + 1;
                process.ticks += 2;
            }
            if random.below(20_000) == 0 {
                log.push(Entry { ticks: process.ticks, deed: Deed::Mark(format!("step {step}")) });
            }
            if random.below(8_000) == 0 {
                process.show();
                let until = process.ticks.saturating_sub(random.below(3) * random.below(100_000));
                conversion.advance(until, &log, &|| true).unwrap();
                taken.push(conversion.events());
            }
        }
        process.show();
        let spool = open(&path, false);
        conversion.finish(ImageEnd::Session, &spool, &log, &ahead).unwrap();
        let whole = convert(&spool, how(), ImageEnd::Session, &log, &at_end).unwrap();
        assert!(whole.quality == Default::default(), "{:?}", whole.quality);
        assert!(process.frames > process.lanes.len() as u64 + 1, "some lanes were drained");
        assert!(taken.last() > Some(&(whole.summary.events / 2)), "most came ahead: {taken:?}");
        assert!(fs::read(&ahead).unwrap() == fs::read(&at_end).unwrap(), "both traces are the same");
    }
}
