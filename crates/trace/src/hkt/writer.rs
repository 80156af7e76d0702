//! Writing a trace file.

use super::chunk::{FOOTER_BYTES_MAX, Kind, SECTION_BYTES, Section};
use super::column::ColumnEncoder;
use super::columns::Columns;
use super::{CHUNK_EVENTS_MAX, envelope};
use crate::error::TraceError;
use crate::event::{Event, ObjectId, Op};
use crate::header::{Footer, Header, Summary};
use crate::ids::ObjectIds;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A `.hkt` file being written. A file without [`TraceWriter::finish`] reads as truncated.
///
/// Ids are checked: an allocation must carry the id that [`ObjectIds`] hands out next, every other id must be live.
pub struct TraceWriter {
    path: PathBuf,
    file: File,
    encoder: ColumnEncoder,
    columns: Columns,
    ids: ObjectIds,
    section_bytes: Vec<u8>,
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
            file,
            encoder: ColumnEncoder::new().map_err(|why| TraceError::io(path, "compress", why))?,
            columns: Columns::new(),
            ids: ObjectIds::new(),
            section_bytes: Vec::new(),
            events: 0,
            threads: 0,
            time_ns: 0,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an event.
    ///
    /// # Errors
    /// The event cannot follow its predecessors (a wrong or dead object, decreasing time, a thread id that skips one, a
    /// value out of range), or the file cannot be written. The event is then not in the trace.
    #[inline]
    pub fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        let Some(delta_ns) = event.time_ns.checked_sub(self.time_ns) else {
            let (path, time_ns, previous_ns) = (self.path.clone(), event.time_ns, self.time_ns);
            return Err(TraceError::TimeDecreases { path, event: self.events, time_ns, previous_ns });
        };
        if event.thread.0 > self.threads || event.thread.0 == u32::MAX {
            let (path, thread, threads) = (self.path.clone(), event.thread, self.threads);
            return Err(TraceError::SparseThread { path, event: self.events, thread, threads });
        }
        if let Some(why) = event.flaw() {
            return Err(TraceError::BadEvent { path: self.path.clone(), event: self.events, why });
        }
        self.follow_object(&event.op)?;
        self.columns.push(delta_ns, event);
        self.threads = self.threads.max(event.thread.0 + 1);
        self.time_ns = event.time_ns;
        self.events += 1;
        if self.columns.len() == CHUNK_EVENTS_MAX { self.write_chunk() } else { Ok(()) }
    }

    /// Writes what is pending and the footer, and says how large the trace became.
    ///
    /// # Errors
    /// The file cannot be written, or the footer is too long.
    pub fn finish(mut self, footer: &Footer) -> Result<Summary, TraceError> {
        if self.columns.len() > 0 {
            self.write_chunk()?;
        }
        let json = envelope::to_json(&self.path, "footer", FOOTER_BYTES_MAX, footer)?;
        self.section_bytes.clear();
        self.section_bytes.resize(SECTION_BYTES, 0);
        self.section_bytes.extend_from_slice(&json);
        self.write_section(Kind::Footer, 0)?;
        Ok(Summary {
            events: self.events,
            objects_peak: self.ids.peak(),
            threads: self.threads,
            duration_ns: self.time_ns,
            complete: true,
        })
    }

    /// Runs the recycler along and checks the event's object against it.
    fn follow_object(&mut self, op: &Op) -> Result<(), TraceError> {
        match *op {
            Op::Alloc { object, .. } | Op::ReallocUnknown { object, .. } => {
                let expected = self.ids.upcoming();
                if object != expected {
                    return Err(TraceError::WrongObject {
                        path: self.path.clone(),
                        event: self.events,
                        object,
                        expected,
                    });
                }
                self.ids.allocate().map(|_| ()).ok_or(TraceError::TooManyObjects)
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => {
                if self.ids.release(object) {
                    Ok(())
                } else {
                    Err(self.dead(object))
                }
            }
            Op::Realloc { object, .. }
            | Op::ReallocFailed { object, .. }
            | Op::UsableSize { object }
            | Op::Touch { object, .. } => {
                if self.ids.is_live(object) {
                    Ok(())
                } else {
                    Err(self.dead(object))
                }
            }
            Op::FreeNull
            | Op::FreeUnknown
            | Op::AllocFailed { .. }
            | Op::ThreadStart
            | Op::ThreadExit
            | Op::Fork { .. }
            | Op::Exec
            | Op::Mark { .. } => Ok(()),
        }
    }

    fn dead(&self, object: ObjectId) -> TraceError {
        TraceError::DeadObject { path: self.path.clone(), event: self.events, object }
    }

    fn write_chunk(&mut self) -> Result<(), TraceError> {
        self.section_bytes.clear();
        self.section_bytes.resize(SECTION_BYTES, 0);
        self.columns.encode(&mut self.encoder, &mut self.section_bytes);
        let events = self.columns.len() as u32;
        self.columns.clear();
        self.write_section(Kind::Chunk, events)
    }

    /// Writes `section_bytes` with its header filled in, in one call, so that a crash tears at most the last section.
    fn write_section(&mut self, kind: Kind, events: u32) -> Result<(), TraceError> {
        let (header, payload) = self.section_bytes.split_at_mut(SECTION_BYTES);
        let section = Section {
            kind,
            payload_bytes: payload.len() as u32,
            payload_crc: crc32fast::hash(payload),
            events,
            events_total: self.events,
            objects_peak: self.ids.peak(),
            threads: self.threads,
            time_last_ns: self.time_ns,
        };
        header.copy_from_slice(&section.to_bytes());
        self.file.write_all(&self.section_bytes).map_err(|why| TraceError::io(&self.path, "write", why))
    }
}
