//! Writing a trace file.

use super::chunk::{FOOTER_BYTES_MAX, Kind, Section};
use super::columns::Columns;
use super::storing::{SectionFile, Storing};
use super::{CHUNK_EVENTS_MAX, envelope};
use crate::error::TraceError;
use crate::event::{Event, Op};
use crate::header::{Footer, Header, Summary};
use crate::ids::ObjectIds;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A `.hkt` file being written. A file without [`TraceWriter::finish`] reads as truncated.
///
/// Ids are checked: an allocation must carry the id that [`ObjectIds`] hands out next, every other id must be live.
pub struct TraceWriter {
    path: PathBuf,
    /// `None` after an error.
    storing: Option<Storing>,
    columns: Columns,
    ids: ObjectIds,
    events: u64,
    threads: u32,
    time_ns: u64,
}

impl TraceWriter {
    /// Creates or replaces the file and writes its header.
    ///
    /// # Errors
    /// The file cannot be written, or the header is too long.
    pub fn create(path: &Path, header: &Header) -> Result<Self, TraceError> {
        let bytes = envelope::encode(path, header)?;
        let mut file = File::create(path).map_err(|why| TraceError::io(path, "create", why))?;
        file.write_all(&bytes).map_err(|why| TraceError::io(path, "write", why))?;
        Ok(TraceWriter {
            path: path.to_path_buf(),
            storing: Some(Storing::Here(SectionFile::new(path, file)?)),
            columns: Columns::new(),
            ids: ObjectIds::new(),
            events: 0,
            threads: 0,
            time_ns: 0,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Events appended so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Appends an event.
    ///
    /// # Errors
    /// The event cannot follow its predecessors (a wrong or dead object, decreasing time, a thread id that skips one, a
    /// value out of range): it is then not in the trace. Or the file cannot be written, which may show only some
    /// ten thousand events later.
    #[inline(always)]
    pub fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        let thread = event.thread.0;
        let follows = event.time_ns >= self.time_ns && thread <= self.threads && thread != u32::MAX;
        if !follows || event.flaw().is_some() || !self.follow_object(&event.op) {
            return Err(self.refusal(event));
        }
        self.columns.push(event.time_ns - self.time_ns, event);
        self.threads = self.threads.max(thread + 1);
        self.time_ns = event.time_ns;
        self.events += 1;
        if self.columns.len() == CHUNK_EVENTS_MAX { self.store_chunk() } else { Ok(()) }
    }

    /// Waits until all full chunks are written, and ends the thread that writes them; the next one begins it anew. For
    /// writers that pause, or go on at another priority.
    ///
    /// # Errors
    /// A chunk could not be written.
    pub fn settle(&mut self) -> Result<(), TraceError> {
        self.storing = Some(Storing::Here(self.storing()?.end()?));
        Ok(())
    }

    /// Writes what is pending and the footer, and says how large the trace became.
    ///
    /// # Errors
    /// The file cannot be written, or the footer is too long.
    pub fn finish(mut self, footer: &Footer) -> Result<Summary, TraceError> {
        let json = envelope::to_json(&self.path, "footer", FOOTER_BYTES_MAX, footer)?;
        let totals = self.totals();
        let mut file = self.storing()?.end()?;
        if self.columns.len() > 0 {
            file.chunk(&mut self.columns, totals)?;
        }
        file.footer(&json, totals)?;
        Ok(Summary {
            events: self.events,
            objects_peak: self.ids.peak(),
            threads: self.threads,
            duration_ns: self.time_ns,
            complete: true,
        })
    }

    /// Runs the recycler along; false, and nothing is done, where the event's object cannot be.
    #[inline(always)]
    fn follow_object(&mut self, op: &Op) -> bool {
        match *op {
            Op::Alloc { object, .. } | Op::ReallocUnknown { object, .. } => {
                object == self.ids.upcoming() && self.ids.allocate().is_some()
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => self.ids.release(object),
            _ => op.object().is_none_or(|object| self.ids.is_live(object)),
        }
    }

    /// Why the event cannot follow.
    #[cold]
    fn refusal(&self, event: &Event) -> TraceError {
        let (path, number) = (self.path.clone(), self.events);
        let &Event { time_ns, thread, .. } = event;
        if time_ns < self.time_ns {
            return TraceError::TimeDecreases { path, event: number, time_ns, previous_ns: self.time_ns };
        }
        if thread.0 > self.threads || thread.0 == u32::MAX {
            return TraceError::SparseThread { path, event: number, thread, threads: self.threads };
        }
        if let Some(why) = event.flaw() {
            return TraceError::BadEvent { path, event: number, why };
        }
        match event.op.object() {
            Some(object) if !event.op.is_birth() => TraceError::DeadObject { path, event: number, object },
            Some(object) if object != self.ids.upcoming() => {
                TraceError::WrongObject { path, event: number, object, expected: self.ids.upcoming() }
            }
            _ => TraceError::TooManyObjects,
        }
    }

    fn store_chunk(&mut self) -> Result<(), TraceError> {
        let (storing, totals) = (self.storing()?, self.totals());
        self.storing = Some(storing.take(&mut self.columns, totals)?);
        Ok(())
    }

    fn storing(&mut self) -> Result<Storing, TraceError> {
        let gone = || TraceError::io(&self.path, "write", io::Error::other("it could not be written before"));
        self.storing.take().ok_or_else(gone)
    }

    /// The header of a chunk of the pending events, but for its payload.
    fn totals(&self) -> Section {
        Section {
            kind: Kind::Chunk,
            payload_bytes: 0,
            payload_crc: 0,
            events: self.columns.len() as u32,
            events_total: self.events,
            objects_peak: self.ids.peak(),
            threads: self.threads,
            time_last_ns: self.time_ns,
        }
    }
}
