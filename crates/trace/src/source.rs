//! The interface through which the simulator, the replay and the statistics read events.

use crate::error::TraceError;
use crate::event::Event;
use crate::header::{Footer, Header, Summary};
use crate::hkt::Batch;

/// Maximum number of events in one batch.
pub const BATCH_EVENTS_MAX: usize = 1024;

/// A stream of events that can be rewound: a file or a generator.
///
/// Ids within the stream are valid by construction: an allocation has the id that
/// [`crate::ids::ObjectIds`] assigns, every other id is live. Times never decrease.
pub trait EventSource {
    /// The next events, 1 to [`BATCH_EVENTS_MAX`] of them, or `None` at the end.
    ///
    /// # Errors
    /// Damaged or unreadable input. After an error the stream returns `None` until [`EventSource::rewind`].
    fn next_batch(&mut self) -> Result<Option<&[Event]>, TraceError>;

    /// Replaces the contents of `batch` by the next events, at least one. Returns false at the end. The events are those
    /// of [`EventSource::next_batch`], in larger batches and faster if the source is a file. Calls of both may alternate.
    ///
    /// # Errors
    /// As for [`EventSource::next_batch`].
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        copy_next(self, batch)
    }

    /// Where the trace comes from and what it records.
    fn header(&self) -> &Header;

    /// The size of the trace, known before the first batch.
    fn summary(&self) -> &Summary;

    /// The checksum of the trace's file; `None` if there is no file.
    ///
    /// It is the CRC-32 of the file header and all section headers, each without its last four bytes. The section
    /// headers contain the checksums of all other bytes.
    fn checksum(&self) -> Option<u32> {
        None
    }

    /// Mark names, quality, call sites and profiles; empty if the file was truncated.
    fn footer(&self) -> &Footer;

    /// Returns to the first event. The events are the same each time.
    ///
    /// # Errors
    /// As for [`EventSource::next_batch`].
    fn rewind(&mut self) -> Result<(), TraceError>;
}

/// [`EventSource::next_into`] of a source that has its events in no other form than [`EventSource::next_batch`].
pub(crate) fn copy_next(source: &mut (impl EventSource + ?Sized), batch: &mut Batch) -> Result<bool, TraceError> {
    let events = source.next_batch()?;
    batch.copy_from(events.unwrap_or_default());
    Ok(events.is_some())
}
