//! A page fault on a watched page, and its file format.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use hksim_trace::event::Access;

use crate::error::RecordError;

/// Bytes of a fault in a file.
pub const FAULT_BYTES: usize = 32;
/// Bytes read from the file at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// A page fault. Its file format is little-endian: time, page with the access in its low bits, instruction, thread id,
/// zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub time_ns: u64,
    /// First address of the page.
    pub page: u64,
    /// The attempted access; `None` if the kernel did not report it.
    pub access: Option<Access>,
    /// Address of the instruction.
    pub instruction: u64,
    /// Kernel thread id.
    pub tid: u32,
}

impl Fault {
    /// The file format of the fault.
    pub fn to_bytes(self) -> [u8; FAULT_BYTES] {
        let access = match self.access {
            None => 0,
            Some(Access::Read) => 1,
            Some(Access::Write) => 2,
        };
        let mut bytes = [0; FAULT_BYTES];
        let words = [self.time_ns, self.page | access, self.instruction, u64::from(self.tid)];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; FAULT_BYTES]) -> Self {
        let mut words = [0; FAULT_BYTES / 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().unwrap_or_default());
        }
        let [time_ns, page, instruction, tid] = words;
        let access = match page & 3 {
            1 => Some(Access::Read),
            2 => Some(Access::Write),
            _ => None,
        };
        Self { time_ns, page: page & !3, access, instruction, tid: tid as u32 }
    }
}

/// Reads the faults of a process, in the order of their file. An incomplete last fault (full disk) is dropped.
pub struct FaultReader {
    /// `None` for a process without faults.
    file: Option<BufReader<File>>,
}

impl FaultReader {
    /// Opens the file, which need not exist.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        match File::open(path) {
            Ok(file) => Ok(Self { file: Some(BufReader::with_capacity(BUFFER_BYTES, file)) }),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(Self { file: None }),
            Err(why) => Err(RecordError::io(path, "open")(why)),
        }
    }
}

impl Iterator for FaultReader {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        let mut bytes = [0; FAULT_BYTES];
        self.file.as_mut()?.read_exact(&mut bytes).ok()?;
        Some(Fault::from_bytes(&bytes))
    }
}
