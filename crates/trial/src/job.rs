//! What a keeper is asked for and what it answers: JSON, one message a line.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A program to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The program and its arguments.
    pub(crate) words: Vec<OsString>,
    /// Environment variables that differ from the caller's; `None` removes one.
    pub(crate) environment: Vec<(OsString, Option<OsString>)>,
    /// Its standard input; `None` for an empty one.
    pub(crate) input: Option<PathBuf>,
    /// Whether its processes get no transparent huge pages (`PR_SET_THP_DISABLE`).
    pub(crate) huge_pages_off: bool,
    /// Whether processes that outlive the program go on until the stop signal: a server may put itself in the background.
    pub(crate) is_server: bool,
}

/// A message of a keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The program runs.
    Started,
    /// It cannot be executed.
    NotStarted(String),
    /// It has ended, and so have its descendants.
    Ended(Ended),
}

/// What the kernel counted for the program and its descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// The program's wait status.
    pub(crate) status: i32,
    /// Time from its start to its own end.
    pub(crate) wall_ns: u64,
    /// Processor time of all, in user mode and in the kernel.
    pub(crate) cpu_ns: u64,
    /// Faults of all without input or output.
    pub(crate) minor_faults: u64,
    /// Faults of all that read from a disk.
    pub(crate) major_faults: u64,
    /// The peak RSS of that process which had the highest.
    pub(crate) rss_bytes_peak: u64,
    /// Processes that outlived the program and were stopped.
    pub(crate) processes_stopped: u32,
    /// Whether a process had to be killed.
    pub(crate) was_killed: bool,
}

/// Writes a message.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a message; `None` if the other end is closed.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    if from.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}
