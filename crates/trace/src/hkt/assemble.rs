//! Rebuilds events from the columns of a chunk.

use super::code::{self, Detail};
use super::column::Flaw;
use super::columns::Columns;
use crate::event::{Access, AllocCall, Event, InitialTouch, ObjectId, Op, ReallocCall, SiteId, ThreadId};
use crate::ids::ObjectIds;
use crate::memory_policy::MemoryPolicy;

/// The read position in each of the [`Columns`].
#[derive(Default)]
pub(super) struct Cursor {
    event: usize,
    size: usize,
    object: usize,
    detail: usize,
    number: usize,
    offset: usize,
    run: usize,
    run_left: usize,
    time_ns: u64,
}

/// Consecutive events of one thread.
struct Run<'a> {
    ops: &'a [u8],
    deltas: &'a [u64],
    thread: ThreadId,
}

const TOO_MANY: BadEvent = BadEvent::Flaw("more objects are live than ids exist");

/// Why an event cannot be rebuilt.
pub(super) enum BadEvent {
    /// It names an object that is not live.
    Dead(ObjectId),
    /// A stored value is out of range.
    Flaw(Flaw),
}

impl Cursor {
    /// A cursor at the start of a chunk. The last event of the previous chunk was at `time_ns`.
    pub(super) fn at(time_ns: u64) -> Self {
        Cursor { time_ns, ..Cursor::default() }
    }

    /// Events returned so far.
    pub(super) fn event(&self) -> usize {
        self.event
    }

    /// Fills `events` up to its capacity or the end of the chunk.
    ///
    /// `columns` has passed [`Columns::check`], so every index used here is within its column.
    pub(super) fn fill(
        &mut self,
        columns: &Columns,
        ids: &mut ObjectIds,
        events: &mut Vec<Event>,
    ) -> Result<(), BadEvent> {
        let end = columns.len().min(self.event + (events.capacity() - events.len()));
        let (first, first_size) = (events.len(), self.size);
        while self.event < end {
            if self.run_left == 0 {
                self.run_left = columns.run_lengths[self.run] as usize;
                self.run += 1;
                continue;
            }
            let thread = ThreadId(columns.run_threads[self.run - 1]);
            let segment = self.event..end.min(self.event + self.run_left);
            self.run_left -= segment.len();
            let mut ops = &columns.ops[segment.clone()];
            let mut deltas = &columns.time_deltas[segment];
            while let Some(&code) = ops.first() {
                let done = if code <= code::FREE {
                    self.fill_common(columns, ids, Run { ops, deltas, thread }, events)?
                } else {
                    self.time_ns += deltas[0];
                    let op = self.rare_op(code, columns, ids)?;
                    if let Some(flaw) = op.flaw() {
                        return Err(BadEvent::Flaw(flaw));
                    }
                    events.push(Event::new(self.time_ns, thread, op));
                    self.event += 1;
                    1
                };
                ops = &ops[done..];
                deltas = &deltas[done..];
            }
        }
        if !columns.sites.is_empty() {
            let asking = events[first..].iter_mut().filter(|event| event.op.asks_for_memory());
            let sites = &columns.sites[first_size..];
            asking.zip(sites).for_each(|(event, &site)| event.site = SiteId(site));
        }
        Ok(())
    }

    /// Rebuilds the common allocations and frees at the start of `run` and returns their number. In most traces nearly
    /// all events are of this kind, so the state is kept in local variables and written back once.
    fn fill_common(
        &mut self,
        columns: &Columns,
        ids: &mut ObjectIds,
        run: Run<'_>,
        events: &mut Vec<Event>,
    ) -> Result<usize, BadEvent> {
        let mut sizes = columns.sizes[self.size..].iter();
        let mut objects = columns.objects[self.object..].iter();
        let mut time_ns = self.time_ns;
        let before = events.len();
        let mut failed = None;
        for (&code, &delta) in run.ops.iter().zip(run.deltas) {
            let op = if code == code::FREE {
                let object = ObjectId(objects.next().copied().unwrap_or(u32::MAX));
                if !ids.release(object) {
                    failed = Some(BadEvent::Dead(object));
                    break;
                }
                Op::Free { object }
            } else if let Some(&(call, initial_touch)) = code::COMMON.get(code as usize) {
                let size = sizes.next().copied().unwrap_or(u64::MAX);
                let Some(object) = ids.allocate() else {
                    failed = Some(TOO_MANY);
                    break;
                };
                if size >= Op::BLOCK_BYTES_END {
                    failed = Some(BadEvent::Flaw("a block is larger than the address space"));
                    break;
                }
                Op::Alloc { object, size, align_log2: 0, call, initial_touch }
            } else {
                break;
            };
            time_ns += delta;
            events.push(Event::new(time_ns, run.thread, op));
        }
        let done = events.len() - before;
        self.size = columns.sizes.len() - sizes.len();
        self.object = columns.objects.len() - objects.len();
        self.event += done;
        self.time_ns = time_ns;
        failed.map_or(Ok(done), Err)
    }

