//! The columns of one chunk: events taken apart for storage, and put together again.

use super::code::{self, Detail, Takes};
use super::column::{ColumnDecoder, ColumnEncoder, Flaw};
use super::{CHUNK_EVENTS_MAX, Version};
use crate::event::{Access, AllocCall, Birth, Event, ObjectId, Op, ReallocCall, SiteId, ThreadId};
use crate::ids::ObjectIds;

/// The events of a chunk, by column. Ids of new objects are not stored: the recycler gives them.
pub(super) struct Columns {
    /// Op codes, one per event.
    ops: Vec<u8>,
    /// Time since the previous event, one per event.
    time_deltas: Vec<u64>,
    sizes: Vec<u64>,
    objects: Vec<u32>,
    details: Vec<u16>,
    /// Child pids, mark names, bytes touched.
    numbers: Vec<u32>,
    offsets: Vec<u64>,
    /// Runs of events of the same thread.
    run_threads: Vec<u32>,
    run_lengths: Vec<u16>,
    /// Call sites, one per entry of `sizes`; none where no event of the chunk has one.
    sites: Vec<u32>,
}

impl Columns {
    pub(super) fn new() -> Self {
        Columns {
            ops: Vec::with_capacity(CHUNK_EVENTS_MAX),
            time_deltas: Vec::with_capacity(CHUNK_EVENTS_MAX),
            sizes: Vec::with_capacity(CHUNK_EVENTS_MAX),
            objects: Vec::with_capacity(CHUNK_EVENTS_MAX),
            details: Vec::with_capacity(CHUNK_EVENTS_MAX),
            numbers: Vec::with_capacity(CHUNK_EVENTS_MAX),
            offsets: Vec::with_capacity(CHUNK_EVENTS_MAX),
            run_threads: Vec::with_capacity(CHUNK_EVENTS_MAX),
            run_lengths: Vec::with_capacity(CHUNK_EVENTS_MAX),
            sites: Vec::with_capacity(CHUNK_EVENTS_MAX),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(super) fn clear(&mut self) {
        self.ops.clear();
        self.time_deltas.clear();
        self.sizes.clear();
        self.objects.clear();
        self.details.clear();
        self.numbers.clear();
        self.offsets.clear();
        self.run_threads.clear();
        self.run_lengths.clear();
        self.sites.clear();
    }

    /// Takes an event apart. The caller keeps to [`CHUNK_EVENTS_MAX`] events.
    pub(super) fn push(&mut self, time_delta_ns: u64, event: &Event) {
        let thread = event.thread.0;
        self.time_deltas.push(time_delta_ns);
        match (self.run_threads.last(), self.run_lengths.last_mut()) {
            (Some(&last), Some(length)) if last == thread => *length += 1,
            _ => {
                self.run_threads.push(thread);
                self.run_lengths.push(1);
            }
        }
        let code = self.push_op(&event.op);
        self.ops.push(code);
        if event.site != SiteId::UNKNOWN || !self.sites.is_empty() {
            self.push_site(event);
        }
    }

    /// The first site of a chunk also stands in for the calls before it, which had none.
    fn push_site(&mut self, event: &Event) {
        if event.op.asks_for_memory() {
            self.sites.resize(self.sizes.len() - 1, SiteId::UNKNOWN.0);
            self.sites.push(event.site.0);
        }
    }

    fn push_op(&mut self, op: &Op) -> u8 {
        match *op {
            Op::Alloc { size, align_log2, call, birth, .. } => {
                self.sizes.push(size);
                code::common_alloc(call, birth, align_log2)
                    .unwrap_or_else(|| self.with_detail(code::ALLOC, Detail::of_alloc(call, birth, align_log2)))
            }
            Op::Free { object } => self.with_object(code::FREE, object),
            Op::Realloc { object, size, call, birth } => {
                self.sizes.push(size);
                self.objects.push(object.0);
                self.with_detail(code::REALLOC, Detail::of_realloc(call, birth))
            }
            Op::ReallocFree { object, call } => {
                self.objects.push(object.0);
                self.with_detail(code::REALLOC_FREE, Detail::of_realloc(call, Birth::None))
            }
            Op::ReallocUnknown { size, call, .. } => {
                self.sizes.push(size);
                self.with_detail(code::REALLOC_UNKNOWN, Detail::of_realloc(call, Birth::None))
            }
            Op::FreeNull => code::FREE_NULL,
            Op::FreeUnknown => code::FREE_UNKNOWN,
            Op::UsableSize { object } => self.with_object(code::USABLE_SIZE, object),
            Op::AllocFailed { size, align_log2, call } => {
                self.sizes.push(size);
                self.with_detail(code::ALLOC_FAILED, Detail::of_alloc(call, Birth::None, align_log2))
            }
            Op::ReallocFailed { object, size, call } => {
                self.sizes.push(size);
                self.objects.push(object.0);
                self.with_detail(code::REALLOC_FAILED, Detail::of_realloc(call, Birth::None))
            }
            Op::ThreadStart => code::THREAD_START,
            Op::ThreadExit => code::THREAD_EXIT,
            Op::Fork { child_pid } => self.with_number(code::FORK, child_pid),
            Op::Exec => code::EXEC,
            Op::Mark { name } => self.with_number(code::MARK, name),
            Op::Touch { object, offset, bytes, access } => {
                self.objects.push(object.0);
                self.offsets.push(offset);
                let read_or_write = if access == Access::Read { code::TOUCH_READ } else { code::TOUCH_WRITE };
                self.with_number(read_or_write, bytes)
            }
        }
    }

    fn with_object(&mut self, code: u8, object: ObjectId) -> u8 {
        self.objects.push(object.0);
        code
    }

    fn with_detail(&mut self, code: u8, detail: Detail) -> u8 {
        self.details.push(detail.0);
        code
    }

    fn with_number(&mut self, code: u8, number: u32) -> u8 {
        self.numbers.push(number);
        code
    }

    /// Appends the stored form to `out`.
    pub(super) fn encode(&self, encoder: &mut ColumnEncoder, out: &mut Vec<u8>) {
        encoder.encode(&self.ops, out);
        encoder.encode(&self.time_deltas, out);
        encoder.encode(&self.sizes, out);
        encoder.encode(&self.objects, out);
        encoder.encode(&self.details, out);
        encoder.encode(&self.numbers, out);
        encoder.encode(&self.offsets, out);
        encoder.encode(&self.run_threads, out);
        encoder.encode(&self.run_lengths, out);
        encoder.encode(&self.sites, out);
    }

    /// Replaces the contents by the stored form in `payload`, and checks that the columns fit together.
    pub(super) fn decode(
        &mut self,
        decoder: &mut ColumnDecoder,
        version: Version,
        mut payload: &[u8],
    ) -> Result<(), Flaw> {
        let input = &mut payload;
        decoder.decode(input, &mut self.ops)?;
        decoder.decode(input, &mut self.time_deltas)?;
        decoder.decode(input, &mut self.sizes)?;
        decoder.decode(input, &mut self.objects)?;
        decoder.decode(input, &mut self.details)?;
        decoder.decode(input, &mut self.numbers)?;
        decoder.decode(input, &mut self.offsets)?;
        decoder.decode(input, &mut self.run_threads)?;
        decoder.decode(input, &mut self.run_lengths)?;
        match version {
            Version::V1 => self.sites.clear(),
            Version::V2 => decoder.decode(input, &mut self.sites)?,
        }
        if !payload.is_empty() {
            return Err("bytes are left over behind the last column");
        }
        self.check()
    }

    fn check(&self) -> Result<(), Flaw> {
        let takes = Takes::sum(&self.ops);
        if takes.invalid() > 0 {
            return Err("an op code is unknown");
        }
        let fitting = self.time_deltas.len() == self.ops.len()
            && self.sizes.len() == takes.sizes()
            && self.objects.len() == takes.objects()
            && self.details.len() == takes.details()
            && self.numbers.len() == takes.numbers()
            && self.offsets.len() == takes.offsets()
            && (self.sites.is_empty() || self.sites.len() == takes.sizes())
            && self.run_threads.len() == self.run_lengths.len();
        if !fitting {
            return Err("a column's length does not fit the op codes");
        }
        if self.run_lengths.iter().map(|&length| length as usize).sum::<usize>() != self.ops.len() {
            return Err("the thread runs do not cover the chunk");
        }
        Ok(())
    }

    /// Largest thread id + 1.
    pub(super) fn threads(&self) -> u64 {
        self.run_threads.iter().max().map_or(0, |&thread| thread as u64 + 1)
    }

    /// Time from before the first event to the last one; `None` if it overflows.
    pub(super) fn duration_ns(&self) -> Option<u64> {
        let total: u128 = self.time_deltas.iter().map(|&delta| delta as u128).sum();
        u64::try_from(total).ok()
    }
}

/// Where putting together stands within [`Columns`].
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
struct Strip<'a> {
    ops: &'a [u8],
    deltas: &'a [u64],
    thread: ThreadId,
}

const TOO_MANY: BadEvent = BadEvent::Flaw("more objects are live than ids exist");

/// Why an event cannot be put together.
pub(super) enum BadEvent {
    /// It names an object that is not live.
    Dead(ObjectId),
    /// A stored value is out of range.
    Flaw(Flaw),
}

impl Cursor {
    /// The start of a chunk whose predecessor ended at `time_ns`.
    pub(super) fn at(time_ns: u64) -> Self {
        Cursor { time_ns, ..Cursor::default() }
    }

