//! Reading a spool: which frames hold which lane's records.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::RecordError;
use crate::spool::{
    CONTROL_BYTES, Control, FRAME_BLOCK, FRAME_BYTES, FRAME_LANE, FRAME_WORDS, FrameHeader, SPOOL_MAGIC, WORDS_OFFSET,
    fill, words,
};
use crate::stacks::{FIRST_WORD, FRAME_SITES, SITE_FRAME_WORDS, place_parts};

/// Size from which on a file is looked at for holes. A recorder leaves none, but a file system may store less than it was given.
const HOLES_BYTES_MIN: u64 = 1 << 30;
/// Bytes for one that is stored, at the most.
const HOLES_RATIO_MAX: u64 = 64;

const NO_SPOOL: &str = "it does not begin like a spool of this version";

/// An open spool.
pub struct SpoolReader {
    path: PathBuf,
    file: File,
    /// Its control page.
    pub control: Control,
    /// Frames that hold call sites, by sequence number.
    sites: Mutex<BTreeMap<u32, u64>>,
    live: bool,
    /// Number of the thread that had a kernel thread id last.
    threads: Mutex<HashMap<u32, u32>>,
}

/// Opens what may be a spool: a recovered folder can hold anything, and neither a pipe nor a file of little more than
/// holes may keep the reader for ever.
fn open_file(path: &Path) -> Result<File, RecordError> {
    let bad = |why| RecordError::BadSpool { path: path.to_path_buf(), offset: 0, why };
    let failed = |what| RecordError::io(path, what);
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed("open"))?;
    let data = file.metadata().map_err(failed("read"))?;
    match data.len() {
        _ if !data.is_file() => Err(bad("it is no file")),
        bytes if bytes > HOLES_BYTES_MIN && bytes / HOLES_RATIO_MAX > data.blocks() * 512 => {
            Err(bad("it is nearly empty"))
        }
        _ => Ok(file),
    }
}

/// What a spool says of its process; kept without the file open, as there may be more spools than files can be.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its control page.
    pub control: Box<Control>,
    /// Bytes of records in it.
    pub record_bytes: u64,
    /// Whether the process was running.
    pub is_live: bool,
}

impl Facts {
    /// The command line of the process.
    pub fn command(&self) -> Vec<String> {
        command(&self.control)
    }

