//! Tools that make traces from traces.
//!
//! A tool is an [`Edit`]: one event of a source becomes any number of events, still in the source's numbering. Objects
//! and threads are numbered anew behind it (`renumber.rs`), so an edit may drop, repeat and invent objects. Everything
//! streams, in memory O(peak live objects).

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

/// A change of a trace, event by event.
pub trait Edit {
    /// Takes the next event of the source and gives what becomes of it to `emit`, with the source's object and thread
    /// ids. Events about an object whose birth was not emitted are dropped behind the edit.
    fn edit(&mut self, event: &Event, emit: &mut dyn FnMut(Event));

    /// The header of the result; called before the first event.
    fn header(&self, source: &Header) -> Header;

    /// The footer of the result; called after the last event.
    fn footer(&self, source: &Footer) -> Footer {
        source.clone()
    }
}

/// Writes what `edit` makes of `source` (which is rewound before) to a new trace.
///
/// # Errors
/// Those of the source and of the writer.
pub fn rewrite(source: &mut dyn EventSource, edit: &mut dyn Edit, out: &Path) -> Result<Summary, TraceError> {
    source.rewind()?;
    let mut writer = TraceWriter::create(out, &edit.header(source.header()))?;
    let mut renumber = Renumber::default();
    let mut made = Vec::new();
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            edit.edit(event, &mut |event| made.push(event));
        }
        for event in made.drain(..) {
            if let Some(event) = renumber.event(0, event)? {
                writer.push(&event)?;
            }
        }
    }
    writer.finish(&edit.footer(source.footer()))
}

/// Writes a source as it is.
///
/// # Errors
/// Those of the source and of the writer.
pub fn copy(source: &mut dyn EventSource, out: &Path) -> Result<Summary, TraceError> {
    source.rewind()?;
    let mut writer = TraceWriter::create(out, source.header())?;
    while let Some(batch) = source.next_batch()? {
        batch.iter().try_for_each(|event| writer.push(event))?;
    }
    writer.finish(source.footer())
}
