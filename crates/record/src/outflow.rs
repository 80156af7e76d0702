//! The way of a spool's events, once they are in order, into the trace: what does not count is left out, marks and
//! touches are put between, places become call sites, addresses objects.

use std::sync::Arc;

use hksim_trace::error::TraceError;
use hksim_trace::event::{Event, SiteId};
use hksim_trace::header::{Footer, Quality, Summary};
use hksim_trace::hkt::TraceWriter;
use hksim_trace::resolve::{Emit, RawEvent, RawOp, Resolver};

use crate::convert::ImageEnd;
use crate::error::RecordError;
use crate::marks::MarkNames;
use crate::merge::Taker;
use crate::pages::PageTouches;
use crate::sites::SiteReader;
use crate::spool_reader::SpoolReader;
use crate::timeline::Timeline;

/// What events pass through.
pub(super) struct Outflow {
    pub(super) timeline: Timeline,
    pub(super) names: Arc<MarkNames>,
    pub(super) pages: Option<PageTouches>,
    pub(super) sites: SiteReader,
    pub(super) resolver: Resolver,
    pub(super) sink: Sink,
    /// Time and thread of the last event.
    pub(super) last: (u64, u32),
}

impl Taker for Outflow {
    #[inline(always)]
    fn take(&mut self, raw: &RawEvent) -> Result<(), RecordError> {
        if self.timeline.is_due(raw.time_ns) {
            self.mark_up_to(raw.time_ns, raw.thread)?;
        }
        self.last = (raw.time_ns, raw.thread);
        if !self.timeline.keeps(&raw.op) {
            return Ok(());
        }
        if raw.site != SiteId::UNKNOWN || self.pages.is_some() {
            return self.take_more(raw);
        }
        self.resolver.take(raw, &mut self.sink)?;
        self.sink.check()
    }
}

impl Outflow {
    /// Takes an event with a call site, or one beside watched objects.
    #[inline(never)]
    fn take_more(&mut self, raw: &RawEvent) -> Result<(), RecordError> {
        let raw = RawEvent { site: self.sites.site_at(raw.site)?, ..*raw };
        let (resolver, sink) = (&mut self.resolver, &mut self.sink);
        let mut push = |raw| Ok(resolver.push(raw, sink)?);
        match &mut self.pages {
            Some(pages) => pages.pass(raw, push)?,
            None => push(raw)?,
        }
        self.sink.check()
    }

    /// Puts in the marks up to `time_ns`, as `thread`.
    #[inline(never)]
    fn mark_up_to(&mut self, time_ns: u64, thread: u32) -> Result<(), RecordError> {
        while let Some((time_ns, mark)) = self.timeline.mark_up_to(time_ns, &self.names) {
            self.push(RawEvent::new(time_ns, thread, mark))?;
            if self.timeline.take_gap() {
                self.push(RawEvent::new(time_ns, thread, RawOp::Gap))?;
            }
        }
        Ok(())
    }

    fn push(&mut self, raw: RawEvent) -> Result<(), RecordError> {
        self.resolver.push(raw, &mut self.sink)?;
        self.sink.check()
    }

    /// Events written so far.
    pub(super) fn events(&self) -> u64 {
        self.sink.writer.events()
    }

    /// Waits until everything so far is written, and leaves no thread of the writer's behind.
    pub(super) fn settle(&mut self) -> Result<(), RecordError> {
        self.sink.check()?;
        Ok(self.sink.writer.settle()?)
    }

    /// Ends the trace of an image that ended so and lost so many events.
    pub(super) fn finish(mut self, end: ImageEnd, spool: &SpoolReader) -> Result<(Summary, Quality), RecordError> {
        let (mut profiles, mut watched) = Default::default();
        if let Some(pages) = self.pages.take() {
            (profiles, watched) = pages.finish(|raw| self.push(raw))?;
        }
        let (time_ns, thread) = self.last;
        match end {
            ImageEnd::Session => self.mark_up_to(u64::MAX, thread)?,
            ImageEnd::Exec => self.push(RawEvent::new(time_ns, thread, RawOp::Exec))?,
            ImageEnd::Process => {}
        }
        let Self { timeline, names, sites, resolver, mut sink, .. } = self;
        let mut quality = resolver.finish(&mut sink)?;
        sink.check()?;
        (quality.events_lost, quality.sites_lost) = (spool.control.events_lost, spool.control.sites_lost);
        quality.watched = watched;
        quality.stopped_ns = timeline.off_ns(time_ns);
        let mark_names = names.names();
        let footer = Footer { mark_names, quality, sites: sites.finish(), profiles };
        Ok((sink.writer.finish(&footer)?, quality))
    }
}

/// The writer behind the resolver's callback, which cannot return an error itself.
pub(super) struct Sink {
    writer: TraceWriter,
    failed: Option<TraceError>,
}

impl Sink {
    pub(super) fn new(writer: TraceWriter) -> Self {
        Self { writer, failed: None }
    }

    #[inline(always)]
    fn check(&mut self) -> Result<(), RecordError> {
        if self.failed.is_none() { Ok(()) } else { self.fail() }
    }

    #[cold]
    fn fail(&mut self) -> Result<(), RecordError> {
        self.failed.take().map_or(Ok(()), |why| Err(why.into()))
    }
}

impl Emit for Sink {
    #[inline(always)]
    fn take(&mut self, event: Event) {
        if self.failed.is_none()
            && let Err(why) = self.writer.push(&event)
        {
            self.failed = Some(why);
        }
    }
}
