//! Reads a trace file as an [`EventSource`].

use super::assemble::{BadEvent, Cursor};
use super::chunk::{SECTION_BYTES, Section};
use super::column::ColumnDecoder;
use super::columns::Columns;
use super::skim::{OnDamage, Tail, skim};
use super::{CHUNK_EVENTS_MAX, Version, envelope};
use crate::error::TraceError;
use crate::event::Event;
use crate::header::{Footer, Header, Summary};
use crate::ids::ObjectIds;
use crate::source::{BATCH_EVENTS_MAX, EventSource};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A `.hkt` file being read. The memory used does not depend on the length of the trace.
///
/// [`TraceReader::open`] allocates all buffers, and the first pass touches them. So a second pass after
/// [`EventSource::rewind`] allocates nothing and takes no page fault: it can run while page faults are counted.
pub struct TraceReader {
    path: PathBuf,
    file: File,
    version: Version,
    header: Header,
    summary: Summary,
    checksum: u32,
    footer: Footer,
    tail: Option<Tail>,
    chunks_start: u64,
    chunks_end: u64,
    decoder: ColumnDecoder,
    payload: Vec<u8>,
    columns: Columns,
    ids: ObjectIds,
    events: Vec<Event>,
    cursor: Cursor,
    /// Offset and number of the chunk in `columns`, and of the next chunk.
    at: u64,
    chunk: u64,
    next_at: u64,
    next_chunk: u64,
    /// Set after an error: the columns may be inconsistent and must not be read.
    over: bool,
    /// Header of the chunk in `columns`, and the totals before that chunk.
    section: Section,
    before: Section,
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
        // Checked before the file is opened: opening a pipe would wait for a writer.
        let metadata = match std::fs::metadata(path) {
            // Other programs read `-` as standard input.
            Err(_) if path.as_os_str() == "-" => return Err(TraceError::NotAFile { path: path.to_path_buf() }),
            metadata => metadata.map_err(|why| TraceError::io(path, "open", why))?,
        };
        if !metadata.is_file() {
            return Err(TraceError::NotAFile { path: path.to_path_buf() });
        }
        let file = File::open(path).map_err(|why| TraceError::io(path, "open", why))?;
        let (version, header, chunks_start) = envelope::read(path, &file)?;
        let found = skim(path, &file, chunks_start, on_damage)?;
        Ok(TraceReader {
            path: path.to_path_buf(),
            file,
            version,
            header,
            summary: found.summary,
            checksum: found.checksum,
            footer: found.footer,
            tail: found.tail,
            chunks_start,
            chunks_end: found.end,
            decoder: ColumnDecoder::new(CHUNK_EVENTS_MAX).map_err(|why| TraceError::io(path, "decompress", why))?,
            payload: vec![0; found.payload_bytes_max as usize],
            columns: Columns::new(),
            ids: ObjectIds::with_capacity(found.summary.objects_peak),
            events: Vec::with_capacity(BATCH_EVENTS_MAX),
            cursor: Cursor::default(),
            at: chunks_start,
            chunk: 0,
            next_at: chunks_start,
            next_chunk: 0,
            over: false,
            section: Section::start(),
            before: Section::start(),
        })
    }

    /// The unused end of an incomplete file; `None` for a complete one.
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// Reads and decodes the next chunk. False at the end.
    fn load_chunk(&mut self) -> Result<bool, TraceError> {
        if self.next_at >= self.chunks_end {
            return Ok(false);
        }
        self.before = self.section;
        self.at = self.next_at;
        self.chunk = self.next_chunk;
        let mut bytes = [0; SECTION_BYTES];
        self.read(Span::Section(&mut bytes))?;
        let section =
            Section::parse(&bytes).ok_or_else(|| self.corrupt("the chunk header changed since the file was opened"))?;
        section.check_after(&self.before).map_err(|why| self.corrupt(why))?;
        if section.payload_bytes as usize > self.payload.len() {
            return Err(self.corrupt("the chunk grew since the file was opened"));
        }
        self.read(Span::Payload(section.payload_bytes as usize))?;
        let payload = &self.payload[..section.payload_bytes as usize];
        if crc32fast::hash(payload) != section.payload_crc {
            return Err(self.corrupt("wrong checksum"));
        }
        self.columns.decode(&mut self.decoder, self.version, payload).map_err(|why| self.corrupt(why))?;
        self.check_totals(&section)?;
        self.section = section;
        self.cursor = Cursor::at(self.before.time_last_ns);
        self.next_at = self.at + (SECTION_BYTES + section.payload_bytes as usize) as u64;
        self.next_chunk = self.chunk + 1;
        Ok(true)
    }

    /// Fills `events` with the next events. False at the end.
    fn fill_batch(&mut self) -> Result<bool, TraceError> {
        if self.cursor.event() == self.columns.len() && !self.load_chunk()? {
            return Ok(false);
        }
        self.events.clear();
        if let Err(bad) = self.cursor.fill(&self.columns, &mut self.ids, &mut self.events) {
            return Err(self.bad_event(bad));
        }
        if self.ids.peak() > self.section.objects_peak {
            return Err(self.corrupt("more objects are live than the section header allows"));
        }
        Ok(true)
    }

    /// Checks the columns against the totals of the section header, which determine the sizes of tables.
    fn check_totals(&self, section: &Section) -> Result<(), TraceError> {
        if self.columns.len() != section.events as usize {
            return Err(self.corrupt("the number of events differs from the section header"));
        }
        if self.columns.threads() > section.threads as u64 {
            return Err(self.corrupt("a thread id is above those in the section header"));
        }
        let time_last_ns =
            self.columns.duration_ns().and_then(|duration| self.before.time_last_ns.checked_add(duration));
        if time_last_ns != Some(section.time_last_ns) {
            return Err(self.corrupt("the last time differs from the section header"));
        }
        Ok(())
    }

    fn read(&mut self, span: Span<'_>) -> Result<(), TraceError> {
        let (bytes, offset) = match span {
            Span::Section(bytes) => (bytes.as_mut_slice(), self.at),
            Span::Payload(length) => (&mut self.payload[..length], self.at + SECTION_BYTES as u64),
        };
        self.file.read_exact_at(bytes, offset).map_err(|why| TraceError::io(&self.path, "read", why))
    }

    fn corrupt(&self, why: &str) -> TraceError {
        TraceError::Corrupt {
            path: self.path.clone(),
            offset: self.at,
            chunk: self.chunk,
            events_before: self.before.events_total,
            why: why.to_string(),
        }
    }

    fn bad_event(&self, bad: BadEvent) -> TraceError {
        let event = self.before.events_total + self.cursor.event() as u64;
        match bad {
            BadEvent::Dead(object) => TraceError::DeadObject { path: self.path.clone(), event, object },
            BadEvent::Flaw(why) => self.corrupt(&format!("event {event}: {why}")),
        }
    }
}

/// Which part of a chunk to read.
enum Span<'a> {
    Section(&'a mut [u8; SECTION_BYTES]),
    Payload(usize),
}

impl EventSource for TraceReader {
    fn next_batch(&mut self) -> Result<Option<&[Event]>, TraceError> {
        if self.over {
            return Ok(None);
        }
        match self.fill_batch() {
            Ok(true) => Ok(Some(&self.events)),
            Ok(false) => Ok(None),
            Err(why) => {
                self.over = true;
                Err(why)
            }
        }
    }

    fn header(&self) -> &Header {
        &self.header
    }

    fn checksum(&self) -> Option<u32> {
        Some(self.checksum)
    }

    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn footer(&self) -> &Footer {
        &self.footer
    }

    fn rewind(&mut self) -> Result<(), TraceError> {
        self.columns.clear();
        self.ids.clear();
        self.cursor = Cursor::default();
        self.section = Section::start();
        self.before = Section::start();
        self.next_at = self.chunks_start;
        self.next_chunk = 0;
        self.over = false;
        Ok(())
    }
}
