//! Receives the calls that converters read and writes the trace. Numbers threads, shifts times to start at 0, resolves
//! objects and counts.

use super::failure::Failure;
use super::input::AnyEvent;
use super::reorder::Reorder;
use super::threads::Threads;
use crate::error::TraceError;
use crate::event::{Event, Op};
use crate::header::{Clock, Footer, Header, Quality, Summary};
use crate::hkt::TraceWriter;
use crate::resolve::{RawEvent, RawOp, Resolver, WaitLimits};
use std::collections::BTreeSet;

/// Maximum number of other processes that a note lists.
const PROCESSES_NAMED_MAX: usize = 16;

/// The smallest [`Quality::share`] that is not doubtful. Whole recordings are far above it. One that began in a running
/// program lacks the blocks of before, which its frees name.
const SHARE_MIN: f64 = 0.75;

/// Takes calls in the order of the source and writes the trace.
pub(super) struct Sink {
    resolver: Resolver,
    writer: TraceWriter,
    threads: Threads,
    reorder: Reorder,
    clock: Clock,
    /// Without measured times, the time of the next call. With calls in order, the time of the last call.
    tick_ns: u64,
    /// Timestamp of the first event, at which the trace's time is 0.
    base_ns: Option<u64>,
    ready: Vec<Event>,
    /// The process whose calls are imported: the selected one, or the first.
    process: Option<u64>,
    /// Whether that process made any call.
    process_seen: bool,
    /// Other processes that made calls.
    processes: BTreeSet<u64>,
    /// Whether there is a call.
    any_event: AnyEvent,
    /// The counts of the converters. The resolver counts the rest.
    pub(super) quality: Quality,
    /// The footer, if the source has one (hksim's own tables).
    pub(super) footer: Footer,
    notes: Vec<String>,
    /// Why the trace may be far from what the program did.
    doubts: Vec<String>,
}

