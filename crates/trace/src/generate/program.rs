//! Runs a generator as an event source. The generator is a [`Program`] that writes its events step by step.

use crate::error::TraceError;
use crate::event::{AllocCall, Event, InitialTouch, ObjectId, Op, ThreadId};
use crate::header::{Clock, Footer, Header, Summary};
use crate::ids::ObjectIds;
use crate::source::{BATCH_EVENTS_MAX, EventSource};

/// A deterministic program.
pub(super) trait Program {
    /// Maximum number of events in one step.
    const STEP_EVENTS_MAX: usize;

    /// Names of the program's marks.
    const MARK_NAMES: &[&str];

    /// Writes the events of the next step, at least one. At the end it writes nothing and returns false.
    fn step(&mut self, builder: &mut EventBuilder) -> bool;

    /// Returns to the start. Allocated memory is kept.
    fn reset(&mut self);
}

/// Builds a program's events: assigns ids and times.
pub(super) struct EventBuilder {
    events: Vec<Event>,
    ids: ObjectIds,
    /// Events written since the start.
    written: u64,
    threads: u32,
}

impl EventBuilder {
    fn new() -> Self {
        EventBuilder { events: Vec::with_capacity(BATCH_EVENTS_MAX), ids: ObjectIds::new(), written: 0, threads: 0 }
    }

    /// Events written since the start.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Writes an event that neither allocates nor frees an object.
    #[inline]
    pub(super) fn write(&mut self, thread: ThreadId, op: Op) {
        self.threads = self.threads.max(thread.0 + 1);
        self.events.push(Event::new(self.written * Clock::EVENT_NS, thread, op));
        self.written += 1;
    }

    /// Writes an allocation and returns its object.
    #[inline]
    pub(super) fn alloc(
        &mut self,
        thread: ThreadId,
        size: u64,
        align_log2: u8,
        call: AllocCall,
        initial_touch: InitialTouch,
    ) -> ObjectId {
        // Cannot fail: the ranges of the programs' parameters keep live objects far below 2^32 - 1.
        let object = self.ids.allocate().unwrap_or(ObjectId(u32::MAX));
        self.write(thread, Op::Alloc { object, size, align_log2, call, initial_touch });
        object
    }

    /// Writes a free.
    #[inline]
    pub(super) fn free(&mut self, thread: ThreadId, object: ObjectId) {
        self.ids.release(object);
        self.write(thread, Op::Free { object });
    }

    fn reset(&mut self) {
        self.events.clear();
        self.ids.clear();
        self.written = 0;
    }
}

/// A program run as an event source.
pub(super) struct GeneratedSource<P> {
    header: Header,
    footer: Footer,
    summary: Summary,
    program: P,
    builder: EventBuilder,
}

impl<P: Program> GeneratedSource<P> {
    /// Runs the program once to compute the summary.
    pub(super) fn new(header: Header, program: P) -> Result<Self, TraceError> {
        const { assert!(P::STEP_EVENTS_MAX <= BATCH_EVENTS_MAX, "a step must fit into a batch") };
        let footer =
            Footer { mark_names: P::MARK_NAMES.iter().map(|name| name.to_string()).collect(), ..Footer::default() };
        let summary = Summary { complete: true, ..Summary::default() };
        let mut source = GeneratedSource { header, footer, summary, program, builder: EventBuilder::new() };
        while source.next_batch()?.is_some() {}
        source.summary = Summary {
            events: source.builder.written,
            objects_peak: source.builder.ids.peak(),
            threads: source.builder.threads,
            duration_ns: source.builder.written.saturating_sub(1) * Clock::EVENT_NS,
            complete: true,
        };
        source.rewind()?;
        Ok(source)
    }
}

impl<P: Program> EventSource for GeneratedSource<P> {
    fn next_batch(&mut self) -> Result<Option<&[Event]>, TraceError> {
        self.builder.events.clear();
        while self.builder.events.len() + P::STEP_EVENTS_MAX <= BATCH_EVENTS_MAX && self.program.step(&mut self.builder)
        {
        }
        Ok(if self.builder.events.is_empty() { None } else { Some(&self.builder.events) })
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
        self.program.reset();
        self.builder.reset();
        Ok(())
    }
}
