//! The events of one thread buffer, decoded from its chunks.

use std::sync::Arc;

use hksim_trace::event::{AllocCall, InitialTouch, ReallocCall, SiteId};
use hksim_trace::memory_policy::MemoryPolicy;
use hksim_trace::resolve::{Plain, RawEvent, RawOp};

use crate::buffer_reader::{BufferReader, Extent};
use crate::encoding::{Kind, Record};
use crate::error::RecordError;
use crate::event_log::NESTED_RECORDS;
use crate::log_reader::{BufferChunks, LogReader};
use crate::marks::{MarkNames, MarkPieces};
use crate::merge::EventSink;
use crate::plain_calls::PlainCalls;
use crate::stamps::{BufferClock, Stamps};

/// An event, and whether it is a realloc that moves its block.
#[derive(Clone, Copy, Debug)]
pub struct ThreadEvent {
    /// The event; a realloc that moves its block has its second stamp. Its site is a place in the log.
    pub raw: RawEvent,
    /// The first stamp of a realloc that moves its block.
    pub moving_since_ns: Option<u64>,
}

impl ThreadEvent {
    /// When the event begins to have an effect. The old block of a realloc may be reused from its first stamp on.
    fn begins_ns(&self) -> u64 {
        self.moving_since_ns.unwrap_or(self.raw.time_ns)
    }
}

/// What comes next in a thread buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// The next call of `plain`.
    Plain,
    /// The next event of the batch.
    Batched,
    /// An event that the process has not written yet.
    Awaited,
    /// Nothing: the buffer has ended.
    End,
}

/// The events of one thread buffer, in program order, with times that never decrease.
pub struct ThreadEvents {
    reader: BufferReader,
    clock: BufferClock,
    names: Arc<MarkNames>,
    pieces: MarkPieces,
    /// Number of the thread that wrote these records.
    thread: Option<u32>,
    head: Head,
    /// Common calls, decoded in a batch.
    plain: PlainCalls,
    /// Events decoded one by one; they come after those of `plain`.
    batch: Vec<ThreadEvent>,
    /// Index of the next event of the batch.
    next: usize,
    ended: bool,
}

impl ThreadEvents {
    /// The events of `buffer`, from the first. Names of marks are added to `names`.
    ///
    /// # Errors
    /// The log cannot be read or is damaged.
    pub fn new(
        log: Arc<LogReader>,
        buffer: BufferChunks,
        extent: Extent,
        stamps: Stamps,
        names: Arc<MarkNames>,
    ) -> Result<Self, RecordError> {
        let clock = BufferClock::new(stamps, log.control.start_ticks);
        let mut events = Self {
            reader: BufferReader::new(log, buffer, extent),
            clock,
            names,
            pieces: MarkPieces::default(),
            thread: None,
            head: Head::End,
            plain: PlainCalls::default(),
            batch: Vec::with_capacity(2 * NESTED_RECORDS),
            next: 0,
            ended: false,
        };
        events.head = events.next_head()?;
        Ok(events)
    }

    /// Chunk number of the buffer in the log.
    pub fn number(&self) -> u64 {
        self.reader.number()
    }

    /// Replaces the buffer by its present state.
    ///
    /// # Errors
    /// The log cannot be read or is damaged.
    pub fn extend(&mut self, buffer: BufferChunks, extent: Extent) -> Result<(), RecordError> {
        self.reader.extend(buffer, extent);
        if self.head == Head::Awaited {
            self.head = self.next_head()?;
        }
        Ok(())
    }

    /// The next event; `None` at the end, or if it is not written yet.
    pub fn head(&self) -> Option<ThreadEvent> {
        match self.head {
            Head::Plain => self.plain.rest().first().map(|call| ThreadEvent { raw: call.raw(), moving_since_ns: None }),
            Head::Batched => self.batch.get(self.next).copied(),
            Head::Awaited | Head::End => None,
        }
    }

    /// The operation and first stamp of the next event, if that is a realloc that moves its block.
    #[inline]
    pub fn moving(&self) -> Option<(RawOp, u64)> {
        let event = self.batch.get(self.next).filter(|_| self.head == Head::Batched)?;
        Some((event.raw.op, event.moving_since_ns?))
    }

    /// Time of the next event, or a lower bound of it; [`u64::MAX`], which no event has, at the end.
    #[inline]
    pub fn time_ns(&self) -> u64 {
        match self.head {
            Head::Plain => self.plain.rest().first().map_or(u64::MAX, Plain::time_ns),
            Head::Batched => self.batch.get(self.next).map_or(u64::MAX, |event| event.raw.time_ns),
            Head::Awaited => self.clock.time_ns(),
            Head::End => u64::MAX,
        }
    }

