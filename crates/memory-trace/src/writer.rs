//! Writes a recording.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use hksim_call_sites::{Frame, Module, SiteId, SiteTable, Sites, Stack, StackEnd};
use zstd::bulk::Compressor;

use crate::codec::Encoder;
use crate::definitions::{self, Names};
use crate::envelope::{self, to_json};
use crate::error::MemoryTraceError;
use crate::event::{Event, NameId};
use crate::header::{Footer, Header};
use crate::section::{CHUNK_BYTES_MAX, CHUNK_EVENTS_MAX, FOOTER_BYTES_MAX, Kind, SECTION_BYTES, Section};

/// A chunk ends before it can exceed the format's limit.
const CHUNK_BYTES_FULL: usize = CHUNK_BYTES_MAX as usize / 4;
const COMPRESSION_LEVEL: i32 = 3;

/// Writes events to a file. Each full chunk is written at once, so a crash loses at most the last chunk.
pub struct Writer {
    path: PathBuf,
    file: File,
    encoder: Encoder,
    zstd: Compressor<'static>,
    names: Names,
    sites: SiteTable,
    /// Modules and sites that earlier chunks define; `None` in a recording without call stacks.
    written: Option<(usize, usize)>,
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
            names: Names::default(),
            sites: SiteTable::default(),
            written: header.stack_depth.map(|_| (0, 0)),
            events: 0,
            events_total: 0,
            time_last_ns: 0,
        })
    }

    /// The number of a name for the next event; equal names have equal numbers.
    pub fn name(&mut self, name: &str) -> NameId {
        self.names.id(name)
    }

    /// The index of a module for the frames of [`Writer::site`].
    pub fn module(&mut self, module: &Module) -> u32 {
        self.sites.module(module)
    }

    /// The site of a stack for the next event: its frames, innermost first, and where it ends. Equal stacks have equal sites.
    pub fn site(&mut self, frames: impl IntoIterator<Item = Frame>, end: StackEnd) -> SiteId {
        let frames = frames.into_iter().map(|frame| self.sites.frame(frame)).collect();
        self.sites.stack(Stack { frames, end: Some(end) })
    }

    /// A call site of another recording for the next event; unknown if that recording does not have it.
    pub fn site_of(&mut self, from: &Sites, site: SiteId) -> SiteId {
        self.sites.import(from, site)
    }

    /// Appends an event. An event with an earlier time than the one before gets that one's time.
    ///
    /// # Errors
    /// A chunk cannot be written.
    pub fn push(&mut self, event: Event) -> Result<(), MemoryTraceError> {
        self.time_last_ns = self.time_last_ns.max(event.time_ns);
        let site = if self.written.is_some() { event.site } else { SiteId::UNKNOWN };
        self.encoder.push(&Event { time_ns: self.time_last_ns, site, ..event });
        self.events += 1;
        let bytes = self.encoder.bytes() + self.names.new_bytes();
        if self.events as usize == CHUNK_EVENTS_MAX || bytes >= CHUNK_BYTES_FULL {
            self.write_chunk()?;
        }
        Ok(())
    }

    /// Events so far.
    pub fn events_total(&self) -> u64 {
        self.events_total + u64::from(self.events)
    }

    /// Writes the events so far: if this process is killed, the file has them.
    ///
    /// # Errors
    /// A chunk cannot be written.
    pub fn flush(&mut self) -> Result<(), MemoryTraceError> {
        if self.events > 0 { self.write_chunk() } else { Ok(()) }
    }

    /// Writes the rest and the footer.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, footer: &Footer) -> Result<(), MemoryTraceError> {
        self.flush()?;
        let json = to_json(&self.path, "footer", FOOTER_BYTES_MAX, footer)?;
        let plain_bytes = json.len() as u32;
        self.write(Kind::Footer, plain_bytes, 0, json)
    }

    fn write_chunk(&mut self) -> Result<(), MemoryTraceError> {
        let mut sites = Vec::new();
        if let Some((modules, stacks)) = &mut self.written {
            definitions::put_sites(&mut sites, self.sites.sites(), (*modules, *stacks), &mut self.names);
            (*modules, *stacks) = (self.sites.sites().modules.len(), self.sites.sites().stacks.len());
        }
        let mut plain = self.names.take_new();
        plain.append(&mut sites);
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
