//! From the ordered events of a log to the trace: drops events that do not count, inserts marks and touches, and turns
//! places into call sites and addresses into objects.

use std::sync::Arc;

use hksim_trace::event::SiteId;
use hksim_trace::header::{Footer, Quality, Summary};
use hksim_trace::hkt::ResolvingWriter;
use hksim_trace::memory_policy::{MemoryPolicy, ThpDisable};
use hksim_trace::resolve::{Plain, RawEvent, RawOp};

use crate::children;
use crate::convert::ImageEnd;
use crate::error::RecordError;
use crate::event_log::Control;
use crate::log_reader::LogReader;
use crate::marks::MarkNames;
use crate::merge::EventSink;
use crate::missing::Missing;
use crate::pages::PageTouches;
use crate::sites::SiteReader;
use crate::timeline::Timeline;

/// The stages that events pass through.
pub(super) struct Pipeline {
    pub(super) timeline: Timeline,
    pub(super) names: Arc<MarkNames>,
    pub(super) pages: Option<PageTouches>,
    pub(super) sites: SiteReader,
    pub(super) writer: ResolvingWriter,
    /// Time and thread of the last event.
    pub(super) last: (u64, u32),
    /// Children that share the image's memory.
    pub(super) forked: Vec<u32>,
    pub(super) missing: Missing,
}

impl EventSink for Pipeline {
    #[inline(always)]
    fn take(&mut self, raw: &RawEvent) -> Result<(), RecordError> {
        if self.timeline.is_due(raw.time_ns) {
            self.mark_up_to(raw.time_ns, raw.thread)?;
        }
        self.last = (raw.time_ns, raw.thread);
        if !self.timeline.keeps(&raw.op) {
            return Ok(());
        }
        if let RawOp::Fork { child_pid } = raw.op {
            self.forked.push(child_pid);
        }
        if raw.site != SiteId::UNKNOWN || self.pages.is_some() {
            return self.take_more(raw);
        }
        Ok(self.writer.push(raw)?)
    }

    fn take_plain(&mut self, calls: &[Plain]) -> Result<(), RecordError> {
        let Some(last) = calls.last() else { return Ok(()) };
        if self.timeline.is_due(last.time_ns()) || self.timeline.is_off() || self.pages.is_some() {
            return calls.iter().try_for_each(|call| self.take(&call.raw()));
        }
        self.last = (last.time_ns(), last.thread());
        Ok(self.writer.push_plain(calls)?)
    }
}

impl Pipeline {
    /// Takes an event with a call site, or any event while objects are watched.
    #[inline(never)]
    fn take_more(&mut self, raw: &RawEvent) -> Result<(), RecordError> {
        let raw = RawEvent { site: self.sites.site_at(raw.site)?, ..*raw };
        let writer = &mut self.writer;
        let mut push = |raw| Ok(writer.push(&raw)?);
        match &mut self.pages {
            Some(pages) => pages.pass(raw, push),
            None => push(raw),
        }
    }

    /// Inserts the marks and the ends of children up to `time_ns`, as events of `thread`.
    #[inline(never)]
    fn mark_up_to(&mut self, time_ns: u64, thread: u32) -> Result<(), RecordError> {
        while let Some((time_ns, mark)) = self.timeline.mark_up_to(time_ns, &self.names) {
            if let RawOp::ForkEnd { child_pid, .. } = mark {
                // The fork may have been lost; its end is then dropped.
                let Some(at) = self.forked.iter().rposition(|&forked| forked == child_pid) else { continue };
                self.forked.swap_remove(at);
            }
            let writer = &mut self.writer;
            if let Some(pages) = &mut self.pages {
                pages.pass_until(time_ns, |raw| Ok(writer.push(&raw)?))?;
            }
            self.last = (time_ns, thread);
            self.push(RawEvent::new(time_ns, thread, mark))?;
            if self.timeline.take_gap() {
                self.push(RawEvent::new(time_ns, thread, RawOp::Gap))?;
            }
        }
        Ok(())
    }

    fn push(&mut self, raw: RawEvent) -> Result<(), RecordError> {
        Ok(self.writer.push(&raw)?)
    }

    /// Inserts the memory policies that the image inherited, as events of its first thread.
    pub(super) fn inherit(&mut self, control: &Control) -> Result<(), RecordError> {
        let thp_disable = ThpDisable::of_number(control.thp_disable).unwrap_or_default();
        let policies = [
            (thp_disable != ThpDisable::Off, MemoryPolicy::ThpDisable(thp_disable)),
            (control.personality != 0, MemoryPolicy::Personality(control.personality)),
        ];
        for (_, policy) in policies.into_iter().filter(|(is_in_force, _)| *is_in_force) {
            self.push(RawEvent::new(0, 0, RawOp::MemoryPolicy { policy, inherited: true }))?;
        }
        Ok(())
    }

    /// Inserts, as the last events, the children that still share the image's memory. Children that ended after the
    /// last event count as sharing it.
    fn outlived(&mut self, log: &LogReader) -> Result<(), RecordError> {
        let (time_ns, thread) = self.last;
        let mut ended = Vec::new();
        while let Some((_, due)) = self.timeline.mark_up_to(u64::MAX, &self.names) {
            if let RawOp::ForkEnd { child_pid, .. } = due {
                ended.push(child_pid);
            }
        }
        for child_pid in std::mem::take(&mut self.forked) {
            if ended.contains(&child_pid) || children::shares(log.path(), child_pid) == Some(true) {
                self.push(RawEvent::new(time_ns, thread, RawOp::ForkEnd { child_pid, outlives: true }))?;
            }
        }
        Ok(())
    }

    /// Events written so far.
    pub(super) fn events(&self) -> u64 {
        self.writer.events()
    }

    /// Waits until everything so far is written and the writer's threads have ended.
    pub(super) fn settle(&mut self) -> Result<(), RecordError> {
        Ok(self.writer.settle()?)
    }

    /// Ends the trace; `end` is how the image ended.
    pub(super) fn finish(mut self, end: ImageEnd, log: &LogReader) -> Result<(Summary, Quality), RecordError> {
        let (mut profiles, mut watched) = Default::default();
        let (time_ns, thread) = self.last;
        if end == ImageEnd::Session {
            self.mark_up_to(u64::MAX, thread)?;
        }
        if let Some(pages) = self.pages.take() {
            (profiles, watched) = pages.finish(|raw| self.push(raw))?;
        }
        self.outlived(log)?;
        if end == ImageEnd::Exec {
            let (time_ns, thread) = self.last;
            self.push(RawEvent::new(time_ns, thread, RawOp::Exec))?;
        }
        let Self { timeline, names, sites, writer, missing, .. } = self;
        let mut quality = Quality::default();
        let summary = writer.finish(|repaired| {
            let &Control { events_lost, sites_lost, .. } = &log.control;
            quality = Quality {
                events_lost,
                sites_lost,
                watched,
                stopped_ns: timeline.off_ns(time_ns),
                programs_unrecorded: missing.programs,
                processes_outliving: missing.processes,
                ..repaired
            };
            Footer { mark_names: names.names(), quality, sites: sites.finish(), profiles }
        })?;
        Ok((summary, quality))
    }
}
