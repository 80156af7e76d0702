//! Compresses and writes full chunks in order, on a separate thread.
//!
//! Compressing the events takes as long as producing them, so both run in parallel. The thread starts after the first
//! full chunk.

use super::chunk::{Kind, SECTION_BYTES, Section};
use super::column::ColumnEncoder;
use super::columns::{Columns, MethodsByColumn};
use crate::error::TraceError;
use std::fs::File;
use std::io::Write;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// Maximum number of chunks handed to the thread: one being written, one waiting.
const IN_FLIGHT_MAX: usize = 2;

/// A file to which sections are appended.
pub(super) struct SectionFile {
    path: PathBuf,
    file: File,
    encoder: ColumnEncoder,
    methods: Box<MethodsByColumn>,
    bytes: Vec<u8>,
}

impl SectionFile {
    /// A writer that appends to `file`; `path` is for errors.
    pub(super) fn new(path: &Path, file: File) -> Result<Self, TraceError> {
        let encoder = ColumnEncoder::new().map_err(|why| TraceError::io(path, "compress", why))?;
        Ok(SectionFile { path: path.to_path_buf(), file, encoder, methods: Box::default(), bytes: Vec::new() })
    }

    /// Appends a chunk and clears its columns. `section` has all fields set except those of the payload.
    pub(super) fn chunk(&mut self, columns: &mut Columns, section: Section) -> Result<(), TraceError> {
        self.bytes.clear();
        self.bytes.resize(SECTION_BYTES, 0);
        columns.drain_to(&mut self.encoder, &mut self.methods, &mut self.bytes);
        self.write(section)
    }

    /// Appends the footer.
    pub(super) fn footer(&mut self, json: &[u8], section: Section) -> Result<(), TraceError> {
        self.bytes.clear();
        self.bytes.resize(SECTION_BYTES, 0);
        self.bytes.extend_from_slice(json);
        self.write(Section { kind: Kind::Footer, events: 0, ..section })
    }

    /// Writes header and payload with one call, so that a crash damages at most the last section.
    fn write(&mut self, section: Section) -> Result<(), TraceError> {
        let (header, payload) = self.bytes.split_at_mut(SECTION_BYTES);
        let payload_bytes = payload.len() as u32;
        let section = Section { payload_bytes, payload_crc: crc32fast::hash(payload), ..section };
        header.copy_from_slice(&section.to_bytes());
        self.file.write_all(&self.bytes).map_err(|why| TraceError::io(&self.path, "write", why))
    }
}

/// How chunks are written.
pub(super) enum ChunkWriter {
    /// On the calling thread, up to the first full chunk.
    Inline(SectionFile),
    /// On a separate thread.
    Threaded(WriterThread),
}

/// The thread, and the channels for full and empty columns.
pub(super) struct WriterThread {
    full: Sender<(Columns, Section)>,
    empty: Receiver<Columns>,
    in_flight: usize,
    thread: JoinHandle<Result<SectionFile, TraceError>>,
}

impl ChunkWriter {
    /// Takes a full chunk and leaves `columns` empty. An error may concern an earlier chunk. After an error nothing
    /// more can be written.
    pub(super) fn take(self, columns: &mut Columns, section: Section) -> Result<Self, TraceError> {
        match self {
            ChunkWriter::Inline(mut file) => {
                file.chunk(columns, section)?;
                Self::start(file)
            }
            ChunkWriter::Threaded(mut threaded) => match threaded.exchange(columns, section) {
                true => Ok(ChunkWriter::Threaded(threaded)),
                false => threaded.end().map(ChunkWriter::Inline),
            },
        }
    }

    /// Waits until all chunks are written, and returns the file.
    pub(super) fn end(self) -> Result<SectionFile, TraceError> {
        match self {
            ChunkWriter::Inline(file) => Ok(file),
            ChunkWriter::Threaded(threaded) => threaded.end(),
        }
    }

    fn start(mut file: SectionFile) -> Result<Self, TraceError> {
        let path = file.path.clone();
        let (full, to_store) = channel::<(Columns, Section)>();
        let (stored, empty) = channel();
        let store = move || {
            for (mut columns, section) in to_store {
                file.chunk(&mut columns, section)?;
                // At the end the receiver is gone.
                let _ = stored.send(columns);
            }
            Ok(file)
        };
        let thread = thread::Builder::new().name("hkt chunks".into()).spawn(store);
        let thread = thread.map_err(|why| TraceError::io(&path, "start a thread to write", why))?;
        Ok(ChunkWriter::Threaded(WriterThread { full, empty, in_flight: 0, thread }))
    }
}

impl WriterThread {
    /// Exchanges full columns for empty ones, and waits if none are free. False if the thread has stopped.
    fn exchange(&mut self, columns: &mut Columns, section: Section) -> bool {
        let empty = if self.in_flight < IN_FLIGHT_MAX {
            self.in_flight += 1;
            Columns::new()
        } else {
            match self.empty.recv() {
                Ok(empty) => empty,
                Err(_) => return false,
            }
        };
        self.full.send((std::mem::replace(columns, empty), section)).is_ok()
    }

    fn end(self) -> Result<SectionFile, TraceError> {
        drop(self.full);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}
