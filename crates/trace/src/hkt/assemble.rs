//! Rebuilds the objects of a chunk's events, and the events that are not common, from the columns.

use super::code::{self, Detail};
use super::column::Flaw;
use super::columns::Columns;
use crate::event::{AllocCall, Event, InitialTouch, ObjectId, Op, ReallocCall, SiteId, ThreadId};
use crate::ids::ObjectIds;
use crate::memory_policy::MemoryPolicy;

const TOO_MANY: BadEvent = BadEvent::Flaw("more objects are live than the section header allows");

/// Why an event cannot be rebuilt.
pub(super) enum BadEvent {
    /// It names an object that is not live.
    Dead(ObjectId),
    /// A stored value is out of range.
    Flaw(Flaw),
}

/// What the columns do not contain: the object of each event, and the events that are not common.
#[derive(Default)]
pub(super) struct Assembled {
    /// One per event; arbitrary for an event that is not common.
    pub(super) objects: Vec<u32>,
    /// The events that are not common, in order.
    pub(super) others: Vec<Event>,
    /// Their positions in the batch.
    pub(super) others_at: Vec<usize>,
}

impl Assembled {
    pub(super) fn with_capacity(events: usize) -> Self {
        Assembled { objects: Vec::with_capacity(events), ..Assembled::default() }
    }

    pub(super) fn clear(&mut self) {
        self.objects.clear();
        self.others.clear();
        self.others_at.clear();
    }

    /// Adds an event that is not common, at a position in the batch.
    pub(super) fn push_other(&mut self, at: usize, event: Event) {
        self.others.push(event);
        self.others_at.push(at);
    }

    /// Assembles the events of `columns`, which have passed [`Columns::check`]. The last event before them was at
    /// `time_ns`, and at most `objects_peak` objects may be live. Stops at the first bad event; the events before it are
    /// complete.
    pub(super) fn assemble(
        &mut self,
        columns: &Columns,
        ids: &mut ObjectIds,
        time_ns: u64,
        objects_peak: u32,
    ) -> Result<(), BadEvent> {
        self.others.clear();
        self.others_at.clear();
        // Every entry is overwritten, so they are not cleared.
        self.objects.resize(columns.len(), 0);
        let cursor = Cursor { time_ns, ..Cursor::default() };
        let mut assembler = Assembler { columns, ids, objects_peak, cursor };
        let outcome = assembler.run(self);
        self.objects.truncate(assembler.cursor.event);
        outcome
    }
}

/// The read position in each of the [`Columns`].
#[derive(Default)]
struct Cursor {
    event: usize,
    size: usize,
    object: usize,
    detail: usize,
    number: usize,
    offset: usize,
    /// The run of the last uncommon event, and the first event after this run.
    run: usize,
    run_end: usize,
    /// The time of the event before `timed`.
    time_ns: u64,
    timed: usize,
}

struct Assembler<'a> {
    columns: &'a Columns,
    ids: &'a mut ObjectIds,
    objects_peak: u32,
    cursor: Cursor,
}

