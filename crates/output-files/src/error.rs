//! Why an output is not written.

use std::io;
use std::path::PathBuf;

/// Why an output is not written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Another process writes it.
    #[error("{}: another hksim{} records to this file now; name another file, or wait for its end", output.display(), process(*.owner))]
    Claimed {
        /// The output.
        output: PathBuf,
        /// The process, if it is known.
        owner: Option<u32>,
    },
    /// Another user may have placed a link or a pipe there.
    #[error(
        "{}: is {what} of another user in a folder that all users can write to; remove it or write to another file",
        output.display()
    )]
    Planted {
        /// The output.
        output: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// A file that is no recording has the name that an earlier recording would get.
    #[error("{}: is no trace, and the earlier recording would replace it; move it away", path.display())]
    NoRecording {
        /// The file.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("{}: cannot {action}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted: "rename".
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
}

fn process(owner: Option<u32>) -> String {
    owner.map_or(String::new(), |pid| format!(" (process {pid})"))
}