impl Sink {
    /// `limits`: how far the source's events may be out of order. `process`: the process to import if the source has
    /// several.
    pub(super) fn new(
        writer: TraceWriter,
        clock: Clock,
        limits: WaitLimits,
        process: Option<u64>,
        any_event: AnyEvent,
    ) -> Self {
        Sink {
            resolver: Resolver::new(limits),
            writer,
            threads: Threads::default(),
            reorder: Reorder::default(),
            clock,
            tick_ns: 0,
            base_ns: None,
            ready: Vec::new(),
            process,
            process_seen: false,
            processes: BTreeSet::new(),
            any_event,
            quality: Quality::default(),
            footer: Footer::default(),
            notes: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// Where the times come from, as the format's row states.
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// Whether to import a call of this process. A trace contains one process: the selected one, else the first. The
    /// calls of other processes are counted.
    pub(super) fn takes_process(&mut self, pid: u64) -> bool {
        let taken = *self.process.get_or_insert(pid) == pid;
        self.process_seen |= taken;
        self.any_event.found();
        if !taken {
            self.quality.other_process_events += 1;
            if self.processes.len() < PROCESSES_NAMED_MAX {
                self.processes.insert(pid);
            }
        }
        taken
    }

    /// Adds a note that lists the processes left out. Returns an error if the selected process made no call.
    fn tell_processes(&mut self) -> Result<(), TraceError> {
        let Some(pid) = self.process else { return Ok(()) };
        let mut known = self.processes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        if self.processes.len() == PROCESSES_NAMED_MAX {
            known += ", ...";
        }
        if !self.process_seen {
            return Err(TraceError::NoProcess { pid, known });
        }
        if !known.is_empty() {
            self.note(format!("imported process {pid}; to import another, use --pid: {known}"));
        }
        Ok(())
    }

    /// Whether a block is live at the address.
    pub(super) fn is_live(&self, address: u64) -> bool {
        self.resolver.is_live(address)
    }

    /// Adds a note for the user.
    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Adds a reason why the trace may be far from what the program did.
    pub(super) fn doubt(&mut self, why: String) {
        self.doubts.push(why);
    }

    /// Takes a call from a source without times. Calls are [`Clock::EVENT_NS`] apart. `thread` is any number that is
    /// unique among live threads.
    pub(super) fn push(&mut self, thread: u64, op: RawOp) -> Result<(), Failure> {
        self.check(&op)?;
        let raw = RawEvent::new(self.tick_ns, self.threads.number(thread, &op), op);
        self.tick_ns += Clock::EVENT_NS;
        Ok(self.merge(raw)?)
    }

    /// Takes a call with its time, in nanoseconds from any origin. Calls may be slightly out of order.
    pub(super) fn push_at(&mut self, time_ns: u64, thread: u64, op: RawOp) -> Result<(), Failure> {
        self.check(&op)?;
        let raw = RawEvent::new(time_ns, self.threads.number(thread, &op), op);
        match self.reorder.push(raw) {
            Some(raw) => Ok(self.merge(raw)?),
            None => Ok(()),
        }
    }

    /// Restarts the trace with the header of a source written by hksim. Must come before all events.
    pub(super) fn begin_as(&mut self, header: &Header) -> Result<(), Failure> {
        self.writer = TraceWriter::create(self.writer.path(), header)?;
        self.clock = header.clock;
        Ok(())
    }

    /// Takes an event from one of hksim's own tables and writes it unchanged.
    pub(super) fn event(&mut self, event: &Event) -> Result<(), Failure> {
        self.any_event.found();
        Ok(self.writer.push(event)?)
    }

    /// Takes a call with its time from a source in true order. A time before that of the last call is replaced by the
    /// latter.
    pub(super) fn push_in_order(&mut self, time_ns: u64, thread: u64, op: RawOp) -> Result<(), Failure> {
        self.check(&op)?;
        self.tick_ns = self.tick_ns.max(time_ns);
        let raw = RawEvent::new(self.tick_ns, self.threads.number(thread, &op), op);
        Ok(self.merge(raw)?)
    }

    /// Checks an operation, and notes if it is a call.
    fn check(&self, op: &RawOp) -> Result<(), Failure> {
        if matches!(op, RawOp::Alloc { .. } | RawOp::Free { .. } | RawOp::Realloc { .. } | RawOp::UsableSize { .. }) {
            self.any_event.found();
        }
        check_size(op)
    }

    fn merge(&mut self, raw: RawEvent) -> Result<(), TraceError> {
        let base_ns = *self.base_ns.get_or_insert(raw.time_ns);
        let raw = RawEvent { time_ns: raw.time_ns.saturating_sub(base_ns), ..raw };
        self.resolver.push(raw, &mut |event| self.ready.push(event))?;
        self.ready.drain(..).try_for_each(|event| self.writer.push(&event))
    }

    /// Writes the remaining events and the footer.
    pub(super) fn finish(mut self) -> Result<Finished, TraceError> {
        self.tell_processes()?;
        while let Some(raw) = self.reorder.pop() {
            self.merge(raw)?;
        }
        let resolved = self.resolver.finish(&mut |event| self.ready.push(event))?;
        self.ready.drain(..).try_for_each(|event| self.writer.push(&event))?;
        let imported = self.quality + resolved;
        let quality = self.footer.quality + imported;
        let summary = self.writer.finish(&Footer { quality, ..self.footer })?;
        // What hksim's own tables state about their recording was known when they were written.
        self.doubts.extend(doubt_of_share(imported.share(summary.events)));
        Ok(Finished { summary, quality, notes: self.notes, doubts: self.doubts })
    }
}

fn doubt_of_share(share: f64) -> Option<String> {
    (share < SHARE_MIN).then(|| {
        format!("only {:.1} % of the known calls are in the file as they were made", (share * 1000.0).floor() / 10.0)
    })
}

/// A written trace.
pub(super) struct Finished {
    pub(super) summary: Summary,
    pub(super) quality: Quality,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
    /// Why the trace may be far from what the program did.
    pub(super) doubts: Vec<String>,
}

/// Checks size and alignment of a call. A call that returned a block cannot have a size above the address space.
fn check_size(op: &RawOp) -> Result<(), Failure> {
    let (address, size, align_log2) = match *op {
        RawOp::Alloc { address, size, align_log2, .. } => (address, size, align_log2),
        RawOp::Realloc { new, size, .. } => (new, size, 0),
        _ => return Ok(()),
    };
    if address != 0 && size >= Op::BLOCK_BYTES_END {
        return Err("the block is larger than the address space".into());
    }
    if align_log2 > 63 { Err("the alignment is above 2^63".into()) } else { Ok(()) }
}
