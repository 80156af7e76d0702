//! Reads a stream of accesses written by a valgrind tool, with one order for all threads of a process.
//!
//! Two tools write such streams. hksim's own tool writes 64-bit words (layout in `tools/valgrind-touch/hktouch.c`).
//! lackey, which is part of valgrind, writes a line of text for each access and each instruction.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use hksim_trace::event::Access;

use crate::error::RecordError;
use crate::written_file;

const BUFFER_BYTES: usize = 1 << 20;
/// Maximum length of a line of lackey; longer lines are not lackey's and are skipped.
const LINE_BYTES_MAX: usize = 1 << 12;

const ADDRESS_BITS: u32 = 47;
const BYTES_BITS: u32 = 15;
const KIND_READ: u64 = 0;
const KIND_WRITE: u64 = 1;
const KIND_MODIFY: u64 = 2;
const RUNS: u64 = 1;
const CREATED: u64 = 2;

/// An item of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// The running thread accesses memory.
    Access {
        /// First byte.
        address: u64,
        /// Bytes, above 0.
        bytes: u64,
        /// Read or write.
        access: Access,
    },
    /// The thread with this valgrind number runs now.
    Runs(u32),
    /// A new thread has this valgrind number from now on.
    Created(u32),
}

/// An open stream.
pub struct Stream {
    reader: BufReader<File>,
    path: PathBuf,
    form: Form,
    /// The write of an access that reads and then writes.
    second: Option<Item>,
    line: Vec<u8>,
}

/// The format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// 64-bit words, written by hksim's own tool.
    Words,
    /// lackey, with `--trace-mem=yes --trace-sched=yes`.
    Lackey,
}

impl Stream {
    /// Opens a stream; `None` if there is none.
    ///
    /// # Errors
    /// The file exists and cannot be opened.
    pub fn open(path: &Path, form: Form) -> Result<Option<Self>, RecordError> {
        match written_file::open(path) {
            Ok(file) => {
                let reader = BufReader::with_capacity(BUFFER_BYTES, file);
                Ok(Some(Self { reader, path: path.to_path_buf(), form, second: None, line: Vec::new() }))
            }
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
            Err(why) => Err(RecordError::io(path, "open")(why)),
        }
    }

    /// The next item; `None` at the end. An incomplete last item is dropped.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next(&mut self) -> Result<Option<Item>, RecordError> {
        if let Some(item) = self.second.take() {
            return Ok(Some(item));
        }
        match self.form {
            Form::Words => self.next_word(),
            Form::Lackey => self.next_line(),
        }
    }

    fn next_word(&mut self) -> Result<Option<Item>, RecordError> {
        let mut bytes = [0; 8];
        match self.reader.read_exact(&mut bytes) {
            Ok(()) => Ok(Some(self.item_of(u64::from_le_bytes(bytes)))),
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(why) => Err(RecordError::io(&self.path, "read")(why)),
        }
    }

    fn item_of(&mut self, word: u64) -> Item {
        let address = word & ((1 << ADDRESS_BITS) - 1);
        let bytes = (word >> ADDRESS_BITS) & ((1 << BYTES_BITS) - 1);
        match word >> (ADDRESS_BITS + BYTES_BITS) {
            KIND_READ => Item::Access { address, bytes, access: Access::Read },
            KIND_WRITE => Item::Access { address, bytes, access: Access::Write },
            KIND_MODIFY => self.modify(address, bytes),
            _ if bytes == CREATED => Item::Created(address as u32),
            _ => {
                debug_assert!(bytes == RUNS, "the tool writes nothing else");
                Item::Runs(address as u32)
            }
        }
    }

    fn modify(&mut self, address: u64, bytes: u64) -> Item {
        self.second = Some(Item::Access { address, bytes, access: Access::Write });
        Item::Access { address, bytes, access: Access::Read }
    }

    fn next_line(&mut self) -> Result<Option<Item>, RecordError> {
        loop {
            self.line.clear();
            let mut limited = (&mut self.reader).take(LINE_BYTES_MAX as u64);
            let read = limited.read_until(b'\n', &mut self.line).map_err(RecordError::io(&self.path, "read"))?;
            if read == 0 {
                return Ok(None);
            }
            let line = std::mem::take(&mut self.line);
            let item = self.item_of_line(&line);
            self.line = line;
            if item.is_some() {
                return Ok(item);
            }
        }
    }

    /// ` L ADDRESS,BYTES` (load), ` S` (store) or ` M` (both), or the scheduler's
    /// `--PID--   SCHED[THREAD]:  acquired lock (WHY)`.
    fn item_of_line(&mut self, line: &[u8]) -> Option<Item> {
        match line {
            [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => {
                let (address, bytes) = address_and_bytes(rest)?;
                Some(match kind {
                    b'L' => Item::Access { address, bytes, access: Access::Read },
                    b'S' => Item::Access { address, bytes, access: Access::Write },
                    _ => self.modify(address, bytes),
                })
            }
            [b'-', b'-', ..] => self.scheduled(std::str::from_utf8(line).ok()?),
            _ => None,
        }
    }

    fn scheduled(&mut self, line: &str) -> Option<Item> {
        let (_, rest) = line.split_once("--   SCHED[")?;
        let (thread, what) = rest.split_once("]:")?;
        let thread = thread.parse().ok()?;
        let why = what.trim_start().strip_prefix("acquired lock")?;
        if why.contains("starting new thread") {
            self.second = Some(Item::Runs(thread));
            return Some(Item::Created(thread));
        }
        Some(Item::Runs(thread))
    }
}

/// `ADDRESS,BYTES`, the address in hexadecimal.
fn address_and_bytes(text: &[u8]) -> Option<(u64, u64)> {
    let (address, bytes) = std::str::from_utf8(text).ok()?.trim_end().split_once(',')?;
    let (address, bytes) = (u64::from_str_radix(address, 16).ok()?, bytes.parse::<u64>().ok()?);
    (bytes > 0).then_some((address, bytes))
}