    fn rare_op(&mut self, code: u8, columns: &Columns, ids: &mut ObjectIds) -> Result<Op, BadEvent> {
        Ok(match code {
            code::ALLOC => {
                let (detail, size) = (self.detail(columns), self.size(columns));
                let (call, initial_touch) = (alloc_call(detail)?, initial_touch(detail)?);
                Op::Alloc { object: new_object(ids)?, size, align_log2: detail.align_log2(), call, initial_touch }
            }
            code::REALLOC => {
                let (detail, size) = (self.detail(columns), self.size(columns));
                Op::Realloc {
                    object: self.living(columns, ids)?,
                    size,
                    call: realloc_call(detail)?,
                    initial_touch: initial_touch(detail)?,
                }
            }
            code::REALLOC_FREE => {
                let call = realloc_call(self.detail(columns))?;
                Op::ReallocFree { object: self.dying(columns, ids)?, call }
            }
            code::REALLOC_UNKNOWN => {
                let (call, size) = (realloc_call(self.detail(columns))?, self.size(columns));
                Op::ReallocUnknown { object: new_object(ids)?, size, call }
            }
            code::FREE_NULL => Op::FreeNull,
            code::FREE_UNKNOWN => Op::FreeUnknown,
            code::USABLE_SIZE => Op::UsableSize { object: self.living(columns, ids)? },
            code::ALLOC_FAILED => {
                let (detail, size) = (self.detail(columns), self.size(columns));
                Op::AllocFailed { size, align_log2: detail.align_log2(), call: alloc_call(detail)? }
            }
            code::REALLOC_FAILED => {
                let (call, size) = (realloc_call(self.detail(columns))?, self.size(columns));
                Op::ReallocFailed { object: self.living(columns, ids)?, size, call }
            }
            code::THREAD_START => Op::ThreadStart,
            code::THREAD_EXIT => Op::ThreadExit,
            code::FORK => Op::Fork { child_pid: self.number(columns) },
            code::FORK_END => {
                let (detail, child_pid) = (self.detail(columns), self.number(columns));
                Op::ForkEnd { child_pid, outlives: detail.outlives() }
            }
            code::EXEC => Op::Exec,
            code::MARK => Op::Mark { name: self.number(columns) },
            code::MEMORY_POLICY => {
                let (detail, value) = (self.detail(columns), self.number(columns));
                let policy = MemoryPolicy::of_numbers(detail.policy_kind(), value);
                let policy = policy.ok_or(BadEvent::Flaw("a memory policy is unknown"))?;
                Op::MemoryPolicy { policy, inherited: detail.is_inherited() }
            }
            _ => {
                let offset = columns.offsets[self.offset];
                self.offset += 1;
                let access = if code == code::TOUCH_READ { Access::Read } else { Access::Write };
                Op::Touch { object: self.living(columns, ids)?, offset, bytes: self.number(columns), access }
            }
        })
    }

    #[inline(always)]
    fn size(&mut self, columns: &Columns) -> u64 {
        let size = columns.sizes[self.size];
        self.size += 1;
        size
    }

    fn detail(&mut self, columns: &Columns) -> Detail {
        let detail = columns.details[self.detail];
        self.detail += 1;
        Detail(detail)
    }

    fn number(&mut self, columns: &Columns) -> u32 {
        let number = columns.numbers[self.number];
        self.number += 1;
        number
    }

    /// The next stored object id, which this event frees.
    #[inline(always)]
    fn dying(&mut self, columns: &Columns, ids: &mut ObjectIds) -> Result<ObjectId, BadEvent> {
        let object = self.object(columns);
        if ids.release(object) { Ok(object) } else { Err(BadEvent::Dead(object)) }
    }

    /// The next stored object id, which stays live.
    fn living(&mut self, columns: &Columns, ids: &ObjectIds) -> Result<ObjectId, BadEvent> {
        let object = self.object(columns);
        if ids.is_live(object) { Ok(object) } else { Err(BadEvent::Dead(object)) }
    }

    #[inline(always)]
    fn object(&mut self, columns: &Columns) -> ObjectId {
        let object = columns.objects[self.object];
        self.object += 1;
        ObjectId(object)
    }
}

#[inline(always)]
fn new_object(ids: &mut ObjectIds) -> Result<ObjectId, BadEvent> {
    ids.allocate().ok_or(TOO_MANY)
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
