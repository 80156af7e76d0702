//! Reads one stream of a workload file, from its offset.

use super::REMEDY;
use crate::error::{Place, TraceError};
use crate::import::failure::Failure;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BUFFER_BYTES: usize = 4096;

/// An independent reader of one part of the file.
pub(super) struct Stream<'a> {
    path: &'a Path,
    file: &'a File,
    /// File offsets of the start of the stream and of the buffer.
    start: u64,
    offset: u64,
    /// File offset by which the stream must have ended.
    end: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read.
    at: usize,
}

impl<'a> Stream<'a> {
    pub(super) fn new(path: &'a Path, file: &'a File, bytes: Range<u64>) -> Self {
        Stream { path, file, start: bytes.start, offset: bytes.start, end: bytes.end, buffer: Vec::new(), at: 0 }
    }

    /// File offset of the next byte.
    pub(super) fn here(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// Bytes read.
    pub(super) fn read(&self) -> u64 {
        self.here() - self.start
    }

    /// Returns to an earlier offset.
    pub(super) fn go_back(&mut self, to: u64) {
        match to.checked_sub(self.offset) {
            Some(at) => self.at = at as usize,
            None => (self.offset, self.at) = (to, 0),
        }
        if self.at == 0 {
            self.buffer.clear();
        }
    }

    /// The code of the next operation.
    pub(super) fn code(&mut self) -> Result<u8, Failure> {
        if self.at == self.buffer.len() {
            self.offset += self.at as u64;
            self.at = 0;
            self.buffer.resize(BUFFER_BYTES, 0);
            let read = self.file.read_at(&mut self.buffer, self.offset);
            let read = read.map_err(|why| TraceError::io(self.path, "read", why))?;
            self.buffer.truncate(read);
        }
        let Some(&byte) = self.buffer.get(self.at).filter(|_| self.here() < self.end) else {
            let why = "a thread, or the header, does not end within its part of the file";
            return Err(self.refuse(why.to_string(), REMEDY));
        };
        self.at += 1;
        Ok(byte)
    }

    /// A number in base 128, highest digit first.
    pub(super) fn number(&mut self) -> Result<u64, Failure> {
        let mut value = 0u64;
        loop {
            let byte = self.code()?;
            if value >> 57 != 0 {
                return Err(self.refuse("a number above 2^64".to_string(), REMEDY));
            }
            value = value << 7 | u64::from(byte & 0x7F);
            if byte < 0x80 {
                return Ok(value);
            }
        }
    }

    /// The number of a pointer, below `end`.
    pub(super) fn pointer(&mut self, end: u64) -> Result<u64, Failure> {
        let pointer = self.number()?;
        if pointer < end.max(1) {
            return Ok(pointer);
        }
        Err(self.refuse(format!("pointer {pointer} is not below {end}, the number of pointers in the header"), REMEDY))
    }

    /// Reads a header field: `code` and its number.
    pub(super) fn announced(&mut self, code: u8) -> Result<u64, Failure> {
        let found = self.code()?;
        if found != code {
            return Err(self.refuse(format!("operation {found} in the header, expected {code}"), REMEDY));
        }
        self.number()
    }

    /// An error at the current place.
    pub(super) fn refuse(&self, why: String, remedy: &'static str) -> Failure {
        self.place(Failure::new(why, remedy))
    }

    /// Adds the current place to a failure.
    pub(super) fn place(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Trace(why) => Failure::Trace(why),
            Failure::Refused { why, remedy } => Failure::Trace(TraceError::Import {
                file: self.path.display().to_string(),
                place: Place::Byte(self.here()),
                why: why.into_owned(),
                remedy,
            }),
        }
    }
}