    /// Path of the object whose `malloc` served the image; `None` where it was not found out.
    pub fn allocator(&self) -> Option<PathBuf> {
        let path = self.control.allocator.get(..self.control.allocator_bytes as usize)?;
        (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
    }
}

fn command(control: &Control) -> Vec<String> {
    let bytes = control.command.get(..control.command_bytes as usize).unwrap_or(&control.command);
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The frames of one lane, in the order in which they were filled.
#[derive(Clone, Debug)]
pub struct LaneFrames {
    /// The frames that hold its records.
    pub frames: Vec<FilledFrame>,
    /// The lane's own frame.
    pub own: u64,
    /// The header of that frame.
    pub header: FrameHeader,
    /// The words of that frame, where the process may change them while they are read.
    pub snapshot: Option<Vec<u64>>,
}

/// A frame with records.
#[derive(Clone, Copy, Debug)]
pub struct FilledFrame {
    /// Which fill of its lane it holds.
    pub fill: u32,
    /// Number of the frame in the spool.
    pub number: u64,
    /// Words in it.
    pub words: usize,
}

impl SpoolReader {
    /// Opens a spool; `None` if its process could not even write the control page. `live` says that
    /// the process still runs.
    ///
    /// # Errors
    /// The file cannot be read, or is no spool.
    pub fn open(path: &Path, live: bool) -> Result<Option<Self>, RecordError> {
        let file = open_file(path)?;
        let mut page = [0; CONTROL_BYTES];
        match file.read_exact_at(&mut page, 0) {
            Ok(()) => {}
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(why) => return Err(RecordError::io(path, "read")(why)),
        }
        // SAFETY: the page is longer than Control, and every bit pattern is a Control.
        let control = unsafe { page.as_ptr().cast::<Control>().read_unaligned() };
        match control.magic {
            SPOOL_MAGIC => {}
            // Its process died before it could write that.
            0 => return Ok(None),
            _ => return Err(RecordError::BadSpool { path: path.to_path_buf(), offset: 0, why: NO_SPOOL }),
        }
        Ok(Some(Self {
            path: path.to_path_buf(),
            file,
            control,
            sites: Mutex::default(),
            live,
            threads: Mutex::default(),
        }))
    }

    /// The lanes as they are now. `live` says that the process still runs.
    ///
    /// # Errors
    /// The file cannot be read, or a frame header is damaged.
    pub fn look(&self, live: bool) -> Result<Vec<LaneFrames>, RecordError> {
        let lanes = self.find_lanes(live)?;
        let lanes = self.add_blocks(lanes, live)?;
        // Behind the records: what they name stands there by now.
        *self.sites.lock().unwrap_or_else(PoisonError::into_inner) = self.find_sites()?;
        Ok(lanes)
    }

    /// The lanes, each with what its own frame holds. Of a live process they are read before any block: then every
    /// fill before a lane's own has its block by the time blocks are looked for.
    fn find_lanes(&self, live: bool) -> Result<BTreeMap<u64, LaneFrames>, RecordError> {
        let mut lanes = BTreeMap::new();
        for number in 1..self.frames()? {
            let Some(header) = self.header(number)?.filter(|header| header.kind == FRAME_LANE) else {
                continue;
            };
            let (header, snapshot) = if live { self.snapshot(number, header)? } else { (header, None) };
            let own = FilledFrame { fill: fill(header.cursor), number, words: words(header.cursor) };
            lanes.insert(number, LaneFrames { frames: vec![own], own: number, header, snapshot });
        }
        Ok(lanes)
    }

    /// A lane's words as they are now, with the header that goes with them. Words before the cursor do not change
    /// until the next fill begins.
    fn snapshot(&self, number: u64, mut header: FrameHeader) -> Result<(FrameHeader, Option<Vec<u64>>), RecordError> {
        loop {
            let mut snapshot = vec![0; words(header.cursor)];
            self.read_words(number, 0, &mut snapshot)?;
            match self.header(number)? {
                Some(after) if fill(after.cursor) != fill(header.cursor) => header = after,
                // The end of a thread counts once all its words are there.
                Some(after) if header.ended_ticks != 0 && after.cursor != header.cursor => header = after,
                _ if header.nested != 0 => {
                    return Ok((FrameHeader { nested: 0, ended_ticks: 0, ..header }, Some(snapshot)));
                }
                _ => return Ok((header, Some(snapshot))),
            }
        }
    }

    /// Adds the blocks to their lanes. A block whose fill is still the lane's own was being written when the process
    /// died; the lane has its records.
    fn add_blocks(&self, mut lanes: BTreeMap<u64, LaneFrames>, live: bool) -> Result<Vec<LaneFrames>, RecordError> {
        for number in 1..self.frames()? {
            let Some(header) = self.header(number)? else {
                continue;
            };
            let block = FilledFrame { fill: fill(header.cursor), number, words: words(header.cursor) };
            match header.kind {
                FRAME_BLOCK => match lanes.get_mut(&u64::from(header.lane)) {
                    Some(lane) if block.fill < fill(lane.header.cursor) => lane.frames.push(block),
                    Some(_) => {}
                    // A lane that came after the snapshot.
                    None if live => {}
                    None => return Err(self.damaged(number, "a block belongs to no lane")),
                },
                FRAME_LANE | FRAME_SITES | 0 => {}
                _ => return Err(self.damaged(number, "a frame is neither lane nor block")),
            }
        }
        for lane in lanes.values_mut() {
            lane.frames.sort_by_key(|frame| frame.fill);
        }
        Ok(lanes.into_values().collect())
    }

    /// The frames of call sites. Two threads may have made one each for the same sequence number; then only one was used.
    fn find_sites(&self) -> Result<BTreeMap<u32, u64>, RecordError> {
        let mut sites = BTreeMap::new();
        for number in 1..self.frames()? {
            let Some(header) = self.header(number)?.filter(|header| header.kind == FRAME_SITES) else {
                continue;
            };
            let mut first = [0];
            self.read_u64s(number * FRAME_BYTES as u64 + u64::from(FIRST_WORD) * 8, &mut first)?;
            if first != [0] {
                sites.insert(header.lane, number);
            }
        }
        Ok(sites)
    }

    /// Reads words of a stack or module, from its word `from` on.
    ///
    /// # Errors
    /// The file cannot be read, or nothing is at that place.
    pub fn read_place(&self, place: u32, from: usize, into: &mut [u64]) -> Result<(), RecordError> {
        let (sequence, word) = place_parts(place);
        let word = word as usize + from;
        match self.site_frame(sequence) {
            Some(frame) if word + into.len() <= SITE_FRAME_WORDS as usize => {
                self.read_u64s(frame * FRAME_BYTES as u64 + word as u64 * 8, into)
            }
            _ => Err(self.damaged_place(place)),
        }
    }

    /// The error for a call site that cannot be read.
    pub fn damaged_place(&self, place: u32) -> RecordError {
        let (sequence, _) = place_parts(place);
        let frame = self.site_frame(sequence).unwrap_or_default();
        self.damaged(frame, "a record names a call site that is not there")
    }

    fn site_frame(&self, sequence: u32) -> Option<u64> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner).get(&sequence).copied()
    }

