//! Merges events and accesses into one order.
//!
//! Events are numbered: the n-th store to the counter in the stream of accesses marks the position of event n. A
//! resizing call also stores to a second counter when it begins. Between that store and the event's number the
//! allocator copies the block, so accesses of this thread are not the program's. Other calls need no such mark: a block
//! is live only between the events of its allocation and its free, and allocators do not touch live blocks otherwise.

use std::collections::HashMap;

use hksim_trace::event::Access;
use hksim_trace::header::Clock;
use hksim_trace::resolve::{RawEvent, RawOp};

use super::Merging;
use super::blocks::{Block, Blocks};
use super::stream::{Item, Stream};
use crate::error::RecordError;
use crate::report::Touches;

/// Distance between the two counters in bytes.
const COUNTER_BYTES: u64 = 8;
/// Bit in the number of a thread whose valgrind number is unknown, because the stream does not contain its event.
const UNKNOWN_THREADS: u32 = 1 << 31;

/// Inserts a stream of accesses between the events of its process.
pub struct Interleave {
    stream: Stream,
    /// Address of the counter that numbers events; the counter of resizing calls follows it.
    counters: u64,
    merging: Merging,
    /// The number of the last event reached in the stream.
    number: u64,
    blocks: Blocks,
    threads: Threads,
    pending: Option<Pending>,
    counts: Touches,
    ended: bool,
}

/// A touch that may still be extended.
#[derive(Clone, Copy)]
struct Pending {
    thread: u32,
    block: Block,
    offset: u64,
    bytes: u32,
    access: Access,
}

/// Maps valgrind's thread numbers, which valgrind reuses, to the recorder's.
#[derive(Default)]
struct Threads {
    of_valgrind: HashMap<u32, u32>,
    of_recorder: HashMap<u32, u32>,
    /// Whether the thread is inside a resizing call.
    resizing: Vec<bool>,
    current: u32,
}

impl Threads {
    fn created(&mut self, number: u32) {
        self.of_valgrind.remove(&number);
    }

    fn runs(&mut self, number: u32) {
        let fresh = self.resizing.len() as u32;
        self.current = *self.of_valgrind.entry(number).or_insert(fresh);
        if self.current == fresh {
            self.resizing.push(false);
        }
    }

    fn is_resizing(&self) -> bool {
        self.resizing.get(self.current as usize).is_some_and(|&resizing| resizing)
    }
}

impl Interleave {
    /// `counters` is the address of the process's counters.
    pub fn new(stream: Stream, counters: u64, merging: Merging) -> Self {
        Self {
            stream,
            counters,
            merging,
            number: 0,
            blocks: Blocks::new(),
            threads: Threads::default(),
            pending: None,
            counts: Touches::default(),
            ended: false,
        }
    }

    /// Emits the accesses before the next event, then the event. `raw.time_ns` is the event's number.
    ///
    /// # Errors
    /// The stream cannot be read, or `push` failed.
    pub fn event(
        &mut self,
        mut raw: RawEvent,
        push: &mut impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let has_its_place = self.advance(raw.time_ns, push)?;
        self.write_pending(push)?;
        let current = self.threads.current;
        raw.thread = match self.threads.of_recorder.get(&raw.thread) {
            Some(&thread) => thread,
            None if has_its_place => *self.threads.of_recorder.entry(raw.thread).or_insert(current),
            None => UNKNOWN_THREADS | raw.thread,
        };
        self.counts.calls_without_stream += u64::from(self.ended);
        raw.time_ns = self.time_ns();
        push(raw)?;
        self.note(&raw.op);
        Ok(())
    }

