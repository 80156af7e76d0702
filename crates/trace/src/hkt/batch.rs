//! Events by column: what a consumer needs that handles most events alike.

use super::CHUNK_EVENTS_MAX;
use super::assemble::Assembled;
use super::code;
use super::columns::Columns;
use crate::event::{AllocCall, Event, InitialTouch, ObjectId, Op, SiteId, ThreadId};

/// Up to [`CHUNK_EVENTS_MAX`] consecutive events, by column. Nearly all events of a trace are *common*: `malloc`,
/// `calloc` and `free` without details. Only the others exist as [`Event`]s.
///
/// [`Batch::read`] walks through the events.
pub struct Batch {
    pub(super) columns: Columns,
    pub(super) assembled: Assembled,
    /// The time of the event before the first.
    pub(super) before_ns: u64,
    /// The time of the last event of the columns.
    pub(super) last_ns: u64,
}

/// A common event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommonCall {
    /// An allocation.
    Alloc {
        /// The new object.
        object: ObjectId,
        /// Requested bytes, below [`Op::BLOCK_BYTES_END`].
        size: u64,
        /// The function and the initial touch.
        kind: CommonAlloc,
    },
    /// `free` of a live object.
    Free {
        /// The object.
        object: ObjectId,
    },
}

/// The function of a common allocation, and the initial touch of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonAlloc(u8);

impl CommonAlloc {
    /// Length of tables by [`CommonAlloc::index`]: a power of two, so that no bounds check is needed.
    const TABLE_LENGTH: usize = code::COMMON.len().next_power_of_two();

    /// A table of what `value` returns for each kind, by [`CommonAlloc::index`].
    pub fn table<T>(value: impl Fn(CommonAlloc) -> T) -> [T; CommonAlloc::TABLE_LENGTH] {
        std::array::from_fn(|code| value(CommonAlloc(code.min(code::COMMON.len() - 1) as u8)))
    }

    /// Its position in a [`table`](Self::table).
    #[inline(always)]
    pub fn index(self) -> usize {
        usize::from(self.0) % CommonAlloc::TABLE_LENGTH
    }

    /// `malloc` or `calloc`.
    #[inline(always)]
    pub fn call(self) -> AllocCall {
        code::COMMON[self.index()].0
    }

    /// `None`, `FirstByte` or `All`.
    #[inline(always)]
    pub fn initial_touch(self) -> InitialTouch {
        code::COMMON[self.index()].1
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// A batch without events. Allocates its columns.
    pub fn new() -> Self {
        Batch {
            columns: Columns::new(),
            assembled: Assembled::with_capacity(CHUNK_EVENTS_MAX),
            before_ns: 0,
            last_ns: 0,
        }
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.assembled.objects.len()
    }

    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the events from the first.
    pub fn read(&self) -> BatchReader<'_> {
        self.read_from(BatchPosition::default())
    }

    pub(super) fn read_from(&self, at: BatchPosition) -> BatchReader<'_> {
        BatchReader { batch: self, at }
    }

    /// Removes all events.
    pub fn clear(&mut self) {
        self.columns.clear();
        self.assembled.clear();
        self.before_ns = 0;
        self.last_ns = 0;
    }

    /// Replaces the events by these, at most [`CHUNK_EVENTS_MAX`].
    ///
    /// # Panics
    /// If there are more.
    pub fn copy_from(&mut self, events: &[Event]) {
        assert!(events.len() <= CHUNK_EVENTS_MAX, "{} events do not fit into a batch", events.len());
        self.clear();
        self.before_ns = events.first().map_or(0, |event| event.time_ns);
        let mut time_ns = self.before_ns;
        for event in events {
            self.columns.push(event.time_ns - time_ns, event);
            time_ns = event.time_ns;
            let is_common = self.columns.ops.last().is_some_and(|&code| code <= code::FREE);
            self.assembled.objects.push(event.op.object().filter(|_| is_common).map_or(0, |object| object.0));
            if !is_common {
                self.assembled.push_other(self.columns.len() - 1, *event);
            }
        }
        self.columns.close_run(events.len());
        self.last_ns = time_ns;
    }
}

/// How far a batch has been read: the next entry of each column.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BatchPosition {
    event: usize,
    size: usize,
    other: usize,
    /// Thread runs begun so far, and the first event after the last of these.
    run: usize,
    run_end: usize,
    clock: Clock,
}

/// The sum of the first `deltas` time deltas of a batch.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    deltas: usize,
    sum_ns: u64,
}

impl Clock {
    /// Adds deltas until the sum contains the first `deltas` of them. Returns the sum.
    fn advance(&mut self, batch: &Batch, deltas: usize) -> u64 {
        self.sum_ns += batch.columns.time_deltas.sum_ns(self.deltas..deltas);
        self.deltas = deltas;
        self.sum_ns
    }
}

/// Walks through a [`Batch`]. The next event is either the first of a [`CommonRun`] or an uncommon one.
pub struct BatchReader<'a> {
    batch: &'a Batch,
    at: BatchPosition,
}

impl<'a> BatchReader<'a> {
    /// Number of events passed.
    pub fn passed(&self) -> usize {
        self.at.event
    }

    /// The time of the last event passed; before the first, that of the event before the batch.
    pub fn time_ns(&mut self) -> u64 {
        self.time_ns_after(self.at.event)
    }

    /// The time of the last of the first `events` events of the batch. Adds up the time since the previous call, so call
    /// it only where the time is needed.
    ///
    /// `events` is at least that of the previous call, and at most the batch's length.
    pub fn time_ns_after(&mut self, events: usize) -> u64 {
        // Most batches are read to their end, where nothing has to be added up.
        if events == self.batch.columns.len() {
            return self.batch.last_ns;
        }
        self.batch.before_ns + self.at.clock.advance(self.batch, events)
    }

