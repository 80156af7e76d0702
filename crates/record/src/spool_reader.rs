//! Reading a spool: which frames hold which lane's records, and each lane's events in order.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hksim_trace::event::{AllocCall, ReallocCall};
use hksim_trace::resolve::{RawEvent, RawOp};

use crate::clock::TickRate;
use crate::encoding::{ESCAPE_WORDS, Kind, Record, Regions, read_escape};
use crate::error::RecordError;
use crate::spool::{
    CONTROL_BYTES, Control, FRAME_BLOCK, FRAME_BYTES, FRAME_LANE, FRAME_WORDS, FrameHeader, NESTED_OFFSET,
    NESTED_RECORDS, SPOOL_MAGIC, WORDS_OFFSET, fill, words,
};

/// Words read at a time: all the memory a lane takes while it is merged.
const WINDOW_WORDS: usize = 2048;

/// An open spool.
pub struct SpoolReader {
    path: PathBuf,
    file: File,
    /// Its control page.
    pub control: Control,
    lanes: Vec<LaneFrames>,
}

/// The frames of one lane, in the order in which they were filled.
#[derive(Clone, Debug)]
struct LaneFrames {
    frames: Vec<FilledFrame>,
    /// The lane's own frame.
    own: u64,
    header: FrameHeader,
}

#[derive(Clone, Copy, Debug)]
struct FilledFrame {
    fill: u32,
    number: u64,
    words: usize,
}

impl SpoolReader {
    /// Opens a spool and finds its lanes; `None` if its process could not even write the control page.
    ///
    /// # Errors
    /// The file cannot be read, or a frame header is damaged.
    pub fn open(path: &Path) -> Result<Option<Self>, RecordError> {
        let file = File::open(path).map_err(RecordError::io(path, "open"))?;
        let length = file.metadata().map_err(RecordError::io(path, "read"))?.len();
        let mut page = [0; CONTROL_BYTES];
        if length < CONTROL_BYTES as u64 {
            return Ok(None);
        }
        file.read_exact_at(&mut page, 0).map_err(RecordError::io(path, "read"))?;
        // SAFETY: the page is longer than Control, and every bit pattern is a Control.
        let control = unsafe { page.as_ptr().cast::<Control>().read_unaligned() };
        if control.magic != SPOOL_MAGIC {
            return Ok(None);
        }
        let mut reader = Self { path: path.to_path_buf(), file, control, lanes: Vec::new() };
        reader.lanes = reader.find_lanes(length.div_ceil(FRAME_BYTES as u64))?;
        Ok(Some(reader))
    }

    /// Sorts the frames by lane. A block whose fill is still the lane's own was being written when the process died;
    /// the lane has its records.
    fn find_lanes(&self, frames: u64) -> Result<Vec<LaneFrames>, RecordError> {
        let mut lanes = BTreeMap::new();
        let mut blocks = Vec::new();
        for number in 1..frames {
            let Some(header) = self.header(number)? else {
                continue;
            };
            let count = words(header.cursor);
            if count > FRAME_WORDS {
                return Err(self.damaged(number, "a frame claims more words than it has room for"));
            }
            let filled = FilledFrame { fill: fill(header.cursor), number, words: count };
            match header.kind {
                FRAME_LANE => {
                    lanes.insert(number, LaneFrames { frames: vec![filled], own: number, header });
                }
                FRAME_BLOCK => blocks.push((u64::from(header.lane), filled)),
                0 => {}
                _ => return Err(self.damaged(number, "a frame is neither lane nor block")),
            }
        }
        for (lane, filled) in blocks {
            let Some(lane) = lanes.get_mut(&lane) else {
                return Err(self.damaged(filled.number, "a block belongs to no lane"));
            };
            if filled.fill < fill(lane.header.cursor) {
                lane.frames.push(filled);
            }
        }
        for lane in lanes.values_mut() {
            lane.frames.sort_by_key(|frame| frame.fill);
        }
        Ok(lanes.into_values().collect())
    }