impl Assembler<'_> {
    fn run(&mut self, to: &mut Assembled) -> Result<(), BadEvent> {
        // A common call of an impossible size is rare enough to look for it event by event.
        let sizes_fit = self.columns.sizes.iter().fold(0, |bits, size| bits | size) < Op::BLOCK_BYTES_END;
        while self.cursor.event < self.columns.len() {
            if sizes_fit {
                self.follow_common(&mut to.objects);
            }
            if self.cursor.event < self.columns.len() {
                self.single(to)?;
            }
        }
        Ok(())
    }

    /// Assigns the objects of the common events before the next event that is uncommon or bad.
    fn follow_common(&mut self, objects: &mut [u32]) {
        let Cursor { event, size, object, .. } = &mut self.cursor;
        let (ops, mut freed) = (&self.columns.ops[*event..], &self.columns.objects[*object..]);
        let freed_before = freed.len();
        let done = self.ids.follow(ops, code::FREE, self.objects_peak, &mut freed, &mut objects[*event..]);
        let frees = freed_before - freed.len();
        *event += done;
        *object += frees;
        *size += done - frees;
    }

    /// Assembles one event of any kind.
    fn single(&mut self, to: &mut Assembled) -> Result<(), BadEvent> {
        let (code, size) = (self.columns.ops[self.cursor.event], self.cursor.size);
        let op = self.op(code)?;
        if let Some(flaw) = op.flaw() {
            return Err(BadEvent::Flaw(flaw));
        }
        if self.ids.peak() > self.objects_peak {
            return Err(TOO_MANY);
        }
        if code > code::FREE {
            let site = if op.asks_for_memory() { self.columns.sites.get(size).copied() } else { None };
            let site = SiteId(site.unwrap_or_default());
            to.push_other(self.cursor.event, Event { site, ..Event::new(self.time_ns(), self.thread(), op) });
        } else if let Some(object) = op.object() {
            to.objects[self.cursor.event] = object.0;
        }
        self.cursor.event += 1;
        Ok(())
    }

    /// The time of the current event.
    fn time_ns(&mut self) -> u64 {
        let next = self.cursor.event + 1;
        self.cursor.time_ns += self.columns.time_deltas.sum_ns(self.cursor.timed..next);
        self.cursor.timed = next;
        self.cursor.time_ns
    }

    /// The thread of the current event.
    fn thread(&mut self) -> ThreadId {
        while self.cursor.run_end <= self.cursor.event {
            self.cursor.run_end += usize::from(self.columns.run_lengths[self.cursor.run]);
            self.cursor.run += 1;
        }
        ThreadId(self.columns.run_threads[self.cursor.run - 1])
    }

    fn op(&mut self, code: u8) -> Result<Op, BadEvent> {
        Ok(match code {
            code::FREE => Op::Free { object: self.dying()? },
            code::ALLOC => {
                let (detail, size) = (self.detail(), self.size());
                let (call, initial_touch) = (alloc_call(detail)?, initial_touch(detail)?);
                Op::Alloc { object: self.new_object()?, size, align_log2: detail.align_log2(), call, initial_touch }
            }
            code::REALLOC => {
                let (detail, size) = (self.detail(), self.size());
                let (call, initial_touch) = (realloc_call(detail)?, initial_touch(detail)?);
                Op::Realloc { object: self.living()?, size, call, initial_touch }
            }
            code::REALLOC_FREE => {
                let call = realloc_call(self.detail())?;
                Op::ReallocFree { object: self.dying()?, call }
            }
            code::REALLOC_UNKNOWN => {
                let (call, size) = (realloc_call(self.detail())?, self.size());
                Op::ReallocUnknown { object: self.new_object()?, size, call }
            }
            code::FREE_NULL => Op::FreeNull,
            code::FREE_UNKNOWN => Op::FreeUnknown,
            code::USABLE_SIZE => Op::UsableSize { object: self.living()? },
            code::ALLOC_FAILED => {
                let (detail, size) = (self.detail(), self.size());
                Op::AllocFailed { size, align_log2: detail.align_log2(), call: alloc_call(detail)? }
            }
            code::REALLOC_FAILED => {
                let (call, size) = (realloc_call(self.detail())?, self.size());
                Op::ReallocFailed { object: self.living()?, size, call }
            }
            _ => self.rare_op(code)?,
        })
    }

    /// The op of an event that concerns no block, of an access, or of a common allocation.
    fn rare_op(&mut self, code: u8) -> Result<Op, BadEvent> {
        Ok(match code {
            code::THREAD_START => Op::ThreadStart,
            code::THREAD_EXIT => Op::ThreadExit,
            code::FORK => Op::Fork { child_pid: self.number() },
            code::FORK_END => Op::ForkEnd { child_pid: self.number(), outlives: self.detail().outlives() },
            code::EXEC => Op::Exec,
            code::MARK => Op::Mark { name: self.number() },
            code::MEMORY_POLICY => {
                let (detail, value) = (self.detail(), self.number());
                let policy = MemoryPolicy::of_numbers(detail.policy_kind(), value);
                let policy = policy.ok_or(BadEvent::Flaw("a memory policy is unknown"))?;
                Op::MemoryPolicy { policy, inherited: detail.is_inherited() }
            }
            _ => match code::COMMON.get(usize::from(code)) {
                Some(&(call, initial_touch)) => {
                    let size = self.size();
                    Op::Alloc { object: self.new_object()?, size, align_log2: 0, call, initial_touch }
                }
                None => self.touch(code)?,
            },
        })
    }

    fn touch(&mut self, code: u8) -> Result<Op, BadEvent> {
        use crate::event::Access;
        let access = if code == code::TOUCH_READ { Access::Read } else { Access::Write };
        let offset = self.columns.offsets[self.cursor.offset];
        self.cursor.offset += 1;
        Ok(Op::Touch { object: self.living()?, offset, bytes: self.number(), access })
    }

    fn size(&mut self) -> u64 {
        let size = self.columns.sizes[self.cursor.size];
        self.cursor.size += 1;
        size
    }

    fn detail(&mut self) -> Detail {
        let detail = self.columns.details[self.cursor.detail];
        self.cursor.detail += 1;
        Detail(detail)
    }

    fn number(&mut self) -> u32 {
        let number = self.columns.numbers[self.cursor.number];
        self.cursor.number += 1;
        number
    }

    fn new_object(&mut self) -> Result<ObjectId, BadEvent> {
        self.ids.allocate().ok_or(TOO_MANY)
    }

    /// The next stored object id, which this event frees.
    fn dying(&mut self) -> Result<ObjectId, BadEvent> {
        let object = self.object();
        if self.ids.release(object) { Ok(object) } else { Err(BadEvent::Dead(object)) }
    }

    /// The next stored object id, which stays live.
    fn living(&mut self) -> Result<ObjectId, BadEvent> {
        let object = self.object();
        if self.ids.is_live(object) { Ok(object) } else { Err(BadEvent::Dead(object)) }
    }

    fn object(&mut self) -> ObjectId {
        let object = self.columns.objects[self.cursor.object];
        self.cursor.object += 1;
        ObjectId(object)
    }
}

fn alloc_call(detail: Detail) -> Result<AllocCall, BadEvent> {
    detail.alloc_call().ok_or(BadEvent::Flaw("an allocating function is unknown"))
}

fn realloc_call(detail: Detail) -> Result<ReallocCall, BadEvent> {
    detail.realloc_call().ok_or(BadEvent::Flaw("a resizing function is unknown"))
}

fn initial_touch(detail: Detail) -> Result<InitialTouch, BadEvent> {
    detail.initial_touch().ok_or(BadEvent::Flaw("an initial touch is unknown"))
}
