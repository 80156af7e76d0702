//! Reads the records of one thread buffer from its chunks.

use std::sync::Arc;

use crate::encoding::{ESCAPE_WORDS, RECORD_WORDS, Record, Regions, read_escape};
use crate::error::RecordError;
use crate::event_log::{CHUNK_BYTES, NESTED_OFFSET, NESTED_RECORDS};
use crate::log_reader::{BufferChunks, FilledChunk, LogReader};
use crate::plain_calls::PlainCalls;
use crate::stamps::BufferClock;

/// Number of words read from the file at a time.
const WINDOW_WORDS: usize = 2048;

/// Whether all records of a thread buffer are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All records are available.
    Whole,
    /// All records before this time in nanoseconds are available, and perhaps some later records.
    Until(u64),
}

/// The records of one thread buffer, in program order.
pub struct BufferReader {
    pub log: Arc<LogReader>,
    buffer: BufferChunks,
    extent: Extent,
    regions: Regions,
    /// Index of the chunk being read in `buffer.chunks`.
    chunk: usize,
    /// Number of that chunk's words that were copied into the window.
    taken: usize,
    window: Vec<u64>,
    /// Number of the window's words that are decoded.
    used: usize,
    /// Whether a fill is missing before the present one.
    after_gap: bool,
}

impl BufferReader {
    /// Reads `buffer` from its first record.
    pub fn new(log: Arc<LogReader>, buffer: BufferChunks, extent: Extent) -> Self {
        let after_gap = buffer.chunks.first().is_some_and(|chunk| chunk.fill != 0);
        let (regions, window) = (Regions::new(), Vec::new());
        Self { log, buffer, extent, regions, chunk: 0, taken: 0, window, used: 0, after_gap }
    }

    /// Chunk number of the buffer in the log.
    pub fn number(&self) -> u64 {
        self.buffer.own
    }

    /// Whether the buffer is complete.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Time stamp counter at the end of the buffer's last thread; 0 if unknown.
    pub fn ended_ticks(&self) -> u64 {
        self.buffer.header.ended_ticks
    }

    /// Whether records were missing since the last call of this function.
    pub fn take_gap(&mut self) -> bool {
        std::mem::take(&mut self.after_gap)
    }

    /// Updates the reader to a newer snapshot of the same buffer.
    pub fn extend(&mut self, buffer: BufferChunks, extent: Extent) {
        if let Some(fill) = self.buffer.chunks.get(self.chunk).map(|chunk| chunk.fill) {
            self.chunk = buffer.chunks.partition_point(|chunk| chunk.fill < fill);
            if buffer.chunks.get(self.chunk).is_none_or(|chunk| chunk.fill != fill) {
                self.after_gap = true; // the rest of that fill was lost
                self.begin_chunk();
            }
        }
        (self.buffer, self.extent) = (buffer, extent);
    }

    /// Decodes the common calls of `thread` that are in the window, up to the first other record. Returns that record,
    /// if it was decoded.
    pub fn read_plain(&mut self, plain: &mut PlainCalls, thread: u32, clock: &mut BufferClock) -> Option<Record> {
        let words = self.window.get(self.used..)?;
        let decoded = plain.decode(words, thread, clock, &mut self.regions);
        self.used += decoded.words;
        decoded.other
    }

    /// The next record; `None` at the end, or if the process has not written it yet.
    ///
    /// # Errors
    /// The log cannot be read or is damaged.
    pub fn next_record(&mut self) -> Result<Option<Record>, RecordError> {
        loop {
            if let Some((record, used)) = self.regions.decode(self.window.get(self.used..).unwrap_or_default()) {
                self.used += used;
                return Ok(Some(record));
            }
            let Some(&chunk) = self.buffer.chunks.get(self.chunk) else {
                return Ok(None);
            };
            if self.taken < chunk.words {
                if self.window.len() - self.used >= RECORD_WORDS {
                    return Err(self.log.damaged(chunk.number, "its records cannot be read"));
                }
                self.refill(&chunk)?;
            } else if self.used < self.window.len() {
                return Err(self.log.damaged(chunk.number, "its last record is cut off"));
            } else if self.extent != Extent::Whole && chunk.number == self.buffer.own {
                return Ok(None); // the process is still filling the chunk
            } else {
                self.chunk += 1;
                let next = self.buffer.chunks.get(self.chunk);
                self.after_gap |= next.is_some_and(|next| next.fill != chunk.fill.wrapping_add(1));
                self.begin_chunk();
            }
        }
    }

    /// The nested records that the thread did not fetch.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn nested_records(&self) -> Result<Vec<Record>, RecordError> {
        let nested = (self.buffer.header.nested as usize).min(NESTED_RECORDS);
        let mut words = vec![0; nested * ESCAPE_WORDS];
        let offset = self.buffer.own * CHUNK_BYTES as u64 + NESTED_OFFSET as u64;
        self.log.read_u64s(offset, &mut words)?;
        Ok(words.chunks_exact(ESCAPE_WORDS).filter_map(read_escape).collect())
    }

    /// Moves the remaining words of the window to its front, and refills the window.
    fn refill(&mut self, chunk: &FilledChunk) -> Result<(), RecordError> {
        self.window.drain(..self.used);
        self.used = 0;
        let rest = self.window.len();
        let more = (chunk.words - self.taken).min(WINDOW_WORDS - rest);
        self.window.resize(rest + more, 0);
        let from = self.taken;
        if let Some(empty) = self.window.get_mut(rest..) {
            let snapshot = self.buffer.snapshot.as_ref().filter(|_| chunk.number == self.buffer.own);
            match snapshot.and_then(|words| words.get(from..from + more)) {
                Some(words) => empty.copy_from_slice(words),
                None => self.log.read_words(chunk.number, from, empty)?,
            }
        }
        self.taken += more;
        Ok(())
    }

    fn begin_chunk(&mut self) {
        self.taken = 0;
        self.used = 0;
        self.window.clear();
        self.regions = Regions::new();
    }
}
