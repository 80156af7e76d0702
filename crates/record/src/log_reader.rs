//! Reads an event log, and finds the chunks that hold each thread buffer's records.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::RecordError;
use crate::event_log::{
    CHUNK_BUFFER, CHUNK_BYTES, CHUNK_DRAINED, CHUNK_WORDS, CONTROL_BYTES, ChunkHeader, Control, LOG_MAGIC,
    WORDS_OFFSET, fill, words,
};
use crate::stacks::{CHUNK_SITES, FIRST_WORD, SITE_CHUNK_WORDS, place_parts};
use crate::written_file;

/// Size from which a file is checked for being sparse. A recorder writes no holes, but a file system may store fewer
/// bytes than were written.
const HOLES_BYTES_MIN: u64 = 1 << 30;
/// Largest accepted ratio of a file's size to its stored bytes.
const HOLES_RATIO_MAX: u64 = 64;

const NO_LOG: &str = "it does not begin like a log of this version";

/// An open log.
pub struct LogReader {
    path: PathBuf,
    file: File,
    /// Its control page.
    pub control: Control,
    /// Chunks of call sites, by sequence number.
    sites: Mutex<BTreeMap<u32, u64>>,
    live: bool,
    /// The thread that last had each kernel thread id.
    threads: Mutex<HashMap<u32, u32>>,
}

/// Opens a file that may be a log. The directory can contain any file; a huge sparse file must not block the reader.
fn open_file(path: &Path) -> Result<File, RecordError> {
    let bad = |why| RecordError::BadLog { path: path.to_path_buf(), offset: 0, why };
    let failed = |what| RecordError::io(path, what);
    let file = match written_file::open(path) {
        Err(why) if written_file::is_other(&why) => return Err(bad("it is not a regular file")),
        opened => opened.map_err(failed("open"))?,
    };
    let data = file.metadata().map_err(failed("read"))?;
    match data.len() {
        bytes if bytes > HOLES_BYTES_MIN && bytes / HOLES_RATIO_MAX > data.blocks() * 512 => {
            Err(bad("it is nearly empty"))
        }
        _ => Ok(file),
    }
}

/// Facts about a log's process. They do not keep the log open, because there may be more logs than files can be open.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its control page.
    pub control: Box<Control>,
    /// Bytes of records.
    pub record_bytes: u64,
    /// Whether the process was running.
    pub is_live: bool,
}

impl Facts {
    /// The command line of the process.
    pub fn command(&self) -> Vec<String> {
        command(&self.control)
    }

