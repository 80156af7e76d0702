//! The input of a converter: bytes or lines, and the current position for error messages.

use super::failure::Failure;
use crate::error::{Place, TraceError};
use std::cell::Cell;
use std::io::{self, BufRead, Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Number of first bytes by which a format is recognised.
const HEAD_BYTES: u64 = 16 << 10;

/// Maximum length of a line. No known format of another program has longer ones.
const LINE_BYTES_MAX: u64 = 4096;

/// Longest line of [`Lines::Table`]: a footer of 2^26 quotes, each doubled.
const ROW_BYTES_MAX: u64 = (1 << 27) + 4096;

/// Maximum length of the text before the first event: far above what programs print while they start.
const EVENTLESS_BYTES_MAX: u64 = 64 << 20;

/// The mark that some programs write before text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A source file, or a member of an archive, decompressed while it is read.
pub(super) struct Input<'a> {
    path: PathBuf,
    member: Option<String>,
    /// Whether the bytes come from a decompressor.
    packed: bool,
    reader: Box<dyn BufRead + 'a>,
    /// Lines read.
    line: u64,
    /// Bytes read.
    offset: u64,
    bytes: Vec<u8>,
    any_event: AnyEvent,
}

/// Whether the source has any event so far: an allocator call of any process, or a page fault. Shared by the input, which
/// gives up without one, and whoever receives the events.
#[derive(Clone, Debug, Default)]
pub(super) struct AnyEvent(Rc<Cell<bool>>);

impl AnyEvent {
    /// Notes that there is one.
    pub(super) fn found(&self) {
        self.0.set(true);
    }

    /// Whether there is one.
    pub(super) fn is_found(&self) -> bool {
        self.0.get()
    }
}

/// How [`Input::line`] handles comments and long lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// Skips comments (`#`). A line that is too long is an error.
    Strict,
    /// For files to which other programs also write. Returns every line and truncates lines that are too long.
    Mixed,
    /// For hksim's own tables. Their rows can be long, as they contain a trace's header and footer.
    Table,
}

impl Lines {
    fn bytes_max(self) -> u64 {
        if self == Lines::Table { ROW_BYTES_MAX } else { LINE_BYTES_MAX }
    }
}

/// The first bytes of a source, from which a [`super::Format`] is recognised.
pub(super) struct Head {
    bytes: Vec<u8>,
    /// Whether the source may continue after these bytes.
    more: bool,
}

impl<'a> Input<'a> {
    /// `packed`: whether the bytes come from a decompressor.
    pub(super) fn new(path: &Path, member: Option<String>, packed: bool, reader: Box<dyn BufRead + 'a>) -> Self {
        let path = path.to_path_buf();
        Input { path, member, packed, reader, line: 0, offset: 0, bytes: Vec::new(), any_event: AnyEvent::default() }
    }

    /// Whether the source has any event so far.
    pub(super) fn any_event(&self) -> AnyEvent {
        self.any_event.clone()
    }

    /// The file, without the member.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The archive's member.
    pub(super) fn member(&self) -> Option<&str> {
        self.member.as_deref()
    }

    /// Number of lines read.
    pub(super) fn lines_read(&self) -> u64 {
        self.line
    }

