//! Reads only the section headers and the footer of a file, to get its totals and the end of its chunks without
//! decompressing.

use super::chunk::{Kind, SECTION_BYTES, Section};
use crate::error::TraceError;
use crate::header::{Footer, Summary, from_json};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The unusable end of an incomplete file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where it begins: the end of the last undamaged chunk.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// What is wrong with it.
    pub why: &'static str,
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the trace ends early at byte {} ({}; {} bytes unused)", self.offset, self.why, self.bytes)
    }
}

/// The result of a skim.
pub(super) struct Skim {
    pub(super) summary: Summary,
    /// CRC-32 of the file header and all section headers, each without its own CRC.
    pub(super) checksum: u32,
    pub(super) footer: Footer,
    pub(super) tail: Option<Tail>,
    /// Largest payload of a chunk: the length of the reader's buffer.
    pub(super) payload_bytes_max: u32,
    /// Offset of the end of the chunks.
    pub(super) end: u64,
}

/// What to do if the trace continues after damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDamage {
    /// Return an error.
    Refuse,
    /// End the trace before the damage.
    StopBefore,
}

/// Skims the sections of `file` from `start` on.
pub(super) fn skim(path: &Path, file: &File, start: u64, on_damage: OnDamage) -> Result<Skim, TraceError> {
    let file_bytes = file.metadata().map_err(|why| TraceError::io(path, "inspect", why))?.len();
    let checksum = crc32fast::Hasher::new();
    let last = Section::start();
    let mut walk = Walk { path, file, file_bytes, offset: start, chunk: 0, last, payload_bytes_max: 0, checksum };
    let mut header = vec![0; start as usize];
    walk.read(&mut header, 0)?;
    walk.checksum.update(without_crc(&header));
    let end = match walk.run() {
        Err(TraceError::Corrupt { .. }) if on_damage == OnDamage::StopBefore => End::Early("damage follows"),
        end => end?,
    };
    let (footer, tail) = match end {
        End::Footer(footer) => (*footer, None),
        End::Early(why) => {
            (Footer::default(), Some(Tail { offset: walk.offset, bytes: file_bytes - walk.offset, why }))
        }
    };
    let summary = Summary {
        events: walk.last.events_total,
        objects_peak: walk.last.objects_peak,
        threads: walk.last.threads,
        duration_ns: walk.last.time_last_ns,
        complete: tail.is_none() && footer.quality.lost() == 0,
    };
    let (payload_bytes_max, end) = (walk.payload_bytes_max, walk.offset);
    Ok(Skim { summary, checksum: walk.checksum.finalize(), footer, tail, payload_bytes_max, end })
}

/// The bytes of a header that go into the checksum: all but its own CRC-32. The CRC-32 of any data followed by its own
/// CRC-32 is a constant, so the checksum would not depend on the header.
fn without_crc(part: &[u8]) -> &[u8] {
    &part[..part.len() - 4]
}

enum End {
    Footer(Box<Footer>),
    Early(&'static str),
}

struct Walk<'a> {
    path: &'a Path,
    file: &'a File,
    file_bytes: u64,
    /// End of the last chunk read.
    offset: u64,
    /// Number of the chunk at `offset`.
    chunk: u64,
    last: Section,
    payload_bytes_max: u32,
    checksum: crc32fast::Hasher,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<End, TraceError> {
        // Offset of the last chunk read, and the totals before that chunk.
        let mut previous = None;
        loop {
            let Some(section) = self.section_at(self.offset)? else {
                return self.no_section(previous);
            };
            section.check_after(&self.last).map_err(|why| self.corrupt(why))?;
            let payload = self.offset + SECTION_BYTES as u64;
            let end = payload + section.payload_bytes as u64;
            if end > self.file_bytes {
                return self.early("the file ends within a section", previous);
            }
            if section.kind == Kind::Footer {
                self.checksum.update(without_crc(&section.to_bytes()));
                return match self.footer(&section, payload, end)? {
                    Some(footer) => Ok(End::Footer(Box::new(footer))),
                    None => self.early("the footer is damaged", previous),
                };
            }
            previous = Some((self.offset, self.last));
            self.checksum.update(without_crc(&section.to_bytes()));
            self.last = section;
            self.payload_bytes_max = self.payload_bytes_max.max(section.payload_bytes);
            self.offset = end;
            self.chunk += 1;
        }
    }