    /// Emits the accesses after the last event.
    ///
    /// # Errors
    /// As for [`Interleave::event`].
    pub fn finish(
        mut self,
        push: &mut impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<Touches, RecordError> {
        self.advance(u64::MAX, push)?;
        self.write_pending(push)?;
        Ok(self.counts)
    }

    /// Reads the stream up to event `number`; false if the stream is already past it or ends before.
    fn advance(
        &mut self,
        number: u64,
        push: &mut impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<bool, RecordError> {
        let begun_at = self.number;
        while self.number < number {
            match self.stream.next()? {
                Some(Item::Access { address, access: Access::Write, .. }) if address == self.counters => {
                    self.number += 1;
                    self.set_resizing(false);
                }
                Some(Item::Access { address, access: Access::Write, .. })
                    if address == self.counters + COUNTER_BYTES =>
                {
                    self.set_resizing(true);
                }
                Some(Item::Access { address, bytes, access }) => self.access(address, bytes, access, push)?,
                Some(Item::Runs(thread)) => self.threads.runs(thread),
                Some(Item::Created(thread)) => self.threads.created(thread),
                None => {
                    self.ended = number != u64::MAX;
                    return Ok(false);
                }
            }
        }
        Ok(self.number > begun_at)
    }

    fn set_resizing(&mut self, resizing: bool) {
        if let Some(thread) = self.threads.resizing.get_mut(self.threads.current as usize) {
            *thread = resizing;
        }
    }

    fn access(
        &mut self,
        address: u64,
        bytes: u64,
        access: Access,
        push: &mut impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        if self.threads.is_resizing() {
            return Ok(());
        }
        let (thread, time_ns, merging) = (self.threads.current, self.time_ns(), self.merging);
        let (pending, counts) = (&mut self.pending, &mut self.counts);
        self.blocks.touched(address, bytes, |block, first, part| {
            counts.count(access, part);
            // Sizes in valid streams fit into a u32; other files are clamped.
            let part = u32::try_from(part).unwrap_or(u32::MAX);
            let touch = Pending { thread, block, offset: first - block.start, bytes: part, access };
            match pending.as_mut().and_then(|before| before.joined(&touch, merging)) {
                Some(joined) => *pending = Some(joined),
                None => {
                    if let Some(before) = pending.replace(touch) {
                        counts.events += 1;
                        push(before.event(time_ns))?;
                    }
                }
            }
            Ok(())
        })
    }

    fn write_pending(&mut self, push: &mut impl FnMut(RawEvent) -> Result<(), RecordError>) -> Result<(), RecordError> {
        let Some(touch) = self.pending.take() else {
            return Ok(());
        };
        self.counts.events += 1;
        push(touch.event(self.time_ns()))
    }

    /// The time of the present number. Times are invented: each event takes a fixed amount.
    fn time_ns(&self) -> u64 {
        self.number.saturating_mul(Clock::EVENT_NS)
    }

    /// Keeps track of the live blocks.
    fn note(&mut self, op: &RawOp) {
        match *op {
            RawOp::Alloc { address, size, .. } if address != 0 => self.blocks.insert(address, size),
            RawOp::Free { address } => self.blocks.remove(address),
            RawOp::Realloc { old, new, size, .. } if new != 0 || size == 0 => {
                self.blocks.remove(old);
                if new != 0 {
                    // If realloc(p, 0) returned a block, it counts as a block of 1 byte.
                    self.blocks.insert(new, size.max(u64::from(old != 0)));
                }
            }
            _ => {}
        }
    }
}

impl Pending {
    /// Both touches joined into one, if the second continues where the first ended.
    fn joined(&self, next: &Pending, merging: Merging) -> Option<Pending> {
        let goes_on = merging == Merging::Extending
            && (self.thread, self.block, self.access) == (next.thread, next.block, next.access)
            && self.offset + u64::from(self.bytes) == next.offset;
        let bytes = self.bytes.checked_add(next.bytes).filter(|_| goes_on)?;
        Some(Pending { bytes, ..*self })
    }

    fn event(&self, time_ns: u64) -> RawEvent {
        let &Pending { thread, block, offset, bytes, access } = self;
        RawEvent::new(time_ns, thread, RawOp::Touch { address: block.start, offset, bytes, access })
    }
}
