//! The one interface through which simulator, replay and statistics read events.

use crate::error::TraceError;
use crate::event::Event;
use crate::header::{Footer, Header, Summary};

/// Most events in one batch.
pub const BATCH_EVENTS_MAX: usize = 1024;

/// A stream of events that can be run again from its start: a file or a generator.
///
/// Ids within the stream are valid by construction: an allocation's id is the one that
/// [`crate::ids::ObjectIds`] hands out, every other id is live, times never decrease.
pub trait EventSource {
    /// The next events, 1 to [`BATCH_EVENTS_MAX`] of them, or `None` at the end.
    ///
    /// # Errors
    /// Damaged or unreadable input. The stream is then over (`None`) until [`EventSource::rewind`].
    fn next_batch(&mut self) -> Result<Option<&[Event]>, TraceError>;

    /// Where the trace comes from.
    fn header(&self) -> &Header;

    /// How large it is; known before the first batch.
    fn summary(&self) -> &Summary;

    /// The checksum of the trace's file: CRC-32 of its header and all its section headers, which hold the checksums of the
    /// rest, each without its own last four bytes. `None` where there is no file.
    fn checksum(&self) -> Option<u32> {
        None
    }

    /// Mark names and capture quality; empty where a truncated file lost them.
    fn footer(&self) -> &Footer;

    /// Starts again at the first event. Events are the same each time.
    ///
    /// # Errors
    /// As for [`EventSource::next_batch`].
    fn rewind(&mut self) -> Result<(), TraceError>;
}