    /// Number of bytes read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.offset
    }

    /// The first bytes, without consuming them.
    pub(super) fn head(&mut self) -> Result<Head, TraceError> {
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(HEAD_BYTES).read_to_end(&mut bytes);
        // Damage after the first byte is reported with its position when the converter reads the damaged place.
        if let (Err(why), true) = (read, bytes.is_empty()) {
            return Err(self.place_error(self.read_failure(why)));
        }
        let reader = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(Cursor::new(bytes.clone()).chain(reader));
        Ok(Head { more: bytes.len() as u64 == HEAD_BYTES, bytes })
    }

    /// The next line that is not blank, without surrounding white space. Invalid UTF-8 is replaced by U+FFFD.
    pub(super) fn line(&mut self, lines: Lines) -> Result<Option<&str>, Failure> {
        loop {
            self.bytes.clear();
            let bytes_max = lines.bytes_max();
            let length = (&mut self.reader).take(bytes_max).read_until(b'\n', &mut self.bytes);
            let length = length.map_err(|why| self.read_failure(why))?;
            if length == 0 {
                return Ok(None);
            }
            self.line += 1;
            self.offset += length as u64;
            // A row of a table can be longer: it may hold a trace's header and footer.
            if self.offset > EVENTLESS_BYTES_MAX.max(2 * bytes_max) && !self.any_event.is_found() {
                let why = format!("{} MiB without an allocator call or page fault", self.offset >> 20);
                return Err(Failure::new(why, "name the format with --from, or give the file that has them"));
            }
            if length as u64 == bytes_max && self.bytes.last() != Some(&b'\n') {
                if lines != Lines::Mixed {
                    let why = format!("the line is longer than {} bytes", bytes_max - 1);
                    return Err(Failure::new(why, "this is not a text trace"));
                }
                let skipped = self.reader.skip_until(b'\n').map_err(|why| self.read_failure(why))?;
                self.offset += skipped as u64;
            }
            if self.line == 1 && self.bytes.starts_with(BYTE_ORDER_MARK) {
                self.bytes.drain(..BYTE_ORDER_MARK.len());
            }
            let text = self.bytes.trim_ascii();
            if !text.is_empty() && (lines == Lines::Mixed || !text.starts_with(b"#")) {
                break;
            }
        }
        if std::str::from_utf8(&self.bytes).is_err() {
            self.bytes = String::from_utf8_lossy(&self.bytes).into_owned().into_bytes();
        }
        Ok(std::str::from_utf8(&self.bytes).ok().map(str::trim))
    }

    /// Fills `to`. Returns the number of bytes, which is less than the length of `to` only at the end of the input.
    pub(super) fn fill(&mut self, to: &mut [u8]) -> Result<usize, Failure> {
        let mut filled = 0;
        while filled < to.len() {
            match self.reader.read(&mut to[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => (),
                Err(why) => return Err(self.read_failure(why)),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    /// The next byte; `None` at the end.
    pub(super) fn byte(&mut self) -> Result<Option<u8>, Failure> {
        let next = self.reader.fill_buf().map(|bytes| bytes.first().copied());
        let next = next.map_err(|why| self.read_failure(why))?;
        if next.is_some() {
            self.reader.consume(1);
            self.offset += 1;
        }
        Ok(next)
    }

    /// Whether all input was read.
    pub(super) fn is_at_end(&mut self) -> Result<bool, Failure> {
        let left = self.reader.fill_buf().map(|bytes| bytes.len());
        Ok(left.map_err(|why| self.read_failure(why))? == 0)
    }

    /// The failure for a read error: the system's error for a plain file, damaged data for a compressed one.
    fn read_failure(&self, why: io::Error) -> Failure {
        if self.packed {
            return Failure::new(format!("the compressed data is truncated or damaged ({why})"), "take another copy");
        }
        Failure::Trace(TraceError::io(&self.path, "read", why))
    }

    /// Adds the current place to a failure: the line, if the converter reads lines; else the offset.
    pub(super) fn place_error(&self, failure: Failure) -> TraceError {
        let (why, remedy) = match failure {
            Failure::Trace(why) => return why,
            Failure::Refused { why, remedy } => (why.into_owned(), remedy),
        };
        let file = match &self.member {
            Some(member) => format!("{}!{member}", self.path.display()),
            None => self.path.display().to_string(),
        };
        let place = if self.line > 0 { Place::Line(self.line) } else { Place::Byte(self.offset) };
        TraceError::Import { file, place, why, remedy }
    }
}

impl Head {
    /// The first 16 KiB, or all bytes if there are fewer.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The lines that are neither blank nor comments (`#`), without surrounding white space. A line that is incomplete
    /// at the end of the head is omitted.
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        let bytes = self.bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.bytes);
        let whole = match bytes.iter().rposition(|&byte| byte == b'\n') {
            Some(end) if self.more => &bytes[..end],
            _ => bytes,
        };
        let lines = whole.split(|&byte| byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        lines.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
    }
}
