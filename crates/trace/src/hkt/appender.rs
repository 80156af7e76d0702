//! Appends events to a file in chunks. The caller ensures that the events are valid and in order.

use super::chunk::{FOOTER_BYTES_MAX, Kind, Section};
use super::chunk_writer::{ChunkWriter, SectionFile};
use super::columns::Columns;
use super::{CHUNK_EVENTS_MAX, envelope};
use crate::error::TraceError;
use crate::event::Event;
use crate::header::{Footer, Header, Summary};
use crate::resolve::Resolved;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file being written, without checks of its events.
pub(super) struct Appender {
    pub(super) path: PathBuf,
    /// `None` after an error.
    chunk_writer: Option<ChunkWriter>,
    columns: Columns,
    pub(super) events: u64,
    pub(super) threads: u32,
    pub(super) time_ns: u64,
    /// All ids used are below it.
    objects_peak: u32,
}

impl Appender {
    /// Creates or replaces the file and writes its header.
    pub(super) fn create(path: &Path, header: &Header) -> Result<Self, TraceError> {
        let bytes = envelope::encode(path, header)?;
        let mut file = File::create(path).map_err(|why| TraceError::io(path, "create", why))?;
        file.write_all(&bytes).map_err(|why| TraceError::io(path, "write", why))?;
        Ok(Appender {
            path: path.to_path_buf(),
            chunk_writer: Some(ChunkWriter::Inline(SectionFile::new(path, file)?)),
            columns: Columns::new(),
            events: 0,
            threads: 0,
            time_ns: 0,
            objects_peak: 0,
        })
    }

    /// Appends an event. The caller has checked that it can follow the previous one. An error may concern an earlier
    /// chunk.
    #[inline(always)]
    pub(super) fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        self.columns.push(event.time_ns - self.time_ns, event);
        self.threads = self.threads.max(event.thread.0 + 1);
        self.time_ns = event.time_ns;
        self.events += 1;
        if event.op.creates_object() {
            self.objects_peak = self.objects_peak.max(event.op.object().map_or(0, |object| object.0 + 1));
        }
        if self.room() == 0 { self.store_chunk() } else { Ok(()) }
    }

    /// Number of events that still fit into the chunk. At least one between calls.
    fn room(&self) -> usize {
        CHUNK_EVENTS_MAX - self.columns.len()
    }

    /// Appends events. The caller has checked that they can follow the previous one. An error may concern an earlier
    /// chunk.
    pub(super) fn push_all(&mut self, mut events: &[Resolved]) -> Result<(), TraceError> {
        while !events.is_empty() {
            let (now, later) = events.split_at(events.len().min(self.room()));
            self.columns.push_all(self.time_ns, now);
            for event in now {
                self.threads = self.threads.max(event.thread + 1);
                self.objects_peak = self.objects_peak.max(event.object + 1);
            }
            self.time_ns = now.last().map_or(self.time_ns, |last| last.time_ns);
            self.events += now.len() as u64;
            if self.room() == 0 {
                self.store_chunk()?;
            }
            events = later;
        }
        Ok(())
    }

    /// Waits until all full chunks are written, and ends the thread that writes them. The next full chunk starts a new
    /// thread.
    pub(super) fn settle(&mut self) -> Result<(), TraceError> {
        self.chunk_writer = Some(ChunkWriter::Inline(self.chunk_writer()?.end()?));
        Ok(())
    }

    /// Writes the pending events and the footer. Returns the size of the trace.
    pub(super) fn finish(mut self, footer: &Footer) -> Result<Summary, TraceError> {
        let json = envelope::to_json(&self.path, "footer", FOOTER_BYTES_MAX, footer)?;
        let totals = self.totals();
        let mut file = self.chunk_writer()?.end()?;
        if self.columns.len() > 0 {
            file.chunk(&mut self.columns, totals)?;
        }
        file.footer(&json, totals)?;
        Ok(Summary {
            events: self.events,
            objects_peak: self.objects_peak,
            threads: self.threads,
            duration_ns: self.time_ns,
            complete: footer.quality.lost() == 0,
        })
    }

    #[inline(never)]
    fn store_chunk(&mut self) -> Result<(), TraceError> {
        let (chunk_writer, totals) = (self.chunk_writer()?, self.totals());
        self.chunk_writer = Some(chunk_writer.take(&mut self.columns, totals)?);
        Ok(())
    }

    fn chunk_writer(&mut self) -> Result<ChunkWriter, TraceError> {
        let gone = || TraceError::io(&self.path, "write", io::Error::other("an earlier write failed"));
        self.chunk_writer.take().ok_or_else(gone)
    }

    /// The section header for the pending events. The payload fields are not set.
    fn totals(&self) -> Section {
        Section {
            kind: Kind::Chunk,
            payload_bytes: 0,
            payload_crc: 0,
            events: self.columns.len() as u32,
            events_total: self.events,
            objects_peak: self.objects_peak,
            threads: self.threads,
            time_last_ns: self.time_ns,
        }
    }
}
