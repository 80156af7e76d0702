//! Errors of reading and writing recordings.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a recording could not be read or written.
#[derive(Debug, Error)]
pub enum MemoryTraceError {
    /// The operating system failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("{}: not a memory recording (.hkm): {why}", path.display())]
    NotARecording {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// A newer hksim wrote the file.
    #[error("{}: format version {found}, but this hksim reads up to version {known}; use a newer hksim", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest known version.
        known: u32,
    },
    /// The header is damaged.
    #[error("{}: the header is damaged: {why}; record the program again", path.display())]
    BadHeader {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A part after the header is damaged.
    #[error("{}: damaged at byte {offset}: {why}; use another copy, or keep the {events} events before it: \
             hksim trace verify --repair part.hkm damaged.hkm", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damaged part begins.
        offset: u64,
        /// What is wrong.
        why: &'static str,
        /// Events before the damage.
        events: u64,
    },
    /// A part would have no events.
    #[error("{}: this part has no events; keep more of the recording", path.display())]
    EmptyPart {
        /// The file.
        path: PathBuf,
    },
    /// A header or footer exceeds the format's limit.
    #[error("{}: the {part} needs {bytes} bytes, more than the format's {limit_bytes}", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Which part.
        part: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit_bytes: u32,
    },
}

impl MemoryTraceError {
    pub(crate) fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), action, source }
    }
}
