//! Writes a trace from calls that identify blocks by address.

use super::appender::Appender;
use crate::error::TraceError;
use crate::event::Event;
use crate::header::{Footer, Header, Quality, Summary};
use crate::resolve::{EventSink, Plain, RawEvent, Resolved, Resolver, WaitLimits};
use std::path::Path;

/// A [`Resolver`] and the file to which its events are written. The resolver emits events in order and with valid
/// objects, so the checks of [`super::TraceWriter`] are skipped.
pub struct ResolvingWriter {
    resolver: Resolver,
    sink: FileSink,
}

impl ResolvingWriter {
    /// Creates or replaces the file and writes its header; `limits` are for the [`Resolver`].
    ///
    /// # Errors
    /// The file cannot be written, or the header is too long.
    pub fn create(path: &Path, header: &Header, limits: WaitLimits) -> Result<Self, TraceError> {
        let sink = FileSink { appender: Appender::create(path, header)?, failed: None };
        Ok(ResolvingWriter { resolver: Resolver::new(limits), sink })
    }

    /// Events appended so far.
    pub fn events(&self) -> u64 {
        self.sink.appender.events
    }

    /// See [`Resolver::delay_frees`].
    pub fn delay_frees(&mut self, free_delay_ns: u64) {
        self.resolver.delay_frees(free_delay_ns);
    }

    /// Takes the next event, in order of timestamps.
    ///
    /// # Errors
    /// Too many objects, a value out of range, or the file cannot be written. A write error may be returned tens of
    /// thousands of events late.
    pub fn push(&mut self, raw: &RawEvent) -> Result<(), TraceError> {
        self.resolver.take(raw, &mut self.sink)?;
        self.sink.check()
    }

    /// Takes the next calls, in order of timestamps.
    ///
    /// # Errors
    /// As for [`ResolvingWriter::push`].
    pub fn push_plain(&mut self, calls: &[Plain]) -> Result<(), TraceError> {
        self.resolver.take_plain(calls, &mut self.sink)?;
        self.sink.check()
    }

    /// See [`super::TraceWriter::settle`].
    ///
    /// # Errors
    /// A chunk could not be written.
    pub fn settle(&mut self) -> Result<(), TraceError> {
        self.sink.appender.settle()
    }

    /// Writes the pending events and the footer. `footer` builds it from the resolver's quality counts. Returns the
    /// size of the trace.
    ///
    /// # Errors
    /// As for [`ResolvingWriter::push`], or the footer is too long.
    pub fn finish(self, footer: impl FnOnce(Quality) -> Footer) -> Result<Summary, TraceError> {
        let Self { resolver, mut sink } = self;
        let quality = resolver.finish(&mut sink)?;
        sink.check()?;
        sink.appender.finish(&footer(quality))
    }
}

/// The file that receives the resolver's events. It keeps errors, as [`EventSink`] cannot return them.
struct FileSink {
    appender: Appender,
    failed: Option<TraceError>,
}

impl FileSink {
    fn check(&mut self) -> Result<(), TraceError> {
        match self.failed.take() {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    fn note(&mut self, result: Result<(), TraceError>) {
        if let Err(why) = result {
            self.failed = Some(why);
        }
    }
}

impl EventSink for FileSink {
    #[inline(always)]
    fn take(&mut self, event: Event) {
        if self.failed.is_some() {
            return;
        }
        let result = match event.flaw() {
            None => self.appender.push(&event),
            Some(why) => {
                let Appender { path, events, .. } = &self.appender;
                Err(TraceError::BadEvent { path: path.clone(), event: *events, why })
            }
        };
        self.note(result);
    }

    fn take_all(&mut self, resolved: &[Resolved]) {
        if self.failed.is_none() {
            let result = self.appender.push_all(resolved);
            self.note(result);
        }
    }
}