    /// Path of the object whose `malloc` served the image; `None` if unknown.
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

/// The chunks of one thread buffer, in the order in which they were filled.
#[derive(Clone, Debug)]
pub struct BufferChunks {
    /// The chunks with its records.
    pub chunks: Vec<FilledChunk>,
    /// The buffer's own chunk.
    pub own: u64,
    /// The header of that chunk.
    pub header: ChunkHeader,
    /// A copy of that chunk's words, if the process may change them during reading.
    pub snapshot: Option<Vec<u64>>,
}

/// A chunk of records.
#[derive(Clone, Copy, Debug)]
pub struct FilledChunk {
    /// Number of the buffer's fill that the chunk contains.
    pub fill: u32,
    /// Number of the chunk in the log.
    pub number: u64,
    /// Number of words in the chunk.
    pub words: usize,
}

impl LogReader {
    /// Opens a log; `None` if its process could not write the control page. `live` means that the process still runs.
    ///
    /// # Errors
    /// The file cannot be read, or is not a log.
    pub fn open(path: &Path, live: bool) -> Result<Option<Self>, RecordError> {
        let file = open_file(path)?;
        let mut page = [0; CONTROL_BYTES];
        match file.read_exact_at(&mut page, 0) {
            Ok(()) => {}
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(why) => return Err(RecordError::io(path, "read")(why)),
        }
        // SAFETY: the page is longer than Control, for which every bit pattern is valid.
        let control = unsafe { page.as_ptr().cast::<Control>().read_unaligned() };
        match control.magic {
            LOG_MAGIC => {}
            // The process ended before it could write the page.
            0 => return Ok(None),
            _ => return Err(RecordError::BadLog { path: path.to_path_buf(), offset: 0, why: NO_LOG }),
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

    /// The thread buffers in their present state. `live` means that the process still runs.
    ///
    /// # Errors
    /// The file cannot be read, or a chunk header is damaged.
    pub fn look(&self, live: bool) -> Result<Vec<BufferChunks>, RecordError> {
        let buffers = self.find_buffers(live)?;
        let buffers = self.add_drained(buffers, live)?;
        // Read after the records, so that every site to which they refer is found.
        *self.sites.lock().unwrap_or_else(PoisonError::into_inner) = self.find_sites()?;
        Ok(buffers)
    }

    /// The thread buffers, each with its own chunk. For a live process they are read before the drained chunks. So
    /// every earlier fill of a buffer already has its drained chunk when the drained chunks are read.
    fn find_buffers(&self, live: bool) -> Result<BTreeMap<u64, BufferChunks>, RecordError> {
        let mut buffers = BTreeMap::new();
        for number in 1..self.chunks()? {
            let Some(header) = self.header(number)?.filter(|header| header.kind == CHUNK_BUFFER) else {
                continue;
            };
            let (header, snapshot) = if live { self.snapshot(number, header)? } else { (header, None) };
            let own = FilledChunk { fill: fill(header.cursor), number, words: words(header.cursor) };
            buffers.insert(number, BufferChunks { chunks: vec![own], own: number, header, snapshot });
        }
        Ok(buffers)
    }

    /// The present words of a thread buffer, with the header that belongs to them. Words before the cursor do not
    /// change until the next fill begins.
    fn snapshot(&self, number: u64, mut header: ChunkHeader) -> Result<(ChunkHeader, Option<Vec<u64>>), RecordError> {
        loop {
            let mut snapshot = vec![0; words(header.cursor)];
            self.read_words(number, 0, &mut snapshot)?;
            match self.header(number)? {
                Some(after) if fill(after.cursor) != fill(header.cursor) => header = after,
                // The end of a thread counts only once all its words have been read.
                Some(after) if header.ended_ticks != 0 && after.cursor != header.cursor => header = after,
                _ if header.nested != 0 => {
                    return Ok((ChunkHeader { nested: 0, ended_ticks: 0, ..header }, Some(snapshot)));
                }
                _ => return Ok((header, Some(snapshot))),
            }
        }
    }

    /// Adds the drained chunks to their buffers. If a drained chunk has the buffer's present fill, the process died
    /// while draining. The chunk is then ignored, because the buffer has the same records.
    fn add_drained(
        &self,
        mut buffers: BTreeMap<u64, BufferChunks>,
        live: bool,
    ) -> Result<Vec<BufferChunks>, RecordError> {
        for number in 1..self.chunks()? {
            let Some(header) = self.header(number)? else {
                continue;
            };
            let drained = FilledChunk { fill: fill(header.cursor), number, words: words(header.cursor) };
            match header.kind {
                CHUNK_DRAINED => match buffers.get_mut(&u64::from(header.buffer)) {
                    Some(buffer) if drained.fill < fill(buffer.header.cursor) => buffer.chunks.push(drained),
                    Some(_) => {}
                    // The thread buffer was created after the snapshot.
                    None if live => {}
                    None => return Err(self.damaged(number, "a drained chunk belongs to no thread buffer")),
                },
                CHUNK_BUFFER | CHUNK_SITES | 0 => {}
                _ => return Err(self.damaged(number, "a chunk is of unknown kind")),
            }
        }
        for buffer in buffers.values_mut() {
            buffer.chunks.sort_by_key(|chunk| chunk.fill);
        }
        Ok(buffers.into_values().collect())
    }

    /// The chunks of call sites, by sequence number. If two threads created a chunk for the same number, only one of
    /// the two was used.
    fn find_sites(&self) -> Result<BTreeMap<u32, u64>, RecordError> {
        let mut sites = BTreeMap::new();
        for number in 1..self.chunks()? {
            let Some(header) = self.header(number)?.filter(|header| header.kind == CHUNK_SITES) else {
                continue;
            };
            let mut first = [0];
            self.read_u64s(number * CHUNK_BYTES as u64 + u64::from(FIRST_WORD) * 8, &mut first)?;
            if first != [0] {
                sites.insert(header.buffer, number);
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
        match self.site_chunk(sequence) {
            Some(chunk) if word + into.len() <= SITE_CHUNK_WORDS as usize => {
                self.read_u64s(chunk * CHUNK_BYTES as u64 + word as u64 * 8, into)
            }
            _ => Err(self.damaged_place(place)),
        }
    }

    /// The error for a call site that cannot be read.
    pub fn damaged_place(&self, place: u32) -> RecordError {
        let (sequence, _) = place_parts(place);
        let chunk = self.site_chunk(sequence).unwrap_or_default();
        self.damaged(chunk, "a record names a call site that does not exist")
    }

    fn site_chunk(&self, sequence: u32) -> Option<u64> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner).get(&sequence).copied()
    }

    /// Number of chunks in the file, the control chunk included.
    fn chunks(&self) -> Result<u64, RecordError> {
        let data = self.file.metadata().map_err(RecordError::io(&self.path, "read"))?;
        Ok(data.len().div_ceil(CHUNK_BYTES as u64))
    }

    /// Whether the process was running when its log was opened.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// The header of a chunk; `None` past the end of the file.
    fn header(&self, number: u64) -> Result<Option<ChunkHeader>, RecordError> {
        let mut bytes = [0; size_of::<ChunkHeader>()];
        match self.file.read_exact_at(&mut bytes, number * CHUNK_BYTES as u64) {
            Ok(()) => {}
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(why) => return Err(RecordError::io(&self.path, "read")(why)),
        }
        // SAFETY: the array has the size of ChunkHeader, for which every bit pattern is valid.
        let header = unsafe { bytes.as_ptr().cast::<ChunkHeader>().read_unaligned() };
        if words(header.cursor) > CHUNK_WORDS {
            return Err(self.damaged(number, "a chunk claims more words than fit in it"));
        }
        Ok(Some(header))
    }

    /// The error for a damaged chunk.
    pub fn damaged(&self, chunk: u64, why: &'static str) -> RecordError {
        RecordError::BadLog { path: self.path.clone(), offset: chunk * CHUNK_BYTES as u64, why }
    }

    /// Address of the counters that number the events; `None` if events have times.
    pub fn counters(&self) -> Option<u64> {
        Some(self.control.counters).filter(|&address| address != 0)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes which thread has kernel thread id `tid`.
    pub fn note_thread(&self, tid: u32, thread: u32) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).insert(tid, thread);
    }

    /// The most recent thread with kernel thread id `tid`.
    pub fn thread_of(&self, tid: u32) -> Option<u32> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).get(&tid).copied()
    }