    /// Advances to the next event.
    ///
    /// # Errors
    /// The log cannot be read or is damaged.
    pub fn advance(&mut self) -> Result<(), RecordError> {
        self.head = match self.head {
            Head::Plain => return self.pass_plain(1),
            Head::Batched => self.next_batched()?,
            Head::Awaited | Head::End => self.next_head()?,
        };
        Ok(())
    }

    /// The time before which all common calls are decoded and no other event has an effect. Decodes more if few are
    /// left.
    ///
    /// # Errors
    /// The log cannot be read or is damaged.
    pub fn look_ahead(&mut self) -> Result<u64, RecordError> {
        if self.head != Head::Plain {
            return Ok(self.time_ns());
        }
        let is_last = |events: &Self| events.next >= events.batch.len();
        if self.plain.runs_short() && is_last(self) {
            self.decode_plain();
            if !self.plain.is_full() && is_last(self) {
                return Ok(match self.decode_batch()? {
                    Head::Plain | Head::Awaited => self.clock.time_ns(),
                    Head::Batched => self.batch.first().map_or(u64::MAX, ThreadEvent::begins_ns),
                    Head::End => u64::MAX,
                });
            }
        }
        let last = self.plain.rest().last().map_or(u64::MAX, Plain::time_ns);
        Ok(self.batch.get(self.next).map_or(last, ThreadEvent::begins_ns))
    }

    /// The next common calls that are before `end_ns`.
    pub fn plain_before(&self, end_ns: u64) -> &[Plain] {
        let calls = self.plain.rest();
        &calls[..calls.partition_point(|call| call.time_ns() < end_ns)]
    }

    /// Consumes `calls` common calls.
    ///
    /// # Errors
    /// The log cannot be read or is damaged.
    pub fn pass_plain(&mut self, calls: usize) -> Result<(), RecordError> {
        self.plain.pass(calls);
        if self.plain.rest().is_empty() {
            self.head = self.next_head()?;
        }
        Ok(())
    }

    /// Passes the events before `end_ns` to `each`, up to a realloc that moves its block.
    ///
    /// # Errors
    /// The log cannot be read or is damaged, or `each` failed.
    pub fn run_ahead(&mut self, end_ns: u64, each: &mut impl EventSink) -> Result<(), RecordError> {
        while self.time_ns() < end_ns {
            match self.head {
                Head::Plain => {
                    let calls = self.plain_before(end_ns);
                    let passed = calls.len();
                    each.take_plain(calls)?;
                    self.pass_plain(passed)?;
                }
                Head::Batched if self.moving().is_some() => return Ok(()),
                Head::Batched => {
                    if let Some(event) = self.batch.get(self.next) {
                        each.take(&event.raw)?;
                    }
                    self.head = self.next_batched()?;
                }
                Head::Awaited | Head::End => return Ok(()),
            }
        }
        Ok(())
    }

    /// Decodes common calls after those that are left, up to another event. No other event may be decoded already.
    fn decode_plain(&mut self) {
        self.batch.clear();
        self.next = 0;
        let Some(thread) = self.thread else {
            return;
        };
        if let Some(record) = self.reader.read_plain(&mut self.plain, thread, &mut self.clock) {
            self.add(&record);
        }
    }

    /// Decodes the next events; everything decoded must be consumed.
    fn next_head(&mut self) -> Result<Head, RecordError> {
        if self.next < self.batch.len() {
            return Ok(Head::Batched);
        }
        self.decode_plain();
        if !self.plain.rest().is_empty() {
            Ok(Head::Plain)
        } else if !self.batch.is_empty() {
            Ok(Head::Batched)
        } else {
            self.decode_batch()
        }
    }

    fn next_batched(&mut self) -> Result<Head, RecordError> {
        self.next += 1;
        if self.next < self.batch.len() { Ok(Head::Batched) } else { self.next_head() }
    }

    /// Decodes up to an event that is not compact, or to the end.
    #[inline(never)]
    fn decode_batch(&mut self) -> Result<Head, RecordError> {
        self.batch.clear();
        self.next = 0;
        while self.batch.is_empty() {
            if self.ended {
                return Ok(Head::End);
            }
            match (self.reader.next_record()?, self.reader.extent()) {
                (Some(record), _) => self.add(&record),
                (None, Extent::Whole) => self.end()?,
                (None, Extent::Until(_)) if self.reader.ended_ticks() != 0 && self.thread.is_some() => {
                    self.end_thread(self.reader.ended_ticks());
                }
                (None, Extent::Until(time_ns)) => {
                    self.clock.advance_to(time_ns);
                    return Ok(Head::Awaited);
                }
            }
        }
        Ok(Head::Batched)
    }

    /// Adds what follows the last record: nested records that the thread did not fetch, and the end of the thread.
    fn end(&mut self) -> Result<(), RecordError> {
        self.ended = true;
        for record in self.reader.nested_records()? {
            self.add(&record);
        }
        if self.reader.ended_ticks() != 0 {
            self.end_thread(self.reader.ended_ticks());
        }
        Ok(())
    }