    /// Frames the file has now, the control frame included.
    fn frames(&self) -> Result<u64, RecordError> {
        let data = self.file.metadata().map_err(RecordError::io(&self.path, "read"))?;
        Ok(data.len().div_ceil(FRAME_BYTES as u64))
    }

    /// Whether the process was running when its spool was opened.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// The header of a frame; `None` past the end of the file.
    fn header(&self, number: u64) -> Result<Option<FrameHeader>, RecordError> {
        let mut bytes = [0; size_of::<FrameHeader>()];
        match self.file.read_exact_at(&mut bytes, number * FRAME_BYTES as u64) {
            Ok(()) => {}
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(why) => return Err(RecordError::io(&self.path, "read")(why)),
        }
        // SAFETY: as many bytes as FrameHeader has, and every bit pattern is one.
        let header = unsafe { bytes.as_ptr().cast::<FrameHeader>().read_unaligned() };
        if words(header.cursor) > FRAME_WORDS {
            return Err(self.damaged(number, "a frame claims more words than it has room for"));
        }
        Ok(Some(header))
    }

    /// The error for a damaged frame.
    pub fn damaged(&self, frame: u64, why: &'static str) -> RecordError {
        RecordError::BadSpool { path: self.path.clone(), offset: frame * FRAME_BYTES as u64, why }
    }

    /// Address of the counters that number the events; `None` where they have time stamps.
    pub fn counters(&self) -> Option<u64> {
        Some(self.control.counters).filter(|&address| address != 0)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes which thread has a kernel thread id.
    pub fn note_thread(&self, tid: u32, thread: u32) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).insert(tid, thread);
    }

    /// The thread noted last for a kernel thread id.
    pub fn thread_of(&self, tid: u32) -> Option<u32> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).get(&tid).copied()
    }

    /// The command line of the process.
    pub fn command(&self) -> Vec<String> {
        command(&self.control)
    }

    /// What there is to know of it.
    ///
    /// # Errors
    /// As for [`SpoolReader::look`].
    pub fn facts(&self) -> Result<Facts, RecordError> {
        let lanes = self.look(self.live)?;
        let frames = lanes.iter().flat_map(|lane| &lane.frames);
        let record_bytes = frames.map(|frame| frame.words as u64 * 8).sum();
        Ok(Facts { control: Box::new(self.control), record_bytes, is_live: self.live })
    }

    /// Reads words of a frame, from its word `from` on.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_words(&self, frame: u64, from: usize, into: &mut [u64]) -> Result<(), RecordError> {
        let offset = frame * FRAME_BYTES as u64 + (WORDS_OFFSET + from * 8) as u64;
        self.read_u64s(offset, into)
    }

    /// Reads words at a byte offset.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_u64s(&self, offset: u64, into: &mut [u64]) -> Result<(), RecordError> {
        // SAFETY: the bytes of the words, and every bit pattern is a word.
        let bytes = unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), size_of_val(into)) };
        self.file.read_exact_at(bytes, offset).map_err(RecordError::io(&self.path, "read"))
    }
}