    /// Handles an offset without a valid section header: the file is truncated, torn or damaged here.
    fn no_section(&mut self, previous: Option<(u64, Section)>) -> Result<End, TraceError> {
        if self.section_follows()? {
            return Err(self.corrupt("the chunk header is damaged"));
        }
        let cut = self.offset == self.file_bytes;
        self.early(if cut { "no footer follows" } else { "the next chunk is not whole" }, previous)
    }

    /// Ends the trace here. A torn write can leave the last chunk with a valid header and a damaged payload: such a
    /// chunk is dropped.
    fn early(&mut self, why: &'static str, last_chunk: Option<(u64, Section)>) -> Result<End, TraceError> {
        let Some((offset, before)) = last_chunk else {
            return Ok(End::Early(why));
        };
        if self.payload_is_whole(offset)? {
            return Ok(End::Early(why));
        }
        (self.offset, self.last) = (offset, before);
        self.chunk -= 1;
        Ok(End::Early("the last chunk is damaged"))
    }

    /// The section header at `offset`; `None` if there is no valid one.
    fn section_at(&self, offset: u64) -> Result<Option<Section>, TraceError> {
        if self.file_bytes.saturating_sub(offset) < SECTION_BYTES as u64 {
            return Ok(None);
        }
        let mut bytes = [0; SECTION_BYTES];
        self.read(&mut bytes, offset)?;
        Ok(Section::parse(&bytes))
    }

    /// Whether a valid section header follows anywhere after the current offset.
    fn section_follows(&self) -> Result<bool, TraceError> {
        const STEP: u64 = 1 << 16;
        let mut block = vec![0; STEP as usize + SECTION_BYTES - 1];
        let mut offset = self.offset + 1;
        while offset + SECTION_BYTES as u64 <= self.file_bytes {
            let length = (self.file_bytes - offset).min(block.len() as u64) as usize;
            self.read(&mut block[..length], offset)?;
            let sections = block[..length].windows(SECTION_BYTES);
            if sections.filter_map(|window| window.try_into().ok()).any(|bytes| Section::parse(bytes).is_some()) {
                return Ok(true);
            }
            offset += STEP;
        }
        Ok(false)
    }

    fn payload_is_whole(&self, offset: u64) -> Result<bool, TraceError> {
        let Some(section) = self.section_at(offset)? else {
            return Ok(false);
        };
        let mut payload = vec![0; section.payload_bytes as usize];
        self.read(&mut payload, offset + SECTION_BYTES as u64)?;
        Ok(crc32fast::hash(&payload) == section.payload_crc)
    }

    /// The footer; `None` if its bytes are damaged.
    fn footer(&self, section: &Section, payload: u64, end: u64) -> Result<Option<Footer>, TraceError> {
        if end != self.file_bytes {
            return Err(self.corrupt("bytes follow the footer"));
        }
        let mut json = vec![0; section.payload_bytes as usize];
        self.read(&mut json, payload)?;
        if crc32fast::hash(&json) != section.payload_crc {
            return Ok(None);
        }
        from_json(&json).map(Some).map_err(|_| self.corrupt("the footer's JSON is not valid"))
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), TraceError> {
        self.file.read_exact_at(bytes, offset).map_err(|why| TraceError::io(self.path, "read", why))
    }

    fn corrupt(&self, why: &str) -> TraceError {
        TraceError::Corrupt {
            path: self.path.to_path_buf(),
            offset: self.offset,
            chunk: self.chunk,
            events_before: self.last.events_total,
            why: why.to_string(),
        }
    }
}
