//! Reads a trace file as an [`EventSource`].

use super::batch::{Batch, BatchPosition};
use super::chunk_reader::ChunkReader;
use super::skim::{OnDamage, Tail};
use crate::error::TraceError;
use crate::event::Event;
use crate::header::{Footer, Header, Summary};
use crate::source::{BATCH_EVENTS_MAX, EventSource};
use std::path::Path;

/// A `.hkt` file being read. The memory used does not depend on the length of the trace.
///
/// [`TraceReader::open`] and the first pass allocate all buffers and touch them. So a second pass after
/// [`EventSource::rewind`] allocates nothing and takes no page fault: it can run while page faults are counted.
pub struct TraceReader {
    chunks: ChunkReader,
    /// For [`EventSource::next_batch`]: the last chunk, how many of its events were returned, and the last of these.
    batch: Batch,
    position: BatchPosition,
    events: Vec<Event>,
}

impl TraceReader {
    /// Opens a trace and reads its header, footer and chunk headers. Decompresses nothing.
    ///
    /// # Errors
    /// Not a regular file, not a trace, a newer version, or damage before the last chunk. A file that is truncated or
    /// torn at its end is not an error: see [`TraceReader::tail`].
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::open_with(path, OnDamage::Refuse)
    }

    /// Opens the part before the first damaged chunk header, as if the file ended there.
    ///
    /// # Errors
    /// As for [`TraceReader::open`], except for damage.
    pub fn open_before_damage(path: &Path) -> Result<Self, TraceError> {
        Self::open_with(path, OnDamage::StopBefore)
    }

    fn open_with(path: &Path, on_damage: OnDamage) -> Result<Self, TraceError> {
        Ok(TraceReader {
            chunks: ChunkReader::open_with(path, on_damage)?,
            batch: Batch::new(),
            position: BatchPosition::default(),
            events: Vec::with_capacity(BATCH_EVENTS_MAX),
        })
    }

    /// The unused end of an incomplete file; `None` for a complete one.
    pub fn tail(&self) -> Option<&Tail> {
        self.chunks.tail.as_ref()
    }

    /// Copies the next events of `batch` to `events`. False if all were returned.
    fn expand(&mut self) -> bool {
        self.events.clear();
        let mut reader = self.batch.read_from(self.position);
        reader.events(BATCH_EVENTS_MAX, &mut self.events);
        self.position = reader.position();
        !self.events.is_empty()
    }
}

impl EventSource for TraceReader {
    fn next_batch(&mut self) -> Result<Option<&[Event]>, TraceError> {
        while !self.expand() {
            self.position = BatchPosition::default();
            if !self.chunks.load(&mut self.batch)? {
                return Ok(None);
            }
        }
        Ok(Some(&self.events))
    }

    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        if self.expand() {
            batch.copy_from(&self.events);
            return Ok(true);
        }
        self.chunks.load(batch)
    }

    fn header(&self) -> &Header {
        &self.chunks.header
    }

    fn checksum(&self) -> Option<u32> {
        Some(self.chunks.checksum)
    }

    fn summary(&self) -> &Summary {
        &self.chunks.summary
    }

    fn footer(&self) -> &Footer {
        &self.chunks.footer
    }

    fn rewind(&mut self) -> Result<(), TraceError> {
        self.batch.clear();
        self.position = BatchPosition::default();
        self.chunks.rewind();
        Ok(())
    }
}
