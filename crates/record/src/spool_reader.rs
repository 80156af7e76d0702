//! Reading a spool: which frames hold which lane's records.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::clock::TickRate;
use crate::error::RecordError;
use crate::lane_events::LaneEvents;
use crate::spool::{
    CONTROL_BYTES, Control, FRAME_BLOCK, FRAME_BYTES, FRAME_LANE, FRAME_WORDS, FrameHeader, SPOOL_MAGIC, WORDS_OFFSET,
    fill, words,
};

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
pub struct LaneFrames {
    /// The frames that hold its records.
    pub frames: Vec<FilledFrame>,
    /// The lane's own frame.
    pub own: u64,
    /// The header of that frame.
    pub header: FrameHeader,
}

/// A frame with records.
#[derive(Clone, Copy, Debug)]
pub struct FilledFrame {
    fill: u32,
    /// Number of the frame in the spool.
    pub number: u64,
    /// Words in it.
    pub words: usize,
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

    /// The error for a damaged frame.
    pub fn damaged(&self, frame: u64, why: &'static str) -> RecordError {
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
