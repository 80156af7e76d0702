//! Merges the thread buffers of a process by time; of equal times, the lower buffer is first.
//!
//! There are two ways to merge, with the same result. [`Tournament`] finds the buffer with the next event; that buffer's
//! events are emitted while they precede those of all others. [`BatchMerge`] is the fast path: it sorts the common
//! calls of all buffers. It takes them only up to the first event that is no common call, or the first stamp of a
//! realloc that moves its block, so neither can affect their order.
//!
//! A free is stamped before the call and an allocation after it, so that no address seems to be in use twice. A realloc
//! that moves its block has both stamps: the old block is freed and the new one allocated somewhere between them. They
//! are milliseconds apart if the thread was interrupted. The realloc is placed at its second stamp, when the new
//! address is certainly in use. If the old address is allocated again before that, the realloc is placed just before
//! that allocation.

use hksim_trace::resolve::{Plain, RawEvent, RawOp};

use crate::batch_merge::BatchMerge;
use crate::buffer_reader::Extent;
use crate::error::RecordError;
use crate::log_reader::BufferChunks;
use crate::thread_events::{ThreadEvent, ThreadEvents};
use crate::tournament::Tournament;

/// Consumer of the events of a process.
pub trait EventSink {
    /// Takes the next event.
    ///
    /// # Errors
    /// The consumer failed.
    fn take(&mut self, raw: &RawEvent) -> Result<(), RecordError>;

    /// Takes the next events, all of them common calls.
    ///
    /// # Errors
    /// As for [`EventSink::take`].
    fn take_plain(&mut self, calls: &[Plain]) -> Result<(), RecordError> {
        calls.iter().try_for_each(|call| self.take(&call.raw()))
    }
}

/// A thread buffer whose next event is a realloc that moves its block.
struct Moving {
    buffer: usize,
    /// Old address of the block.
    old: u64,
    /// Its first stamp.
    begun_ns: u64,
}

/// The thread buffers of a process, and how far each is merged.
pub struct Merge {
    buffers: Vec<ThreadEvents>,
    /// Times of the buffers' next events.
    order: Tournament,
    moving: Vec<Moving>,
    batches: BatchMerge,
    /// Rounds that read a single buffer before calls are merged in batches again.
    rounds_left: usize,
}

impl Merge {
    /// A merge of no buffers.
    pub fn new() -> Self {
        Self {
            buffers: Vec::new(),
            order: Tournament::new(Vec::new()),
            moving: Vec::new(),
            batches: BatchMerge::default(),
            rounds_left: 0,
        }
    }

    /// How many buffers there are.
    pub fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// Time of the next event, or a lower bound of it; `None` at the end.
    pub fn next_ns(&self) -> Option<u64> {
        Some(self.order.key(self.order.winner())).filter(|&time_ns| time_ns != u64::MAX)
    }

    /// Updates the buffers to their present state. Known ones continue; new ones are opened by `open`.
    ///
    /// # Errors
    /// A thread buffer cannot be read.
    pub fn extend(
        &mut self,
        buffers: Vec<BufferChunks>,
        extent: Extent,
        mut open: impl FnMut(BufferChunks) -> Result<ThreadEvents, RecordError>,
    ) -> Result<(), RecordError> {
        for buffer in buffers {
            match self.buffers.binary_search_by_key(&buffer.own, ThreadEvents::number) {
                Ok(index) => {
                    let events = &mut self.buffers[index];
                    let waited = events.head().is_none();
                    events.extend(buffer, extent)?;
                    if waited {
                        self.note_move(index);
                    }
                }
                Err(index) => {
                    let events = open(buffer)?;
                    self.moving
                        .iter_mut()
                        .filter(|moving| moving.buffer >= index)
                        .for_each(|moving| moving.buffer += 1);
                    self.buffers.insert(index, events);
                    self.note_move(index);
                }
            }
        }
        self.order = Tournament::new(self.buffers.iter().map(ThreadEvents::time_ns).collect());
        Ok(())
    }

