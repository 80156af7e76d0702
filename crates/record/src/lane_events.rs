//! The events of one lane, decoded from its frames.

use std::sync::Arc;

use hksim_trace::event::{AllocCall, InitialTouch, ReallocCall, SiteId};
use hksim_trace::memory_policy::MemoryPolicy;
use hksim_trace::resolve::{Plain, RawEvent, RawOp};

use crate::clock::TickRate;
use crate::encoding::{ESCAPE_WORDS, Kind, NUMBER_SHIFT, RECORD_WORDS, Record, Regions, read_escape};
use crate::error::RecordError;
use crate::marks::{MarkNames, MarkPieces};
use crate::merge::Taker;
use crate::plain_calls::{Lane, PlainCalls};
use crate::spool::{FRAME_BYTES, NESTED_OFFSET, NESTED_RECORDS};
use crate::spool_reader::{FilledFrame, LaneFrames, SpoolReader};

/// Words read at a time.
const WINDOW_WORDS: usize = 2048;
/// No event is later: [`u64::MAX`] is the time of what never comes.
pub const TIME_NS_MAX: u64 = u64::MAX - 1;

/// What the stamps of a spool's records are.
#[derive(Clone, Copy, Debug)]
pub enum Stamps {
    /// Time stamp counters.
    Ticks(TickRate),
    /// Numbers of one order for all threads, from 1. A resizing call stands at its end.
    Numbers,
}

impl Stamps {
    /// Nanoseconds since the start of an image that began at `start_ticks`, or the number.
    #[inline(always)]
    pub fn time_ns(self, ticks: u64, start_ticks: u64) -> u64 {
        match self {
            Stamps::Ticks(rate) => rate.ns(ticks.saturating_sub(start_ticks)),
            Stamps::Numbers => ticks >> NUMBER_SHIFT,
        }
    }
}

/// An event, and whether it is a realloc that moves its block.
#[derive(Clone, Copy, Debug)]
pub struct LaneEvent {
    /// The event; of a realloc that moves its block, at its second stamp. Its site is a place in the spool.
    pub raw: RawEvent,
    /// The first stamp of a realloc that moves its block.
    pub moving_since_ns: Option<u64>,
}

impl LaneEvent {
    /// When it begins to have an effect. The old block of a realloc may be given out again from its first stamp on.
    fn begins_ns(&self) -> u64 {
        self.moving_since_ns.unwrap_or(self.raw.time_ns)
    }
}

/// What a lane stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// The next one of `plain`.
    Plain,
    /// The next one of the batch.
    Batched,
    /// What the process has not written yet.
    Awaited,
    /// Nothing.
    End,
}

/// Whether a lane holds all the records it ever will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// It does.
    Whole,
    /// All of the records before that time, in nanoseconds, and some after it.
    Until(u64),
}

/// The events of one lane, in program order, with times that never decrease.
pub struct LaneEvents {
    spool: Arc<SpoolReader>,
    lane: LaneFrames,
    extent: Extent,
    stamps: Stamps,
    names: Arc<MarkNames>,
    pieces: MarkPieces,
    regions: Regions,
    /// Index of the frame being read in `lane.frames`.
    frame: usize,
    /// Words of that frame taken into the window.
    taken: usize,
    window: Vec<u64>,
    /// Words of the window that are decoded.
    used: usize,
    /// Number of the thread whose records these are.
    thread: Option<u32>,
    time_ns: u64,
    head: Head,
    /// Common calls decoded at once.
    plain: PlainCalls,
    /// Events decoded one by one, which come behind those.
    batch: Vec<LaneEvent>,
    /// Index of the next one.
    next: usize,
    ended: bool,
    /// Whether a fill is missing before the present one.
    after_gap: bool,
}

