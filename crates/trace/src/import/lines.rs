//! The lines of a text trace, with the place of each for error messages.

use super::Kind;
use crate::error::TraceError;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

/// Longer lines belong to no known format.
const LINE_BYTES_MAX: u64 = 4096;

/// Lines that are neither blank nor comments (`#`).
pub(super) struct Lines<'a> {
    path: PathBuf,
    member: Option<String>,
    reader: Box<dyn BufRead + 'a>,
    bytes: Vec<u8>,
    /// The line read last, trimmed; handed out again if `peeked`.
    line: String,
    number: u64,
    peeked: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(path: &Path, member: Option<String>, reader: Box<dyn BufRead + 'a>) -> Self {
        let path = path.to_path_buf();
        Lines { path, member, reader, bytes: Vec::new(), line: String::new(), number: 0, peeked: false }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The format: `given`, if there is one and a line, else the one that the first line fits.
    pub(super) fn kind(&mut self, given: Option<Kind>) -> Result<Option<Kind>, TraceError> {
        let plain = self.member.is_none();
        let first = self.peek()?;
        Ok(match (given, first) {
            (Some(kind), Some(_)) if plain => Some(kind),
            (given, Some(line)) => Kind::recognise(line).filter(|&kind| given.is_none_or(|given| kind == given)),
            (_, None) => None,
        })
    }

    /// The next line, which the next call of [`Lines::next`] returns once more.
    pub(super) fn peek(&mut self) -> Result<Option<&str>, TraceError> {
        let found = self.next()?.is_some();
        self.peeked = found;
        Ok(found.then_some(self.line.as_str()))
    }

    /// The next line, without white space around it.
    pub(super) fn next(&mut self) -> Result<Option<&str>, TraceError> {
        if std::mem::take(&mut self.peeked) {
            return Ok(Some(&self.line));
        }
        loop {
            self.bytes.clear();
            let mut line = (&mut self.reader).take(LINE_BYTES_MAX);
            let length = line.read_until(b'\n', &mut self.bytes);
            let length = length.map_err(|why| TraceError::io(&self.path, "read", why))?;
            if length == 0 {
                return Ok(None);
            }
            self.number += 1;
            if length as u64 == LINE_BYTES_MAX {
                return Err(self.error("the line is longer than 4095 bytes", "this is no text trace"));
            }
            let Ok(text) = std::str::from_utf8(&self.bytes) else {
                return Err(self.error("the line is not text", "this is no text trace"));
            };
            let text = text.trim();
            if !text.is_empty() && !text.starts_with('#') {
                self.line.clear();
                self.line.push_str(text);
                return Ok(Some(&self.line));
            }
        }
    }

    /// An error at the line read last.
    pub(super) fn error(&self, why: impl Into<String>, mend: &'static str) -> TraceError {
        let file = match &self.member {
            Some(member) => format!("{}!{member}", self.path.display()),
            None => self.path.display().to_string(),
        };
        TraceError::Import { file, line: self.number, why: why.into(), mend }
    }

    /// Number of lines read, and the archive's member.
    pub(super) fn end(self) -> (u64, Option<String>) {
        (self.number, self.member)
    }
}
