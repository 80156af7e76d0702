//! A process that is being read.

use std::fs;
use std::io::{self, ErrorKind};

use crate::error::InspectError;

/// A process, identified so that another one with the same id is noticed.
#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    /// The name that the kernel shows (`comm`).
    pub name: String,
    /// `/proc/PID/status`.
    status: String,
    began: Identity,
}

/// What tells a process and its program from others with the same id.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    /// Its start, in clock ticks since boot.
    start: Option<u64>,
    /// Where exec put the program's code.
    code: Option<u64>,
    stack: Option<u64>,
}

impl Process {
    /// Opens a process that has memory of its own.
    pub fn open(pid: u32) -> Result<Self, InspectError> {
        let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let status = text("status").map_err(|why| match why.kind() {
            ErrorKind::NotFound => InspectError::NoProcess { pid },
            _ => InspectError::Read { path: format!("/proc/{pid}/status"), source: why },
        })?;
        let name = field(&status, "Name:").unwrap_or_default().to_string();
        let process = Self { pid, name, began: Identity::of(pid), status };
        match (process.word("State:"), process.bytes("VmSize:")) {
            (Some("Z" | "X"), _) => Err(process.no_memory("it has exited, and its parent has not waited for it")),
            (_, None) => Err(process.no_memory("it is a thread of the kernel")),
            _ => Ok(process),
        }
    }

    fn no_memory(self, why: &'static str) -> InspectError {
        InspectError::NoMemory { pid: self.pid, name: self.name, why }
    }

    /// Reads a file of the process.
    pub fn read(&self, file: &str) -> Result<String, InspectError> {
        // Names of files need not be UTF-8.
        let text =
            fs::read(format!("/proc/{}/{file}", self.pid)).map(|text| String::from_utf8_lossy(&text).into_owned());
        text.map_err(|why| self.failed(file, why))
    }

    /// The error for a file of the process that could not be read.
    pub fn failed(&self, file: &str, why: io::Error) -> InspectError {
        let (pid, name) = (self.pid, self.name.clone());
        match (why.kind(), why.raw_os_error()) {
            (ErrorKind::PermissionDenied, _) => {
                let uid = self.word("Uid:").map_or("its owner".to_string(), |uid| format!("the user with id {uid}"));
                InspectError::NotPermitted { pid, name, owner: uid }
            }
            (ErrorKind::NotFound, _) | (_, Some(libc::ESRCH)) => InspectError::Vanished { pid, name },
            _ => InspectError::Read { path: format!("/proc/{pid}/{file}"), source: why },
        }
    }

    /// Checks that the process still runs the program that was read.
    pub fn is_the_same(&self) -> Result<(), InspectError> {
        match Identity::of(self.pid) == self.began {
            true => Ok(()),
            false => Err(InspectError::Vanished { pid: self.pid, name: self.name.clone() }),
        }
    }

    /// The first word of a line of `status`.
    pub fn word(&self, key: &str) -> Option<&str> {
        field(&self.status, key)?.split_whitespace().next()
    }

    /// The number of a line of `status`.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.word(key)?.parse().ok()
    }

    /// The bytes of a line of `status` in kB.
    pub fn bytes(&self, key: &str) -> Option<u64> {
        self.number(key)?.checked_mul(1024)
    }
}

impl Identity {
    fn of(pid: u32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name can contain blanks and parentheses; the last parenthesis ends it.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // Fields 22, 26 and 28 of proc(5), counted from the third.
        let number = |field: usize| fields.get(field - 3).and_then(|word| word.parse().ok());
        Self { start: number(22), code: number(26), stack: number(28) }
    }
}

fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}
