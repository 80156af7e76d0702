//! The `.hkt` file format; `docs/reference/trace-format.md` describes it byte by byte.

mod appender;
mod assemble;
mod batch;
mod chunk;
mod chunk_reader;
mod chunk_writer;
mod code;
mod column;
mod columns;
mod envelope;
mod pack;
mod reader;
mod resolving_writer;
mod skim;
mod time_deltas;
mod writer;

pub use batch::{Batch, BatchReader, CommonAlloc, CommonCall, CommonRun};
pub use envelope::MAGIC;
pub use reader::TraceReader;
pub use resolving_writer::ResolvingWriter;
pub use skim::Tail;
pub use writer::TraceWriter;

/// Versions of the format. All can be read; the newest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Nine columns.
    V1,
    /// Adds a tenth column with call sites, three initial touches, and sites and touch profiles in the footer.
    V2,
    /// Adds memory policy events and touch profiles by size.
    V3,
    /// Adds the ends of forked children.
    V4,
}

impl Version {
    const NEWEST: Version = Version::V4;

    fn number(self) -> u32 {
        match self {
            Version::V1 => 1,
            Version::V2 => 2,
            Version::V3 => 3,
            Version::V4 => 4,
        }
    }

    fn of_number(number: u32) -> Option<Self> {
        [Version::V1, Version::V2, Version::V3, Version::V4].into_iter().find(|version| version.number() == number)
    }
}

/// Maximum number of events in one chunk.
pub const CHUNK_EVENTS_MAX: usize = 16_384;
