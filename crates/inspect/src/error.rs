//! Why a process cannot be inspected.

use std::io;

use hksim_linux_probe::attach_obstacle::{AttachObstacle, Ban};
use thiserror::Error;

/// Why a process cannot be inspected.
#[derive(Debug, Error)]
pub enum InspectError {
    /// No process has this id.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The id.
        pid: u32,
    },
    /// The process belongs to the kernel, or has exited and waits for its parent.
    #[error("process {pid} ({name}) cannot be inspected: {why}")]
    NoMemory {
        /// The id.
        pid: u32,
        /// Its name.
        name: String,
        /// What it is.
        why: AttachObstacle,
    },
    /// This user may not read the process's memory map.
    #[error("process {pid} ({name}) cannot be read: {why}")]
    NotPermitted {
        /// The id.
        pid: u32,
        /// Its name.
        name: String,
        /// What forbids it.
        why: Ban,
    },
    /// The process ended, or executed another program, while it was read or between two looks.
    #[error("process {pid} ({name}) ended or executed another program meanwhile")]
    Vanished {
        /// The id.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// A file of /proc cannot be read.
    #[error("{path}: cannot be read: {source}")]
    Read {
        /// The file.
        path: String,
        /// The reason.
        source: io::Error,
    },
}
