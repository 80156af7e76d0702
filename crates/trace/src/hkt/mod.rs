//! The `.hkt` file format; `docs/trace-format.md` describes it byte by byte.

mod chunk;
mod code;
mod column;
mod columns;
mod envelope;
mod reader;
mod skim;
mod writer;

pub use reader::TraceReader;
pub use skim::Tail;
pub use writer::TraceWriter;

/// The version this build writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Most events in one chunk.
pub const CHUNK_EVENTS_MAX: usize = 16_384;