    /// Passes the events of all buffers before `end_ns` to `each` in order of time; of equal times, the lower buffer
    /// first.
    ///
    /// # Errors
    /// A thread buffer cannot be read, or `each` failed.
    pub fn run(&mut self, end_ns: u64, each: &mut impl EventSink) -> Result<(), RecordError> {
        loop {
            if self.rounds_left > 0 {
                self.rounds_left -= 1;
            } else if self.buffers.len() > 1 && self.moving.is_empty() {
                self.gather(end_ns)?;
                let calls = self.batches.in_order();
                // Looking at all buffers costs more than a batch of few calls saves.
                if calls.len() < self.buffers.len() {
                    self.rounds_left = self.buffers.len();
                }
                each.take_plain(calls)?;
            }
            let index = self.order.winner();
            match self.order.key(index) {
                time_ns if time_ns >= end_ns => return Ok(()),
                _ if self.moving.is_empty() => self.run_buffer(index, end_ns, each)?,
                time_ns => self.emit_head(index, time_ns, each)?,
            }
        }
    }

    /// Collects the common calls of all buffers before `end_ns`, as far as all are decoded, and before any other event.
    fn gather(&mut self, end_ns: u64) -> Result<(), RecordError> {
        self.batches.clear();
        let mut until_ns = end_ns;
        for buffer in &mut self.buffers {
            until_ns = until_ns.min(buffer.look_ahead()?);
        }
        for index in 0..self.buffers.len() {
            let buffer = &mut self.buffers[index];
            let calls = buffer.plain_before(until_ns);
            let passed = calls.len();
            if passed > 0 {
                self.batches.add(calls);
                buffer.pass_plain(passed)?;
                self.order.set(index, buffer.time_ns());
                self.note_move(index);
            }
        }
        Ok(())
    }

    fn head(&self, index: usize) -> Option<ThreadEvent> {
        self.buffers.get(index)?.head()
    }

    /// Notes whether the buffer's next event is a realloc that moves its block.
    fn note_move(&mut self, index: usize) {
        let head = self.buffers.get(index).and_then(ThreadEvents::moving);
        if let Some((RawOp::Realloc { old, .. }, begun_ns)) = head {
            self.moving.push(Moving { buffer: index, old, begun_ns });
        }
    }

    /// Emits the buffer's events while they come before those of all others, up to a realloc that moves its block.
    fn run_buffer(&mut self, index: usize, end_ns: u64, each: &mut impl EventSink) -> Result<(), RecordError> {
        let end_ns = self.order.wins_below().min(end_ns);
        if let Some(buffer) = self.buffers.get_mut(index) {
            buffer.run_ahead(end_ns, each)?;
            self.order.set(index, buffer.time_ns());
            self.note_move(index);
        }
        Ok(())
    }

    /// Emits the buffer's next event, no later than `latest_ns`, after the moves it depends on.
    fn emit_head(&mut self, index: usize, latest_ns: u64, each: &mut impl EventSink) -> Result<(), RecordError> {
        let Some(ThreadEvent { mut raw, .. }) = self.head(index) else {
            return Ok(());
        };
        raw.time_ns = raw.time_ns.min(latest_ns);
        if !self.moving.is_empty() {
            self.moving.retain(|moving| moving.buffer != index);
            self.emit_move_away(&raw, each)?;
        }
        each.take(&raw)?;
        if let Some(buffer) = self.buffers.get_mut(index) {
            buffer.advance()?;
            self.order.set(index, buffer.time_ns());
        }
        self.note_move(index);
        Ok(())
    }

    /// Emits the realloc that moves away from the address that `raw` allocates.
    fn emit_move_away(&mut self, raw: &RawEvent, each: &mut impl EventSink) -> Result<(), RecordError> {
        let Some(address) = raw.op.allocated() else {
            return Ok(());
        };
        let moves_away = |moving: &&Moving| moving.old == address && moving.begun_ns <= raw.time_ns;
        if let Some(buffer) = self.moving.iter().find(moves_away).map(|moving| moving.buffer) {
            self.emit_head(buffer, raw.time_ns, each)?;
        }
        Ok(())
    }
}