    fn end_thread(&mut self, ticks: u64) {
        if let Some(thread) = self.thread.take() {
            // Beginnings and ends of threads are not numbered.
            let time_ns = match self.clock.stamps() {
                Stamps::Ticks(_) => self.clock.advance(ticks),
                Stamps::Numbers => self.clock.time_ns(),
            };
            self.mark(time_ns, thread, RawOp::ThreadExit);
        }
    }

    /// Adds the event of a record.
    #[inline]
    fn add(&mut self, record: &Record) {
        let Some(op) = op(record) else {
            return self.add_other(record);
        };
        let Some(thread) = self.thread else {
            return;
        };
        let begun_ns = self.clock.advance(record.ticks);
        let moves = match (op, self.clock.stamps()) {
            (RawOp::Realloc { old, .. }, Stamps::Numbers) => old != 0,
            (RawOp::Realloc { old, new, .. }, Stamps::Ticks(_)) => new != 0 && old != 0 && new != old,
            _ => false,
        };
        let moving_since_ns = moves.then_some(begun_ns);
        let time_ns = if moves { self.clock.advance(record.ticks.saturating_add(record.duration)) } else { begun_ns };
        let raw = RawEvent { site: SiteId(record.site), ..RawEvent::new(time_ns, thread, op) };
        self.batch.push(ThreadEvent { raw, moving_since_ns });
    }

    fn mark(&mut self, time_ns: u64, thread: u32, op: RawOp) {
        let raw = RawEvent::new(time_ns, thread, op);
        self.batch.push(ThreadEvent { raw, moving_since_ns: None });
    }

    /// Adds the effect of a record that is no call.
    fn add_other(&mut self, record: &Record) {
        if record.kind == Kind::Thread {
            self.begin_thread(record);
        } else if record.kind == Kind::Mark
            && let (Some(name), Some(thread)) = (self.pieces.add(record), self.thread)
        {
            let time_ns = self.clock.advance(record.ticks);
            self.mark(time_ns, thread, RawOp::Mark { name: self.names.number(&name) });
        }
    }

    /// A chunk begins with the name of its thread. A new name means that the previous thread had ended.
    fn begin_thread(&mut self, record: &Record) {
        let thread = u32::try_from(record.size).unwrap_or(u32::MAX);
        if self.reader.take_gap() {
            let time_ns = self.clock.advance(record.ticks);
            self.mark(time_ns, thread, RawOp::Gap);
        }
        if self.thread == Some(thread) {
            return;
        }
        self.end_thread(0);
        self.reader.log.note_thread(u32::try_from(record.address).unwrap_or(u32::MAX), thread);
        self.thread = Some(thread);
        // Without a number the event would come too early; the thread then begins with its first event.
        if matches!(self.clock.stamps(), Stamps::Ticks(_)) {
            let time_ns = self.clock.advance(record.ticks);
            self.mark(time_ns, thread, RawOp::ThreadStart);
        }
    }
}

fn alloc(record: &Record, call: AllocCall) -> RawOp {
    let &Record { address, size, align_log2, .. } = record;
    RawOp::Alloc { address, size, align_log2, call, initial_touch: InitialTouch::None }
}

/// The operation of a record; `None` for the name of a thread, a mark, or an unknown memory policy.
#[inline]
fn op(record: &Record) -> Option<RawOp> {
    let &Record { kind, address, old, size, .. } = record;
    let alloc = |call| alloc(record, call);
    let realloc = |call| RawOp::Realloc { old, new: address, size, call, initial_touch: InitialTouch::None };
    Some(match kind {
        Kind::Malloc => alloc(AllocCall::Malloc),
        Kind::Calloc => alloc(AllocCall::Calloc),
        Kind::PosixMemalign => alloc(AllocCall::PosixMemalign),
        Kind::AlignedAlloc => alloc(AllocCall::AlignedAlloc),
        Kind::Memalign => alloc(AllocCall::Memalign),
        Kind::Valloc => alloc(AllocCall::Valloc),
        Kind::Pvalloc => alloc(AllocCall::Pvalloc),
        Kind::Realloc => realloc(ReallocCall::Realloc),
        Kind::Reallocarray => realloc(ReallocCall::Reallocarray),
        Kind::Free => RawOp::Free { address },
        Kind::UsableSize => RawOp::UsableSize { address },
        Kind::Fork => RawOp::Fork { child_pid: u32::try_from(address).unwrap_or(u32::MAX) },
        Kind::MemoryPolicy => {
            let numbers = (u8::try_from(address).ok()?, u32::try_from(size).ok()?);
            RawOp::MemoryPolicy { policy: MemoryPolicy::of_numbers(numbers.0, numbers.1)?, inherited: false }
        }
        Kind::Thread | Kind::Mark => return None,
    })
}