    /// The header of a frame; `None` past the end of the file.
    fn header(&self, number: u64) -> Result<Option<FrameHeader>, RecordError> {
        let mut bytes = [0; size_of::<FrameHeader>()];
        match self.file.read_exact_at(&mut bytes, number * FRAME_BYTES as u64) {
            // SAFETY: as many bytes as FrameHeader has, and every bit pattern is one.
            Ok(()) => Ok(Some(unsafe { bytes.as_ptr().cast::<FrameHeader>().read_unaligned() })),
            Err(why) if why.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
            Err(why) => Err(RecordError::io(&self.path, "read")(why)),
        }
    }

    fn damaged(&self, frame: u64, why: &'static str) -> RecordError {
        RecordError::BadSpool { path: self.path.clone(), offset: frame * FRAME_BYTES as u64, why }
    }

    /// The events of each lane. Times count from the start of the image.
    pub fn lanes(&self, rate: TickRate) -> impl Iterator<Item = LaneEvents<'_>> {
        self.lanes.iter().map(move |lane| LaneEvents::new(self, lane, rate))
    }

    /// The command line of the process.
    pub fn command(&self) -> Vec<String> {
        let used = self.control.command.get(..self.control.command_bytes as usize);
        let bytes = used.unwrap_or(&self.control.command);
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        bytes.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// Bytes of records in the spool.
    pub fn record_bytes(&self) -> u64 {
        let frames = self.lanes.iter().flat_map(|lane| &lane.frames);
        frames.map(|frame| frame.words as u64 * 8).sum()
    }

    fn read_words(&self, frame: u64, from: usize, into: &mut [u64]) -> Result<(), RecordError> {
        let offset = frame * FRAME_BYTES as u64 + (WORDS_OFFSET + from * 8) as u64;
        self.read_u64s(offset, into)
    }

    fn read_u64s(&self, offset: u64, into: &mut [u64]) -> Result<(), RecordError> {
        // SAFETY: the bytes of the words, and every bit pattern is a word.
        let bytes = unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), size_of_val(into)) };
        self.file.read_exact_at(bytes, offset).map_err(RecordError::io(&self.path, "read"))
    }
}

/// The events of one lane, in program order, with times that never decrease.
pub struct LaneEvents<'a> {
    spool: &'a SpoolReader,
    lane: &'a LaneFrames,
    rate: TickRate,
    regions: Regions,
    /// Index of the frame being read in `lane.frames`.
    frame: usize,
    /// Words of that frame taken into the window.
    taken: usize,
    window: Vec<u64>,
    /// Words of the window that are decoded.
    used: usize,
    /// Number of the thread whose records these are.
    thread: Option<u32>,
    time_ns: u64,
    /// Events that are ready.
    ready: VecDeque<RawEvent>,
    ended: bool,
}

impl<'a> LaneEvents<'a> {
    fn new(spool: &'a SpoolReader, lane: &'a LaneFrames, rate: TickRate) -> Self {
        Self {
            spool,
            lane,
            rate,
            regions: Regions::new(),
            frame: 0,
            taken: 0,
            window: Vec::new(),
            used: 0,
            thread: None,
            time_ns: 0,
            ready: VecDeque::new(),
            ended: false,
        }
    }