    /// The common events of one thread from here on, before event `end` of the batch. Empty if the next event is
    /// uncommon. After reading from it, call [`BatchReader::pass`].
    #[inline(always)]
    pub fn common(&mut self, end: usize) -> CommonRun<'a> {
        let Batch { columns, assembled, .. } = self.batch;
        let first = self.at.event;
        let end = end.min(self.next_other());
        let (thread, end) = if first < end { (self.thread(), end.min(self.at.run_end)) } else { Default::default() };
        let (codes, objects) = (&columns.ops[first..end.max(first)], &assembled.objects[first..end.max(first)]);
        let (objects_ahead, sizes) = (&assembled.objects[first..], columns.sizes[self.at.size..].iter());
        CommonRun { thread, codes, objects, objects_ahead, at: 0, sizes_before: sizes.len(), sizes, first }
    }

    /// The position of the next uncommon event; the end of the batch if there is none.
    fn next_other(&self) -> usize {
        self.batch.assembled.others_at.get(self.at.other).copied().unwrap_or(self.batch.len())
    }

    /// Passes the events that were read from `run`, the last result of [`BatchReader::common`].
    #[inline(always)]
    pub fn pass(&mut self, run: CommonRun<'a>) {
        self.at.event = run.passed();
        self.at.size += run.sizes_before - run.sizes.len();
    }

    /// Passes the next event if it is uncommon.
    pub fn uncommon(&mut self) -> Option<&'a Event> {
        let event = self.batch.assembled.others.get(self.at.other).filter(|_| self.next_other() == self.at.event)?;
        self.at.event += 1;
        self.at.other += 1;
        self.at.size += usize::from(event.op.asks_for_memory());
        Some(event)
    }

    /// Passes up to `count` events and appends them to `events`.
    pub fn events(&mut self, count: usize, events: &mut Vec<Event>) {
        let end = self.batch.len().min(self.at.event.saturating_add(count));
        while self.at.event < end {
            match self.uncommon() {
                Some(event) => events.push(*event),
                None => self.common_events(end, events),
            }
        }
    }

    /// Passes common events of one thread before event `end`, at least one, and appends them to `events`.
    fn common_events(&mut self, end: usize, events: &mut Vec<Event>) {
        let Columns { time_deltas, sites, .. } = &self.batch.columns;
        let (first, first_size) = (events.len(), self.at.size);
        let mut time_ns = self.time_ns();
        let mut run = self.common(end);
        let thread = run.thread;
        // The number of events is known beforehand, so the vector grows once.
        let deltas = time_deltas.as_slice()[self.at.event..].iter().zip(run.codes);
        events.extend(deltas.map(|(&delta_ns, _)| {
            time_ns += delta_ns;
            let call = run.next().unwrap_or_else(|| unreachable!("a run has as many calls as codes"));
            Event::new(time_ns, thread, call.op())
        }));
        self.pass(run);
        self.at.clock = Clock { deltas: self.at.event, sum_ns: time_ns - self.batch.before_ns };
        if let Some(sites) = sites.get(first_size..self.at.size) {
            let asking = events[first..].iter_mut().filter(|event| event.op.asks_for_memory());
            asking.zip(sites).for_each(|(event, &site)| event.site = SiteId(site));
        }
    }

    /// How far the batch has been read.
    pub(super) fn position(&self) -> BatchPosition {
        self.at
    }

    /// The thread of the next event.
    fn thread(&mut self) -> ThreadId {
        let Columns { run_threads, run_lengths, .. } = &self.batch.columns;
        while self.at.run_end <= self.at.event {
            self.at.run_end += usize::from(run_lengths[self.at.run]);
            self.at.run += 1;
        }
        ThreadId(run_threads[self.at.run - 1])
    }
}

/// Consecutive common events of one thread.
pub struct CommonRun<'a> {
    thread: ThreadId,
    codes: &'a [u8],
    /// As many as `codes`.
    objects: &'a [u32],
    /// The objects from here to the end of the batch.
    objects_ahead: &'a [u32],
    /// How many of the codes were read.
    at: usize,
    /// The sizes that were not read, and their number before the run.
    sizes: std::slice::Iter<'a, u64>,
    sizes_before: usize,
    /// The first event of the run, as a position in the batch.
    first: usize,
}

impl CommonRun<'_> {
    /// The thread of these events.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Number of events of the batch before the next one.
    #[inline(always)]
    pub fn passed(&self) -> usize {
        self.first + self.at
    }

    /// The object of the event that follows `events` events after the next one, of any thread; `None` after the batch's
    /// last. Of an uncommon event, a number without meaning.
    #[inline(always)]
    pub fn object_ahead(&self, events: usize) -> Option<ObjectId> {
        self.objects_ahead.get(self.at + events).map(|&object| ObjectId(object))
    }
}

impl Iterator for CommonRun<'_> {
    type Item = CommonCall;

    #[inline(always)]
    fn next(&mut self) -> Option<CommonCall> {
        let (&code, &object) = (self.codes.get(self.at)?, self.objects.get(self.at)?);
        self.at += 1;
        let object = ObjectId(object);
        if code == code::FREE {
            return Some(CommonCall::Free { object });
        }
        let &size = self.sizes.next()?;
        Some(CommonCall::Alloc { object, size, kind: CommonAlloc(code) })
    }
}

impl CommonCall {
    /// The call as an [`Op`].
    #[inline(always)]
    pub fn op(self) -> Op {
        match self {
            CommonCall::Free { object } => Op::Free { object },
            CommonCall::Alloc { object, size, kind } => {
                Op::Alloc { object, size, align_log2: 0, call: kind.call(), initial_touch: kind.initial_touch() }
            }
        }
    }
}
