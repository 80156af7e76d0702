//! `--touch full`: every access of a program to its heap blocks, in program order.
//!
//! The program runs in valgrind with the recorder preloaded. A tool writes down the accesses (`stream.rs`), the recorder
//! numbers its events so that each has its place among them (`interleave.rs`), and addresses become blocks (`blocks.rs`).
//! The tool is ours where it can be built (`tool.rs`), else lackey, which is some 60 times slower.

mod blocks;
mod interleave;
mod stream;
mod tool;

pub use tool::TouchFull;

pub(crate) use interleave::Interleave;
use stream::{Form, Stream};

use crate::error::RecordError;
use crate::event_log::{LOG_SUFFIX, STREAM_SUFFIX};
use crate::log_reader::LogReader;

/// Whether touches that go on where the one before ended become one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merging {
    /// They do, if both are of the same thread, block and kind, and nothing came between.
    #[default]
    Extending,
    /// One event for each access.
    None,
}

/// What a program without a record that died of SIGTRAP most likely met.
pub(crate) const TRAPPED: &str = "SIGTRAP ended it before its first call; in valgrind a kernel probe (bpftrace, perf) on \
     malloc does that: take the probes away and record again";

/// The accesses of the process; `None` if its events have no numbers or no tool wrote any.
///
/// # Errors
/// The stream is there and cannot be opened.
pub(crate) fn open(log: &LogReader, merging: Merging) -> Result<Option<Interleave>, RecordError> {
    let Some(counters) = log.counters() else {
        return Ok(None);
    };
    let path = log.path();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let own = name.strip_suffix(LOG_SUFFIX).unwrap_or(&name).to_string() + STREAM_SUFFIX;
    let lackey = format!("{}{LACKEY_SUFFIX}", log.control.pid);
    let stream = match Stream::open(&path.with_file_name(own), Form::Words)? {
        Some(stream) => Some(stream),
        None => Stream::open(&path.with_file_name(lackey), Form::Lackey)?,
    };
    Ok(stream.map(|stream| Interleave::new(stream, counters, merging)))
}

/// How the name of lackey's output ends; before it stands the process id.
const LACKEY_SUFFIX: &str = ".lackey";