    /// The next event; `None` at the end.
    ///
    /// # Errors
    /// The spool cannot be read or is damaged.
    pub fn next_event(&mut self) -> Result<Option<RawEvent>, RecordError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            match self.next_record()? {
                Some(record) => {
                    if let Some(event) = self.event(&record) {
                        return Ok(Some(event));
                    }
                }
                None => self.end()?,
            }
        }
    }

    fn next_record(&mut self) -> Result<Option<Record>, RecordError> {
        loop {
            if let Some((record, used)) = self.regions.decode(self.window.get(self.used..).unwrap_or_default()) {
                self.used += used;
                return Ok(Some(record));
            }
            let Some(frame) = self.lane.frames.get(self.frame) else {
                return Ok(None);
            };
            if self.taken < frame.words {
                if self.window.len() - self.used >= ESCAPE_WORDS {
                    return Err(self.spool.damaged(frame.number, "its records cannot be read"));
                }
                self.refill(frame)?;
            } else if self.used < self.window.len() {
                return Err(self.spool.damaged(frame.number, "its last record is cut off"));
            } else {
                self.next_frame();
            }
        }
    }

    /// Moves the rest of the window to its front and fills it up.
    fn refill(&mut self, frame: &FilledFrame) -> Result<(), RecordError> {
        self.window.drain(..self.used);
        self.used = 0;
        let rest = self.window.len();
        let more = (frame.words - self.taken).min(WINDOW_WORDS - rest);
        self.window.resize(rest + more, 0);
        if let Some(empty) = self.window.get_mut(rest..) {
            self.spool.read_words(frame.number, self.taken, empty)?;
        }
        self.taken += more;
        Ok(())
    }

    fn next_frame(&mut self) {
        self.frame += 1;
        self.taken = 0;
        self.used = 0;
        self.window.clear();
        self.regions = Regions::new();
    }

    /// Readies what follows the last record: nested records not fetched, and the thread's end.
    fn end(&mut self) -> Result<(), RecordError> {
        self.ended = true;
        let header = &self.lane.header;
        let nested = (header.nested as usize).min(NESTED_RECORDS);
        let mut words = vec![0; nested * ESCAPE_WORDS];
        let offset = self.lane.own * FRAME_BYTES as u64 + NESTED_OFFSET as u64;
        self.spool.read_u64s(offset, &mut words)?;
        for escape in words.chunks_exact(ESCAPE_WORDS) {
            let event = read_escape(escape).and_then(|record| self.event(&record));
            self.ready.extend(event);
        }
        if header.ended_ticks != 0 {
            self.end_thread(header.ended_ticks);
        }
        Ok(())
    }

    fn end_thread(&mut self, ticks: u64) {
        if let Some(thread) = self.thread.take() {
            let time_ns = self.time(ticks);
            self.ready.push_back(RawEvent { time_ns, thread, op: RawOp::ThreadExit });
        }
    }

    /// Nanoseconds since the start of the image, never before the lane's previous event.
    fn time(&mut self, ticks: u64) -> u64 {
        let since_start = ticks.saturating_sub(self.spool.control.start_ticks);
        self.time_ns = self.time_ns.max(self.rate.ns(since_start));
        self.time_ns
    }

    /// The event a record stands for; `None` where events were readied instead.
    fn event(&mut self, record: &Record) -> Option<RawEvent> {
        if record.kind == Kind::Thread {
            self.begin_thread(record);
            return None;
        }
        let op = op(record)?;
        let time_ns = self.time(record.ticks);
        Some(RawEvent { time_ns, thread: self.thread?, op })
    }

    /// A frame begins by naming its thread; another name means that the thread before it had ended.
    fn begin_thread(&mut self, record: &Record) {
        let thread = u32::try_from(record.size).unwrap_or(u32::MAX);
        if self.thread == Some(thread) {
            return;
        }
        self.end_thread(0);
        self.thread = Some(thread);
        let time_ns = self.time(record.ticks);
        self.ready.push_back(RawEvent { time_ns, thread, op: RawOp::ThreadStart });
    }
}

/// What the program did; `None` for a record that is no call.
fn op(record: &Record) -> Option<RawOp> {
    let &Record { kind, align_log2, address, old, size, .. } = record;
    let alloc = |call| RawOp::Alloc { address, size, align_log2, call };
    let realloc = |call| RawOp::Realloc { old, new: address, size, call };
    Some(match kind {
        Kind::Malloc => alloc(AllocCall::Malloc),
        Kind::Calloc => alloc(AllocCall::Calloc),
        Kind::PosixMemalign => alloc(AllocCall::PosixMemalign),
        Kind::AlignedAlloc => alloc(AllocCall::AlignedAlloc),
        Kind::Memalign => alloc(AllocCall::Memalign),
        Kind::Valloc => alloc(AllocCall::Valloc),
        Kind::Pvalloc => alloc(AllocCall::Pvalloc),
        Kind::Realloc => realloc(ReallocCall::Realloc),
        Kind::Reallocarray => realloc(ReallocCall::Reallocarray),
        Kind::Free => RawOp::Free { address },
        Kind::UsableSize => RawOp::UsableSize { address },
        Kind::Fork => RawOp::Fork { child_pid: u32::try_from(address).unwrap_or(u32::MAX) },
        Kind::Thread => return None,
    })
}
