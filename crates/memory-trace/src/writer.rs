//! Writes a recording.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use zstd::bulk::Compressor;

use crate::codec::Encoder;
use crate::envelope::{self, to_json};
use crate::error::MemoryTraceError;
use crate::event::{Event, NameId};
use crate::header::{Footer, Header};
use crate::section::{CHUNK_BYTES_MAX, CHUNK_EVENTS_MAX, FOOTER_BYTES_MAX, Kind, SECTION_BYTES, Section};
use crate::varint::put;

/// Maximum length of a name in bytes; the rest is cut off.
const NAME_BYTES_MAX: usize = 4096;
/// A chunk ends before it can exceed the format's limit.
const CHUNK_BYTES_FULL: usize = CHUNK_BYTES_MAX as usize / 4;
const COMPRESSION_LEVEL: i32 = 3;

/// Writes events to a file. Each full chunk is written at once, so a crash loses at most the last chunk.
pub struct Writer {
    path: PathBuf,
    file: File,
    encoder: Encoder,
    zstd: Compressor<'static>,
    names: HashMap<String, NameId>,
    new_names: Vec<u8>,
    new_names_count: u64,
    events: u32,
    events_total: u64,
    time_last_ns: u64,
}

impl Writer {
    /// Creates the file and writes its header.
    ///
    /// # Errors
    /// The file cannot be created or written, or the header is longer than the format allows.
    pub fn create(path: &Path, header: &Header) -> Result<Self, MemoryTraceError> {
        let mut file = File::create(path).map_err(|why| MemoryTraceError::io(path, "create", why))?;
        let bytes = envelope::encode(path, header)?;
        file.write_all(&bytes).map_err(|why| MemoryTraceError::io(path, "write", why))?;
        let zstd = Compressor::new(COMPRESSION_LEVEL).map_err(|why| MemoryTraceError::io(path, "compress", why))?;
        Ok(Self {
            path: path.to_path_buf(),
            file,
            encoder: Encoder::default(),
            zstd,
            names: HashMap::new(),
            new_names: Vec::new(),
            new_names_count: 0,
            events: 0,
            events_total: 0,
            time_last_ns: 0,
        })
    }

    /// The number of a name for the next event; equal names have equal numbers.
    pub fn name(&mut self, name: &str) -> NameId {
        let name = shortened(name);
        if let Some(&id) = self.names.get(name) {
            return id;
        }
        let id = NameId(self.names.len() as u32);
        self.names.insert(name.to_string(), id);
        put(&mut self.new_names, name.len() as u64);
        self.new_names.extend_from_slice(name.as_bytes());
        self.new_names_count += 1;
        id
    }

    /// Appends an event. An event with an earlier time than the one before gets that one's time.
    ///
    /// # Errors
    /// A chunk cannot be written.
    pub fn push(&mut self, event: Event) -> Result<(), MemoryTraceError> {
        self.time_last_ns = self.time_last_ns.max(event.time_ns);
        self.encoder.push(&Event { time_ns: self.time_last_ns, ..event });
        self.events += 1;
        let bytes = self.encoder.bytes() + self.new_names.len();
        if self.events as usize == CHUNK_EVENTS_MAX || bytes >= CHUNK_BYTES_FULL {
            self.write_chunk()?;
        }
        Ok(())
    }

    /// Events so far.
    pub fn events_total(&self) -> u64 {
        self.events_total + u64::from(self.events)
    }

    /// Writes the rest and the footer.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, footer: &Footer) -> Result<(), MemoryTraceError> {
        if self.events > 0 {
            self.write_chunk()?;
        }
        let json = to_json(&self.path, "footer", FOOTER_BYTES_MAX, footer)?;
        let plain_bytes = json.len() as u32;
        self.write(Kind::Footer, plain_bytes, 0, json)
    }

    fn write_chunk(&mut self) -> Result<(), MemoryTraceError> {
        let mut plain = Vec::new();
        put(&mut plain, std::mem::take(&mut self.new_names_count));
        plain.append(&mut self.new_names);
        plain.append(&mut self.encoder.finish());
        let packed = self.zstd.compress(&plain).map_err(|why| MemoryTraceError::io(&self.path, "compress", why))?;
        let events = std::mem::take(&mut self.events);
        self.events_total += u64::from(events);
        self.write(Kind::Chunk, plain.len() as u32, events, packed)
    }

    fn write(&mut self, kind: Kind, plain_bytes: u32, events: u32, payload: Vec<u8>) -> Result<(), MemoryTraceError> {
        let section = Section {
            kind,
            payload_bytes: payload.len() as u32,
            payload_crc: crc32fast::hash(&payload),
            plain_bytes,
            events,
            events_total: self.events_total,
            time_last_ns: self.time_last_ns,
        };
        let mut bytes = Vec::with_capacity(SECTION_BYTES + payload.len());
        bytes.extend_from_slice(&section.to_bytes());
        bytes.extend_from_slice(&payload);
        self.file.write_all(&bytes).map_err(|why| MemoryTraceError::io(&self.path, "write", why))
    }
}

/// The name, cut off at a character boundary.
fn shortened(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}