    /// Events handed out so far.
    pub(super) fn event(&self) -> usize {
        self.event
    }

    /// Fills `events` up to its capacity or the end of the chunk.
    ///
    /// `columns` has passed [`Columns::check`], so no index below leaves its column.
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
                    self.fill_common(columns, ids, Strip { ops, deltas, thread }, events)?
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

    /// Puts the leading common allocations and frees of `strip` together; returns how many. These are nearly all
    /// events of most traces, so the state is kept in registers here and written back once.
    fn fill_common(
        &mut self,
        columns: &Columns,
        ids: &mut ObjectIds,
        strip: Strip<'_>,
        events: &mut Vec<Event>,
    ) -> Result<usize, BadEvent> {
        let mut sizes = columns.sizes[self.size..].iter();
        let mut objects = columns.objects[self.object..].iter();
        let mut time_ns = self.time_ns;
        let before = events.len();
        let mut failed = None;
        for (&code, &delta) in strip.ops.iter().zip(strip.deltas) {
            let op = if code == code::FREE {
                let object = ObjectId(objects.next().copied().unwrap_or(u32::MAX));
                if !ids.release(object) {
                    failed = Some(BadEvent::Dead(object));
                    break;
                }
                Op::Free { object }
            } else if let Some(&(call, birth)) = code::COMMON.get(code as usize) {
                let size = sizes.next().copied().unwrap_or(u64::MAX);
                let Some(object) = ids.allocate() else {
                    failed = Some(TOO_MANY);
                    break;
                };
                if size >= Op::BLOCK_BYTES_END {
                    failed = Some(BadEvent::Flaw("a block is larger than the address space"));
                    break;
                }
                Op::Alloc { object, size, align_log2: 0, call, birth }
            } else {
                break;
            };
            time_ns += delta;
            events.push(Event::new(time_ns, strip.thread, op));
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
                let (call, birth) = (alloc_call(detail)?, birth(detail)?);
                Op::Alloc { object: new_object(ids)?, size, align_log2: detail.align_log2(), call, birth }
            }
            code::REALLOC => {
                let (detail, size) = (self.detail(columns), self.size(columns));
                Op::Realloc {
                    object: self.living(columns, ids)?,
                    size,
                    call: realloc_call(detail)?,
                    birth: birth(detail)?,
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
            code::EXEC => Op::Exec,
            code::MARK => Op::Mark { name: self.number(columns) },
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

fn birth(detail: Detail) -> Result<Birth, BadEvent> {
    detail.birth().ok_or(BadEvent::Flaw("a birth is unknown"))
}
