//! Reads the chunks of a trace file into batches.

use super::assemble::BadEvent;
use super::batch::Batch;
use super::chunk::{SECTION_BYTES, Section};
use super::column::ColumnDecoder;
use super::columns::Columns;
use super::skim::{OnDamage, Tail, skim};
use super::{CHUNK_EVENTS_MAX, Version, envelope};
use crate::error::TraceError;
use crate::header::{Footer, Header, Summary};
use crate::ids::ObjectIds;
use hksim_recording_files as recording_files;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The chunks of a trace file, and everything known about the file before the first chunk.
pub(super) struct ChunkReader {
    path: PathBuf,
    file: File,
    version: Version,
    pub(super) header: Header,
    pub(super) summary: Summary,
    pub(super) checksum: u32,
    pub(super) footer: Footer,
    pub(super) tail: Option<Tail>,
    chunks_start: u64,
    chunks_end: u64,
    decoder: ColumnDecoder,
    payload: Vec<u8>,
    ids: ObjectIds,
    /// Offset and number of the last chunk, and of the next chunk.
    at: u64,
    chunk: u64,
    next_at: u64,
    next_chunk: u64,
    /// The first bad event, if the events before it were returned and it was not reported yet.
    bad: Option<TraceError>,
    /// Set after an error.
    over: bool,
    /// Header of the last chunk, and the totals before that chunk.
    section: Section,
    before: Section,
}

impl ChunkReader {
    /// Opens a trace and reads its header, footer and chunk headers. Decompresses nothing.
    ///
    /// # Errors
    /// Those of [`super::TraceReader::open`]; damage depends on `on_damage`.
    pub(super) fn open_with(path: &Path, on_damage: OnDamage) -> Result<Self, TraceError> {
        let file = match recording_files::open_regular(path) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(TraceError::NotAFile { path: path.to_path_buf() }),
            // Other programs read `-` as standard input.
            Err(_) if path.as_os_str() == "-" => return Err(TraceError::NotAFile { path: path.to_path_buf() }),
            Err(why) => return Err(TraceError::io(path, "open", why)),
        };
        let (version, header, chunks_start) = envelope::read(path, &file)?;
        let found = skim(path, &file, chunks_start, on_damage)?;
        Ok(ChunkReader {
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
            ids: ObjectIds::with_capacity(found.summary.objects_peak),
            at: chunks_start,
            chunk: 0,
            next_at: chunks_start,
            next_chunk: 0,
            bad: None,
            over: false,
            section: Section::start(),
            before: Section::start(),
        })
    }

    /// Replaces the contents of `batch` by the next chunk, up to its first bad event, which the next call reports.
    /// False at the end and after an error.
    pub(super) fn load(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        let loaded = match self.bad.take() {
            Some(bad) => Err(bad),
            None if self.over => Ok(false),
            None => self.load_chunk(batch),
        };
        self.over |= loaded.is_err();
        if !matches!(loaded, Ok(true)) {
            batch.clear();
        }
        loaded
    }

    /// Reads and decodes the next chunk, up to its first bad event. If the result is not true, `batch` is inconsistent.
    fn load_chunk(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
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
        if section.payload_bytes as usize > self.payload.len() || section.objects_peak > self.summary.objects_peak {
            return Err(self.corrupt("the chunk grew since the file was opened"));
        }
        self.read(Span::Payload(section.payload_bytes as usize))?;
        let payload = &self.payload[..section.payload_bytes as usize];
        if crc32fast::hash(payload) != section.payload_crc {
            return Err(self.corrupt("wrong checksum"));
        }
        let Batch { columns, assembled, before_ns, last_ns } = batch;
        columns.decode(&mut self.decoder, self.version, payload).map_err(|why| self.corrupt(why))?;
        self.check_totals(columns, &section)?;
        (*before_ns, *last_ns) = (self.before.time_last_ns, section.time_last_ns);
        if let Err(bad) = assembled.assemble(columns, &mut self.ids, *before_ns, section.objects_peak) {
            let bad = self.bad_event(bad, batch.len());
            if batch.is_empty() {
                return Err(bad);
            }
            self.bad = Some(bad);
        }
        self.section = section;
        self.next_at = self.at + (SECTION_BYTES + section.payload_bytes as usize) as u64;
        self.next_chunk = self.chunk + 1;
        Ok(true)
    }

    /// Returns to the first chunk.
    pub(super) fn rewind(&mut self) {
        self.bad = None;
        self.ids.clear();
        self.section = Section::start();
        self.before = Section::start();
        self.next_at = self.chunks_start;
        self.next_chunk = 0;
        self.over = false;
    }

    /// Checks the columns against the totals of the section header, which determine the sizes of tables.
    fn check_totals(&self, columns: &Columns, section: &Section) -> Result<(), TraceError> {
        if columns.len() != section.events as usize {
            return Err(self.corrupt("the number of events differs from the section header"));
        }
        if columns.threads() > section.threads as u64 {
            return Err(self.corrupt("a thread id is above those in the section header"));
        }
        let time_last_ns = columns.duration_ns().and_then(|duration| self.before.time_last_ns.checked_add(duration));
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

    /// The error for event `index` of the chunk.
    fn bad_event(&self, bad: BadEvent, index: usize) -> TraceError {
        let event = self.before.events_total + index as u64;
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
