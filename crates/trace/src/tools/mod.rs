//! Tools that create traces from other traces.
//!
//! Most tools are an [`Edit`]: it replaces each event of a source by any number of events, which keep the source's ids.
//! Afterwards objects and threads are renumbered (`renumber.rs`), so an edit may drop, repeat and add objects. All
//! tools stream the events in O(peak live objects) memory.

mod anonymise;
mod cut;
mod edited;
mod keep;
mod merge;
mod renumber;
mod scale;
mod size_classes;
mod touched;
mod verify;

pub use anonymise::{Anonymise, SizeDetail};
pub use cut::{Cut, CutCounts, LiveAtStart, Part, named_part};
pub use edited::Edited;
pub use keep::{Keep, LifetimeSet, Selection};
pub use merge::{MergeInput, child_offset_ns, merge};
pub use scale::{Factor, ScaleSizes, ScaleTime};
pub use verify::{Finding, Verified, repair, verify};

use crate::error::TraceError;
use crate::event::Event;
use crate::header::{Footer, Header, Summary};
use crate::hkt::TraceWriter;
use crate::source::EventSource;
use renumber::Renumber;
use std::path::Path;

/// A tool that changes a trace event by event.
pub trait Edit {
    /// Takes the next event of the source and passes the resulting events to `emit`, with the source's object and
    /// thread ids. Events of an object are dropped later if its allocation was not emitted.
    fn edit(&mut self, event: &Event, emit: &mut dyn FnMut(Event));

    /// The header of the result. Called before the first event.
    fn header(&self, source: &Header) -> Header;

    /// The footer of the result. Called after the last event.
    fn footer(&self, source: &Footer) -> Footer {
        source.clone()
    }
}

/// Rewinds `source`, applies `edit` and writes the result to a new trace.
///
/// # Errors
/// The errors of the source and of the writer.
pub fn rewrite(source: &mut dyn EventSource, edit: &mut dyn Edit, out: &Path) -> Result<Summary, TraceError> {
    source.rewind()?;
    let mut writer = TraceWriter::create(out, &edit.header(source.header()))?;
    let mut renumber = Renumber::default();
    let mut edited = Vec::new();
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            edit.edit(event, &mut |event| edited.push(event));
        }
        for event in edited.drain(..) {
            if let Some(event) = renumber.event(0, event)? {
                writer.push(&event)?;
            }
        }
    }
    writer.finish(&edit.footer(source.footer()))
}

/// Rewinds a source and writes it unchanged to a new trace.
///
/// # Errors
/// The errors of the source and of the writer.
pub fn copy(source: &mut dyn EventSource, out: &Path) -> Result<Summary, TraceError> {
    source.rewind()?;
    let mut writer = TraceWriter::create(out, source.header())?;
    while let Some(batch) = source.next_batch()? {
        batch.iter().try_for_each(|event| writer.push(event))?;
    }
    writer.finish(source.footer())
}