impl LaneEvents {
    /// The events of `lane`, standing at the first. Names of marks are added to `names`.
    ///
    /// # Errors
    /// The spool cannot be read or is damaged.
    pub fn new(
        spool: Arc<SpoolReader>,
        lane: LaneFrames,
        extent: Extent,
        stamps: Stamps,
        names: Arc<MarkNames>,
    ) -> Result<Self, RecordError> {
        let after_gap = lane.frames.first().is_some_and(|frame| frame.fill != 0);
        let mut events = Self {
            spool,
            lane,
            extent,
            stamps,
            names,
            pieces: MarkPieces::default(),
            regions: Regions::new(),
            frame: 0,
            taken: 0,
            window: Vec::new(),
            used: 0,
            thread: None,
            time_ns: 0,
            head: Head::End,
            plain: PlainCalls::default(),
            batch: Vec::with_capacity(2 * NESTED_RECORDS),
            next: 0,
            ended: false,
            after_gap,
        };
        events.head = events.next_head()?;
        Ok(events)
    }

    /// Frame number of the lane in the spool.
    pub fn number(&self) -> u64 {
        self.lane.own
    }

    /// Goes on with the same lane as it is now.
    ///
    /// # Errors
    /// The spool cannot be read or is damaged.
    pub fn extend(&mut self, lane: LaneFrames, extent: Extent) -> Result<(), RecordError> {
        if let Some(fill) = self.lane.frames.get(self.frame).map(|frame| frame.fill) {
            self.frame = lane.frames.partition_point(|frame| frame.fill < fill);
            if lane.frames.get(self.frame).is_none_or(|frame| frame.fill != fill) {
                self.after_gap = true; // the rest of the fill was lost
                self.begin_frame();
            }
        }
        (self.lane, self.extent) = (lane, extent);
        if self.head == Head::Awaited {
            self.head = self.next_head()?;
        }
        Ok(())
    }

    /// The event it stands at; `None` at the end, or where it is not written yet.
    pub fn head(&self) -> Option<LaneEvent> {
        match self.head {
            Head::Plain => self.plain.rest().first().map(|call| LaneEvent { raw: call.raw(), moving_since_ns: None }),
            Head::Batched => self.batch.get(self.next).copied(),
            Head::Awaited | Head::End => None,
        }
    }

    /// The event it stands at, if that is a realloc that moves its block, and its first stamp.
    #[inline]
    pub fn moving(&self) -> Option<(RawOp, u64)> {
        let event = self.batch.get(self.next).filter(|_| self.head == Head::Batched)?;
        Some((event.raw.op, event.moving_since_ns?))
    }

    /// Time of the event it stands at, or the least that it can have; [`u64::MAX`], which no event has, at the end.
    #[inline]
    pub fn time_ns(&self) -> u64 {
        match self.head {
            Head::Plain => self.plain.rest().first().map_or(u64::MAX, Plain::time_ns),
            Head::Batched => self.batch.get(self.next).map_or(u64::MAX, |event| event.raw.time_ns),
            Head::Awaited => self.time_ns,
            Head::End => u64::MAX,
        }
    }

    /// Goes on to the next event.
    ///
    /// # Errors
    /// The spool cannot be read or is damaged.
    pub fn advance(&mut self) -> Result<(), RecordError> {
        self.head = match self.head {
            Head::Plain => return self.pass_plain(1),
            Head::Batched => self.next_batched()?,
            Head::Awaited | Head::End => self.next_head()?,
        };
        Ok(())
    }

    /// The time before which all its common calls are decoded, and nothing else of it has an effect. Decodes more where
    /// they run short.
    ///
    /// # Errors
    /// The spool cannot be read or is damaged.
    pub fn look_ahead(&mut self) -> Result<u64, RecordError> {
        if self.head != Head::Plain {
            return Ok(self.time_ns());
        }
        let is_last = |events: &Self| events.next >= events.batch.len();
        if self.plain.runs_short() && is_last(self) {
            self.decode_plain();
            if !self.plain.is_full() && is_last(self) {
                return Ok(match self.decode_batch()? {
                    Head::Plain | Head::Awaited => self.time_ns,
                    Head::Batched => self.batch.first().map_or(u64::MAX, LaneEvent::begins_ns),
                    Head::End => u64::MAX,
                });
            }
        }
        let last = self.plain.rest().last().map_or(u64::MAX, Plain::time_ns);
        Ok(self.batch.get(self.next).map_or(last, LaneEvent::begins_ns))
    }

