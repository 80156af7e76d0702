//! An edited trace as a source of its own, without a file.

use super::Edit;
use super::renumber::Renumber;
use crate::error::TraceError;
use crate::event::Event;
use crate::header::{Footer, Header, Summary};
use crate::source::{BATCH_EVENTS_MAX, EventSource};

/// What an edit makes of a source. Reads the source once beforehand, as a source knows its size before its first event.
pub struct Edited<S, E> {
    source: S,
    fresh: E,
    edit: E,
    renumber: Renumber,
    made: Vec<Event>,
    /// Events of `made` handed out.
    given: usize,
    header: Header,
    summary: Summary,
    footer: Footer,
}

impl<S: EventSource, E: Edit + Clone> Edited<S, E> {
    /// The edited source.
    ///
    /// # Errors
    /// Those of the source.
    pub fn new(source: S, edit: E) -> Result<Self, TraceError> {
        let header = edit.header(source.header());
        let mut edited = Edited {
            source,
            fresh: edit.clone(),
            edit,
            renumber: Renumber::default(),
            made: Vec::new(),
            given: 0,
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

    /// The edit, as it is after the events read so far.
    pub fn edit(&self) -> &E {
        &self.edit
    }

    /// Fills `made` with the next events. False at the end of the source.
    fn load(&mut self) -> Result<bool, TraceError> {
        self.made.clear();
        self.given = 0;
        while self.made.is_empty() {
            let Some(batch) = self.source.next_batch()? else { return Ok(false) };
            let made = &mut self.made;
            batch.iter().for_each(|event| self.edit.edit(event, &mut |event| made.push(event)));
            let mut kept = 0;
            for at in 0..self.made.len() {
                if let Some(event) = self.renumber.event(0, self.made[at])? {
                    self.made[kept] = event;
                    kept += 1;
                }
            }
            self.made.truncate(kept);
        }
        Ok(true)
    }
}

impl<S: EventSource, E: Edit + Clone> EventSource for Edited<S, E> {
    fn next_batch(&mut self) -> Result<Option<&[Event]>, TraceError> {
        if self.given == self.made.len() && !self.load()? {
            return Ok(None);
        }
        let batch = self.given..self.made.len().min(self.given + BATCH_EVENTS_MAX);
        self.given = batch.end;
        Ok(Some(&self.made[batch]))
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
        self.made.clear();
        self.given = 0;
        self.source.rewind()
    }
}