    /// The command line of the process.
    pub fn command(&self) -> Vec<String> {
        command(&self.control)
    }

    /// Facts about the log.
    ///
    /// # Errors
    /// As for [`LogReader::look`].
    pub fn facts(&self) -> Result<Facts, RecordError> {
        let buffers = self.look(self.live)?;
        let chunks = buffers.iter().flat_map(|buffer| &buffer.chunks);
        let record_bytes = chunks.map(|chunk| chunk.words as u64 * 8).sum();
        Ok(Facts { control: Box::new(self.control), record_bytes, is_live: self.live })
    }

    /// Reads words of a chunk, from its word `from` on.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_words(&self, chunk: u64, from: usize, into: &mut [u64]) -> Result<(), RecordError> {
        let offset = chunk * CHUNK_BYTES as u64 + (WORDS_OFFSET + from * 8) as u64;
        self.read_u64s(offset, into)
    }

    /// Reads words at a byte offset.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_u64s(&self, offset: u64, into: &mut [u64]) -> Result<(), RecordError> {
        // SAFETY: these are the bytes of `into`, and every bit pattern is a valid u64.
        let bytes = unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), size_of_val(into)) };
        self.file.read_exact_at(bytes, offset).map_err(RecordError::io(&self.path, "read"))
    }
}