    /// The common calls from the present event on that are before `end_ns`.
    pub fn plain_before(&self, end_ns: u64) -> &[Plain] {
        let calls = self.plain.rest();
        &calls[..calls.partition_point(|call| call.time_ns() < end_ns)]
    }

    /// Goes on over so many common calls.
    ///
    /// # Errors
    /// The spool cannot be read or is damaged.
    pub fn pass_plain(&mut self, calls: usize) -> Result<(), RecordError> {
        self.plain.pass(calls);
        if self.plain.rest().is_empty() {
            self.head = self.next_head()?;
        }
        Ok(())
    }

    /// Hands the events before `end_ns` to `each`, up to a realloc that moves its block, and stands at the next one.
    ///
    /// # Errors
    /// The spool cannot be read or is damaged, or `each` failed.
    pub fn run_ahead(&mut self, end_ns: u64, each: &mut impl Taker) -> Result<(), RecordError> {
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

    /// Decodes common calls behind those that are left, up to one that is not, when no other event is decoded.
    fn decode_plain(&mut self) {
        self.batch.clear();
        self.next = 0;
        let (Some(thread), Some(words)) = (self.thread, self.window.get(self.used..)) else {
            return;
        };
        let start_ticks = self.spool.control.start_ticks;
        let lane = Lane { thread, stamps: self.stamps, start_ticks, time_ns: self.time_ns };
        let decoded = self.plain.decode(words, &lane, &mut self.regions);
        self.used += decoded.words;
        self.time_ns = decoded.time_ns;
        if let Some(record) = decoded.other {
            self.add(&record);
        }
    }

    /// Decodes what comes next, when everything decoded is passed.
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
            match (self.next_record()?, self.extent) {
                (Some(record), _) => self.add(&record),
                (None, Extent::Whole) => self.end()?,
                (None, Extent::Until(_)) if self.lane.header.ended_ticks != 0 && self.thread.is_some() => {
                    self.end_thread(self.lane.header.ended_ticks);
                }
                (None, Extent::Until(time_ns)) => {
                    self.time_ns = self.time_ns.max(time_ns);
                    return Ok(Head::Awaited);
                }
            }
        }
        Ok(Head::Batched)
    }

    fn next_record(&mut self) -> Result<Option<Record>, RecordError> {
        loop {
            if let Some((record, used)) = self.regions.decode(self.window.get(self.used..).unwrap_or_default()) {
                self.used += used;
                return Ok(Some(record));
            }
            let Some(&frame) = self.lane.frames.get(self.frame) else {
                return Ok(None);
            };
            if self.taken < frame.words {
                if self.window.len() - self.used >= RECORD_WORDS {
                    return Err(self.spool.damaged(frame.number, "its records cannot be read"));
                }
                self.refill(&frame)?;
            } else if self.used < self.window.len() {
                return Err(self.spool.damaged(frame.number, "its last record is cut off"));
            } else if self.extent != Extent::Whole && frame.number == self.lane.own {
                return Ok(None); // it is being filled
            } else {
                self.frame += 1;
                let next = self.lane.frames.get(self.frame);
                self.after_gap |= next.is_some_and(|next| next.fill != frame.fill.wrapping_add(1));
                self.begin_frame();
            }
        }
    }

    /// Moves the rest of the window to its front and fills it up.
    fn refill(&mut self, frame: &FilledFrame) -> Result<(), RecordError> {
        self.window.drain(..self.used);
        self.used = 0;
        let rest = self.window.len();
        let more = (frame.words - self.taken).min(WINDOW_WORDS - rest);
        self.window.resize(rest + more, 0);
        let from = self.taken;
        if let Some(empty) = self.window.get_mut(rest..) {
            let snapshot = self.lane.snapshot.as_ref().filter(|_| frame.number == self.lane.own);
            match snapshot.and_then(|words| words.get(from..from + more)) {
                Some(words) => empty.copy_from_slice(words),
                None => self.spool.read_words(frame.number, from, empty)?,
            }
        }
        self.taken += more;
        Ok(())
    }

    fn begin_frame(&mut self) {
        self.taken = 0;
        self.used = 0;
        self.window.clear();
        self.regions = Regions::new();
    }

    /// Adds what follows the last record: nested records not fetched, and the thread's end.
    fn end(&mut self) -> Result<(), RecordError> {
        self.ended = true;
        let header = self.lane.header;
        let nested = (header.nested as usize).min(NESTED_RECORDS);
        let mut words = vec![0; nested * ESCAPE_WORDS];
        let offset = self.lane.own * FRAME_BYTES as u64 + NESTED_OFFSET as u64;
        self.spool.read_u64s(offset, &mut words)?;
        for escape in words.chunks_exact(ESCAPE_WORDS) {
            if let Some(record) = read_escape(escape) {
                self.add(&record);
            }
        }
        if header.ended_ticks != 0 {
            self.end_thread(header.ended_ticks);
        }
        Ok(())
    }

    fn end_thread(&mut self, ticks: u64) {
        if let Some(thread) = self.thread.take() {
            // Beginnings and ends of threads have no number.
            let time_ns = match self.stamps {
                Stamps::Ticks(_) => self.time(ticks),
                Stamps::Numbers => self.time_ns,
            };
            self.mark(time_ns, thread, RawOp::ThreadExit);
        }
    }

    /// Nanoseconds since the start of the image (or the number), never before the lane's previous event.
    fn time(&mut self, ticks: u64) -> u64 {
        let time_ns = self.stamps.time_ns(ticks, self.spool.control.start_ticks);
        self.time_ns = self.time_ns.max(time_ns).min(TIME_NS_MAX);
        self.time_ns
    }

    /// Adds the event a record stands for.
    #[inline]
    fn add(&mut self, record: &Record) {
        let Some(op) = op(record) else {
            return self.add_other(record);
        };
        let Some(thread) = self.thread else {
            return;
        };
        let begun_ns = self.time(record.ticks);
        let moves = match (op, self.stamps) {
            (RawOp::Realloc { old, .. }, Stamps::Numbers) => old != 0,
            (RawOp::Realloc { old, new, .. }, Stamps::Ticks(_)) => new != 0 && old != 0 && new != old,
            _ => false,
        };
        let moving_since_ns = moves.then_some(begun_ns);
        let time_ns = if moves { self.time(record.ticks.saturating_add(record.duration)) } else { begun_ns };
        let raw = RawEvent { site: SiteId(record.site), ..RawEvent::new(time_ns, thread, op) };
        self.batch.push(LaneEvent { raw, moving_since_ns });
    }

    fn mark(&mut self, time_ns: u64, thread: u32, op: RawOp) {
        let raw = RawEvent::new(time_ns, thread, op);
        self.batch.push(LaneEvent { raw, moving_since_ns: None });
    }

    /// Adds what a record that is no call stands for.
    fn add_other(&mut self, record: &Record) {
        if record.kind == Kind::Thread {
            self.begin_thread(record);
        } else if record.kind == Kind::Mark
            && let (Some(name), Some(thread)) = (self.pieces.add(record), self.thread)
        {
            let time_ns = self.time(record.ticks);
            self.mark(time_ns, thread, RawOp::Mark { name: self.names.number(&name) });
        }
    }

    /// A frame begins by naming its thread; another name means that the thread before it had ended.
    fn begin_thread(&mut self, record: &Record) {
        let thread = u32::try_from(record.size).unwrap_or(u32::MAX);
        if std::mem::take(&mut self.after_gap) {
            let time_ns = self.time(record.ticks);
            self.mark(time_ns, thread, RawOp::Gap);
        }
        if self.thread == Some(thread) {
            return;
        }
        self.end_thread(0);
        self.spool.note_thread(u32::try_from(record.address).unwrap_or(u32::MAX), thread);
        self.thread = Some(thread);
        // Without a number it would come too early; the thread then begins with its first event.
        if matches!(self.stamps, Stamps::Ticks(_)) {
            let time_ns = self.time(record.ticks);
            self.mark(time_ns, thread, RawOp::ThreadStart);
        }
    }
}

fn alloc(record: &Record, call: AllocCall) -> RawOp {
    let &Record { address, size, align_log2, .. } = record;
    RawOp::Alloc { address, size, align_log2, call, initial_touch: InitialTouch::None }
}

/// What the program did; `None` for a record that names a thread or a mark, or a memory policy that there is none of.
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
