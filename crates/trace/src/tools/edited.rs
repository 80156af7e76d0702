//! An edited trace as an event source, without a file.

use super::Edit;
use super::renumber::Renumber;
use crate::error::TraceError;
use crate::event::Event;
use crate::header::{Footer, Header, Summary};
use crate::source::{BATCH_EVENTS_MAX, EventSource};

/// A source with an edit applied. Creating it reads the source once, as the summary must be known before the first
/// event.
pub struct Edited<S, E> {
    source: S,
    fresh: E,
    edit: E,
    renumber: Renumber,
    events: Vec<Event>,
    /// How many of `events` have been returned.
    returned: usize,
    header: Header,
    summary: Summary,
    footer: Footer,
}

impl<S: EventSource, E: Edit + Clone> Edited<S, E> {
    /// Applies `edit` to `source`. Reads the source once and rewinds it.
    ///
    /// # Errors
    /// The errors of the source.
    pub fn new(source: S, edit: E) -> Result<Self, TraceError> {
        let header = edit.header(source.header());
        let mut edited = Edited {
            source,
            fresh: edit.clone(),
            edit,
            renumber: Renumber::default(),
            events: Vec::new(),
            returned: 0,
            header,
            summary: Summary::default(),
            footer: Footer::default(),
        };
        edited.rewind()?;
        let (mut events, mut duration_ns) = (0, 0);
        while let Some(batch) = edited.next_batch()? {
            events += batch.len() as u64;
            duration_ns = batch.last().map_or(duration_ns, |event| event.time_ns);
        }
        let (objects_peak, threads) = edited.renumber.totals();
        let complete = edited.source.summary().complete;
        edited.summary = Summary { events, objects_peak, threads, duration_ns, complete };
        edited.footer = edited.edit.footer(edited.source.footer());
        edited.rewind()?;
        Ok(edited)
    }

    /// The edit, in its state after the events read so far.
    pub fn edit(&self) -> &E {
        &self.edit
    }

    /// Fills `events` with the next events. False at the end of the source.
    fn load(&mut self) -> Result<bool, TraceError> {
        self.events.clear();
        self.returned = 0;
        while self.events.is_empty() {
            let Some(batch) = self.source.next_batch()? else { return Ok(false) };
            let events = &mut self.events;
            batch.iter().for_each(|event| self.edit.edit(event, &mut |event| events.push(event)));
            let mut kept = 0;
            for at in 0..self.events.len() {
                if let Some(event) = self.renumber.event(0, self.events[at])? {
                    self.events[kept] = event;
                    kept += 1;
                }
            }
            self.events.truncate(kept);
        }
        Ok(true)
    }
}

impl<S: EventSource, E: Edit + Clone> EventSource for Edited<S, E> {
    fn next_batch(&mut self) -> Result<Option<&[Event]>, TraceError> {
        if self.returned == self.events.len() && !self.load()? {
            return Ok(None);
        }
        let batch = self.returned..self.events.len().min(self.returned + BATCH_EVENTS_MAX);
        self.returned = batch.end;
        Ok(Some(&self.events[batch]))
    }

    fn header(&self) -> &Header {
        &self.header
    }

    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn footer(&self) -> &Footer {
        &self.footer
    }

    fn rewind(&mut self) -> Result<(), TraceError> {
        self.edit = self.fresh.clone();
        self.renumber = Renumber::default();
        self.events.clear();
        self.returned = 0;
        self.source.rewind()
    }
}
