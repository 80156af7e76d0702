//! Reads a recording.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hksim_call_sites::Sites;
use hksim_recording_files::open_regular;
use zstd::bulk::Decompressor;

use crate::codec::{Decoder, Defined};
use crate::definitions;
use crate::envelope;
use crate::error::MemoryTraceError;
use crate::event::{Event, NameId};
use crate::header::{Footer, Header};
use crate::section::{Kind, SECTION_BYTES, Section};

/// Reads the events of a file, chunk by chunk.
pub struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    header: Header,
    footer: Option<Footer>,
    names: Vec<Arc<str>>,
    sites: Sites,
    zstd: Decompressor<'static>,
    packed: Vec<u8>,
    offset: u64,
    events: u64,
    is_at_end: bool,
}

impl Reader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// The file cannot be read, or is no recording.
    pub fn open(path: &Path) -> Result<Self, MemoryTraceError> {
        let why = "it is not a regular file";
        let file = open_regular(path).map_err(|why| MemoryTraceError::io(path, "open", why))?;
        let file = file.ok_or_else(|| MemoryTraceError::NotARecording { path: path.to_path_buf(), why })?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let (header, offset) = envelope::read(path, &mut file)?;
        let zstd = Decompressor::new().map_err(|why| MemoryTraceError::io(path, "decompress", why))?;
        let path = path.to_path_buf();
        let (names, sites, packed) = (Vec::new(), Sites::default(), Vec::new());
        Ok(Self { path, file, header, footer: None, names, sites, zstd, packed, offset, events: 0, is_at_end: false })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The footer, after [`Reader::next_chunk`] has returned false. `None` if the file ends early: the recorder was
    /// killed, or the disk was full. Its events are valid.
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    /// A name that an event of an earlier chunk or of this chunk refers to.
    pub fn name(&self, id: NameId) -> &str {
        self.names.get(id.0 as usize).map_or("", |name| name)
    }

    /// The call sites of earlier chunks and of this one.
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// Events read so far.
    pub fn events_total(&self) -> u64 {
        self.events
    }

    /// Replaces `events` with those of the next chunk. False at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn next_chunk(&mut self, events: &mut Vec<Event>) -> Result<bool, MemoryTraceError> {
        events.clear();
        if self.is_at_end {
            return Ok(false);
        }
        let Some(section) = self.section()? else {
            self.is_at_end = true;
            return Ok(false);
        };
        match section.kind {
            Kind::Chunk => {
                let plain = self.zstd.decompress(&self.packed, section.plain_bytes as usize);
                let plain = plain.ok().filter(|plain| plain.len() == section.plain_bytes as usize);
                let plain = plain.ok_or_else(|| self.damaged("a chunk cannot be decompressed"))?;
                self.decode(&plain, section.events, events)?;
                self.events = section.events_total;
            }
            Kind::Footer => {
                let footer = serde_json::from_slice(&self.packed);
                self.footer = Some(footer.map_err(|_| self.damaged("the footer is not valid JSON"))?);
                self.is_at_end = true;
            }
        }
        self.offset += (SECTION_BYTES + self.packed.len()) as u64;
        Ok(!self.is_at_end)
    }

    /// Reads the next section header and its payload. `None` if the file ends before the payload does.
    fn section(&mut self) -> Result<Option<Section>, MemoryTraceError> {
        let mut bytes = [0; SECTION_BYTES];
        if !self.fill(&mut bytes)? {
            return Ok(None);
        }
        let section = Section::parse(&bytes).ok_or_else(|| self.damaged("this is not a section"))?;
        section.check_after(self.events).map_err(|why| self.damaged(why))?;
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        let wanted = u64::from(section.payload_bytes);
        let got = self.file.by_ref().take(wanted).read_to_end(&mut packed);
        self.packed = packed;
        if got.map_err(|why| MemoryTraceError::io(&self.path, "read", why))? as u64 != wanted {
            return Ok(None);
        }
        if crc32fast::hash(&self.packed) != section.payload_crc {
            return Err(self.damaged("wrong checksum"));
        }
        Ok(Some(section))
    }

    fn decode(&mut self, plain: &[u8], count: u32, events: &mut Vec<Event>) -> Result<(), MemoryTraceError> {
        let mut rest = plain;
        let has_sites = self.header.stack_depth.is_some();
        // Without call sites, each name was new in an event of the chunk.
        let names_max = if has_sites { rest.len() as u64 } else { u64::from(count) };
        definitions::take_names(&mut rest, names_max, &mut self.names)
            .ok_or_else(|| self.damaged("the names of a chunk are damaged"))?;
        if has_sites {
            definitions::take_sites(&mut rest, &self.names, &mut self.sites)
                .ok_or_else(|| self.damaged("the call sites of a chunk are damaged"))?;
        }
        let defined = Defined { names: self.names.len() as u32, sites: self.sites.stacks.len() as u32 };
        let mut decoder = Decoder::new(rest, defined);
        for _ in 0..count {
            events.push(decoder.next().ok_or_else(|| self.damaged("an event is damaged"))?);
        }
        if decoder.is_at_end() { Ok(()) } else { Err(self.damaged("a chunk has more bytes than events")) }
    }

    /// Bytes after the footer, which do not belong to a recording.
    pub(crate) fn bytes_after_footer(&mut self) -> Result<u64, MemoryTraceError> {
        let copied = std::io::copy(&mut self.file, &mut std::io::sink());
        copied.map_err(|why| MemoryTraceError::io(&self.path, "read", why))
    }

    /// Offset of the part that is read next.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Fills a buffer. False if the file ends first.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, MemoryTraceError> {
        match self.file.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(why) => Err(MemoryTraceError::io(&self.path, "read", why)),
        }
    }

    fn damaged(&self, why: &'static str) -> MemoryTraceError {
        MemoryTraceError::Damaged { path: self.path.clone(), offset: self.offset, why, events: self.events }
    }
}
