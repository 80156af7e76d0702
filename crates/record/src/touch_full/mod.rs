//! `--accesses full`: every access of a program to its heap blocks, in program order.
//!
//! The program runs in valgrind with the recorder preloaded. A valgrind tool writes a stream of accesses (`stream.rs`).
//! The recorder numbers its events, so that each event has a position among the accesses (`interleave.rs`). Addresses
//! are mapped to blocks (`blocks.rs`). The tool is hksim's own if it can be built (`tool.rs`); otherwise it is lackey,
//! which is about 60 times slower.

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

/// Whether a touch that continues where the previous one ended extends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merging {
    /// Yes, if both touches have the same thread, block and kind, and no other event is between them.
    #[default]
    Extending,
    /// No: each access is one event.
    None,
}

/// Likely reason if SIGTRAP killed a program before its first record.
pub(crate) const TRAPPED: &str = "SIGTRAP ended it before its first call; in valgrind a kernel probe (bpftrace, perf) on \
     malloc does that: remove the probes and record again";

/// The accesses of the process; `None` if its events are not numbered or no tool wrote a stream.
///
/// # Errors
/// The stream exists and cannot be opened.
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

/// Suffix of the name of lackey's output, after the process id.
const LACKEY_SUFFIX: &str = ".lackey";
