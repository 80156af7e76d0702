//! A process that is being read.

use std::fs;
use std::io::{self, ErrorKind};

use hksim_linux_probe::attach_obstacle::{AttachObstacle, Ban};
use hksim_linux_probe::status::Status;

use crate::error::InspectError;
use crate::inspection::Thread;

/// A process, identified so that another one with the same id is noticed.
#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    /// The name that the kernel shows (`comm`).
    pub name: String,
    /// The thread whose id was given, if it is not the first one.
    pub thread: Option<Thread>,
    /// Whose files are read: that thread, which shows the process's memory even if the first one has ended.
    pub entry: u32,
    pub status: Status,
    pub began: Identity,
}

/// What tells a process and its program from others with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its start, in clock ticks since boot.
    start: Option<u64>,
    /// Where exec put the program's code.
    code: Option<u64>,
    stack: Option<u64>,
}

impl Process {
    /// Opens a process that has memory of its own, by its id or by that of a thread.
    pub fn open(id: u32) -> Result<Self, InspectError> {
        let status = self::status(id)?;
        let pid = status.number("Tgid").unwrap_or(id);
        let name = if pid == id { status.name().to_string() } else { self::status(pid)?.name().to_string() };
        let thread = (pid != id).then(|| Thread { id, name: status.name().to_string() });
        match AttachObstacle::without_memory(&status) {
            Some(why) => Err(InspectError::NoMemory { pid: id, name, why }),
            None => Ok(Self { pid, name, thread, entry: id, began: Identity::of(id), status }),
        }
    }

    /// Reads a file of the process.
    pub fn read(&self, file: &str) -> Result<String, InspectError> {
        // Names of files need not be UTF-8.
        let text =
            fs::read(format!("/proc/{}/{file}", self.entry)).map(|text| String::from_utf8_lossy(&text).into_owned());
        text.map_err(|why| self.failed(file, why))
    }

    /// The error for a file of the process that could not be read.
    pub fn failed(&self, file: &str, why: io::Error) -> InspectError {
        let (pid, name) = (self.pid, self.name.clone());
        match (why.kind(), why.raw_os_error()) {
            (ErrorKind::PermissionDenied, _) => {
                InspectError::NotPermitted { pid, name, why: Ban::of_reading(&self.status) }
            }
            (ErrorKind::NotFound, _) | (_, Some(libc::ESRCH)) => InspectError::Vanished { pid, name },
            _ => InspectError::Read { path: format!("/proc/{}/{file}", self.entry), source: why },
        }
    }

    /// Checks that the process still runs the program that was read.
    pub fn is_the_same(&self) -> Result<(), InspectError> {
        match Identity::of(self.entry) == self.began {
            true => Ok(()),
            false => Err(InspectError::Vanished { pid: self.pid, name: self.name.clone() }),
        }
    }
}

fn status(id: u32) -> Result<Status, InspectError> {
    Status::of(id).map_err(|why| match why.kind() {
        ErrorKind::NotFound => InspectError::NoProcess { pid: id },
        _ => InspectError::Read { path: format!("/proc/{id}/status"), source: why },
    })
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
