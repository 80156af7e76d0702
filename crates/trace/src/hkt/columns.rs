//! The columns of one chunk: each field of the events is stored in its own column. `assemble.rs` rebuilds the events.

use super::code::{self, Detail, Takes};
use super::column::{ColumnDecoder, ColumnEncoder, Flaw};
use super::pack::ColumnMethods;
use super::time_deltas::TimeDeltas;
use super::{CHUNK_EVENTS_MAX, Version};
use crate::event::{Access, Event, InitialTouch, ObjectId, Op, SiteId};
use crate::resolve::{PlainCall, Resolved};

/// The events of a chunk, by column. Ids of new objects are not stored: the recycler reproduces them.
pub(super) struct Columns {
    /// Op codes, one per event.
    pub(super) ops: Vec<u8>,
    /// Time since the previous event, one per event.
    pub(super) time_deltas: TimeDeltas,
    pub(super) sizes: Vec<u64>,
    pub(super) objects: Vec<u32>,
    pub(super) details: Vec<u16>,
    /// Child pids, indices of mark names, bytes accessed, values of memory policies.
    pub(super) numbers: Vec<u32>,
    pub(super) offsets: Vec<u64>,
    /// Runs of consecutive events of the same thread. While events are added, the last run has no length yet.
    pub(super) run_threads: Vec<u32>,
    pub(super) run_lengths: Vec<u16>,
    /// Call sites, one per entry of `sizes`; empty if no event of the chunk has one.
    pub(super) sites: Vec<u32>,
    /// The thread and the first event of the last run, which is open while events are added.
    open: (u32, usize),
}

const _: () = assert!(PlainCall::Free as u8 == code::FREE);

/// The compression methods of each column.
#[derive(Default)]
pub(super) struct MethodsByColumn {
    ops: ColumnMethods,
    time_deltas: ColumnMethods,
    sizes: ColumnMethods,
    objects: ColumnMethods,
    details: ColumnMethods,
    numbers: ColumnMethods,
    offsets: ColumnMethods,
    run_threads: ColumnMethods,
    run_lengths: ColumnMethods,
    sites: ColumnMethods,
}

impl Columns {
    pub(super) fn new() -> Self {
        Columns {
            ops: Vec::with_capacity(CHUNK_EVENTS_MAX),
            time_deltas: TimeDeltas::with_capacity(CHUNK_EVENTS_MAX),
            sizes: Vec::with_capacity(CHUNK_EVENTS_MAX),
            objects: Vec::with_capacity(CHUNK_EVENTS_MAX),
            details: Vec::with_capacity(CHUNK_EVENTS_MAX),
            numbers: Vec::with_capacity(CHUNK_EVENTS_MAX),
            offsets: Vec::with_capacity(CHUNK_EVENTS_MAX),
            run_threads: Vec::with_capacity(CHUNK_EVENTS_MAX),
            run_lengths: Vec::with_capacity(CHUNK_EVENTS_MAX),
            sites: Vec::with_capacity(CHUNK_EVENTS_MAX),
            open: (u32::MAX, 0),
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
        self.open = (u32::MAX, 0);
    }

    /// Adds an event. The caller adds at most [`CHUNK_EVENTS_MAX`], and no thread is numbered `u32::MAX`.
    #[inline(always)]
    pub(super) fn push(&mut self, time_delta_ns: u64, event: &Event) {
        if event.thread.0 != self.open.0 {
            self.begin_run(event.thread.0, self.len());
        }
        self.time_deltas.push(time_delta_ns);
        let code = self.push_op(&event.op);
        self.ops.push(code);
        if event.site != SiteId::UNKNOWN || !self.sites.is_empty() {
            self.push_site(event);
        }
    }

    /// Adds several events; the previous event was at `time_ns`. The conditions are those of [`Columns::push`].
    pub(super) fn push_all(&mut self, mut time_ns: u64, events: &[Resolved]) {
        let before = self.len();
        let (mut size, mut object) = (self.sizes.len(), self.objects.len());
        self.ops.resize(before + events.len(), 0);
        self.sizes.resize(size + events.len(), 0);
        self.objects.resize(object + events.len(), 0);
        let (sizes, objects) = (self.sizes.as_mut_slice(), self.objects.as_mut_slice());
        let mut other_threads = 0;
        let per_event = self.ops[before..].iter_mut().zip(self.time_deltas.extend(events.len()));
        for (event, (op, time_delta)) in events.iter().zip(per_event) {
            let &Resolved { time_ns: now_ns, object: id, size: bytes, thread, call } = event;
            other_threads |= thread ^ self.open.0;
            *op = call as u8;
            *time_delta = now_ns - time_ns;
            time_ns = now_ns;
            // Only one of both values belongs to this event. Writing both is cheaper than a branch: the next event
            // overwrites the wrong one, as its position does not advance.
            let (Some(next_size), Some(next_object)) = (sizes.get_mut(size), objects.get_mut(object)) else { break };
            *next_size = bytes.into();
            *next_object = id;
            let is_free = usize::from(call == PlainCall::Free);
            size += 1 - is_free;
            object += is_free;
        }
        self.sizes.truncate(size);
        self.objects.truncate(object);
        if other_threads != 0 {
            self.push_runs(before, events);
        }
        if !self.sites.is_empty() {
            self.sites.resize(self.sizes.len(), SiteId::UNKNOWN.0);
        }
    }

    /// Adds the thread runs of these events. The first of them is event `at` of the chunk.
    #[inline(never)]
    fn push_runs(&mut self, at: usize, events: &[Resolved]) {
        for (event, at) in events.iter().zip(at..) {
            if event.thread != self.open.0 {
                self.begin_run(event.thread, at);
            }
        }
    }

    /// Closes the open run and starts one of `thread` at event `at`.
    fn begin_run(&mut self, thread: u32, at: usize) {
        self.close_run(at);
        self.open = (thread, at);
        self.run_threads.push(thread);
    }

    /// Ends the open run before event `at`.
    pub(super) fn close_run(&mut self, at: usize) {
        let events = at - self.open.1;
        if events > 0 {
            self.run_lengths.push(events as u16);
        }
    }

    /// Adds a site. The first site of a chunk is preceded by unknown sites for the earlier calls.
    fn push_site(&mut self, event: &Event) {
        if event.op.asks_for_memory() {
            self.sites.resize(self.sizes.len() - 1, SiteId::UNKNOWN.0);
            self.sites.push(event.site.0);
        }
    }

    #[inline(always)]
    fn push_op(&mut self, op: &Op) -> u8 {
        match *op {
            Op::Alloc { size, align_log2, call, initial_touch, .. } => {
                self.sizes.push(size);
                code::common_alloc(call, initial_touch, align_log2)
                    .unwrap_or_else(|| self.with_detail(code::ALLOC, Detail::of_alloc(call, initial_touch, align_log2)))
            }
            Op::Free { object } => self.with_object(code::FREE, object),
            _ => self.push_rare_op(op),
        }
    }

    #[inline(never)]
    fn push_rare_op(&mut self, op: &Op) -> u8 {
        match *op {
            Op::Alloc { .. } | Op::Free { .. } => self.push_op(op),
            Op::Realloc { object, size, call, initial_touch } => {
                self.sizes.push(size);
                self.objects.push(object.0);
                self.with_detail(code::REALLOC, Detail::of_realloc(call, initial_touch))
            }
            Op::ReallocFree { object, call } => {
                self.objects.push(object.0);
                self.with_detail(code::REALLOC_FREE, Detail::of_realloc(call, InitialTouch::None))
            }
            Op::ReallocUnknown { size, call, .. } => {
                self.sizes.push(size);
                self.with_detail(code::REALLOC_UNKNOWN, Detail::of_realloc(call, InitialTouch::None))
            }
            Op::FreeNull => code::FREE_NULL,
            Op::FreeUnknown => code::FREE_UNKNOWN,
            Op::UsableSize { object } => self.with_object(code::USABLE_SIZE, object),
            Op::AllocFailed { size, align_log2, call } => {
                self.sizes.push(size);
                self.with_detail(code::ALLOC_FAILED, Detail::of_alloc(call, InitialTouch::None, align_log2))
            }
            Op::ReallocFailed { object, size, call } => {
                self.sizes.push(size);
                self.objects.push(object.0);
                self.with_detail(code::REALLOC_FAILED, Detail::of_realloc(call, InitialTouch::None))
            }
            Op::ThreadStart => code::THREAD_START,
            Op::ThreadExit => code::THREAD_EXIT,
            Op::Fork { child_pid } => self.with_number(code::FORK, child_pid),
            Op::ForkEnd { child_pid, outlives } => {
                self.numbers.push(child_pid);
                self.with_detail(code::FORK_END, Detail::of_fork_end(outlives))
            }
            Op::Exec => code::EXEC,
            Op::Mark { name } => self.with_number(code::MARK, name),
            Op::MemoryPolicy { policy, inherited } => {
                let (kind, value) = policy.numbers();
                self.numbers.push(value);
                self.with_detail(code::MEMORY_POLICY, Detail::of_policy(kind, inherited))
            }
            Op::Touch { object, offset, bytes, access } => {
                self.objects.push(object.0);
                self.offsets.push(offset);
                let read_or_write = if access == Access::Read { code::TOUCH_READ } else { code::TOUCH_WRITE };
                self.with_number(read_or_write, bytes)
            }
        }
    }

    #[inline(always)]
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

    /// Appends the encoded columns to `out` and clears them.
    pub(super) fn drain_to(&mut self, encoder: &mut ColumnEncoder, methods: &mut MethodsByColumn, out: &mut Vec<u8>) {
        self.close_run(self.len());
        encoder.encode(&self.ops, &mut methods.ops, out);
        encoder.encode(self.time_deltas.as_slice(), &mut methods.time_deltas, out);
        encoder.encode(&self.sizes, &mut methods.sizes, out);
        encoder.encode(&self.objects, &mut methods.objects, out);
        encoder.encode(&self.details, &mut methods.details, out);
        encoder.encode(&self.numbers, &mut methods.numbers, out);
        encoder.encode(&self.offsets, &mut methods.offsets, out);
        encoder.encode(&self.run_threads, &mut methods.run_threads, out);
        encoder.encode(&self.run_lengths, &mut methods.run_lengths, out);
        encoder.encode(&self.sites, &mut methods.sites, out);
        self.clear();
    }

    /// Decodes the columns from `payload` and checks that they are consistent.
    pub(super) fn decode(
        &mut self,
        decoder: &mut ColumnDecoder,
        version: Version,
        mut payload: &[u8],
    ) -> Result<(), Flaw> {
        let input = &mut payload;
        decoder.decode(input, &mut self.ops)?;
        self.time_deltas.decode(decoder, input)?;
        decoder.decode(input, &mut self.sizes)?;
        decoder.decode(input, &mut self.objects)?;
        decoder.decode(input, &mut self.details)?;
        decoder.decode(input, &mut self.numbers)?;
        decoder.decode(input, &mut self.offsets)?;
        decoder.decode(input, &mut self.run_threads)?;
        decoder.decode(input, &mut self.run_lengths)?;
        match version {
            Version::V1 => self.sites.clear(),
            Version::V2 | Version::V3 | Version::V4 => decoder.decode(input, &mut self.sites)?,
        }
        if !payload.is_empty() {
            return Err("bytes are left over after the last column");
        }
        self.check()
    }

    fn check(&self) -> Result<(), Flaw> {
        let takes = Takes::sum(&self.ops);
        if takes.invalid() > 0 {
            return Err("an op code is unknown");
        }
        let fitting = self.time_deltas.as_slice().len() == self.ops.len()
            && self.sizes.len() == takes.sizes()
            && self.objects.len() == takes.objects()
            && self.details.len() == takes.details()
            && self.numbers.len() == takes.numbers()
            && self.offsets.len() == takes.offsets()
            && (self.sites.is_empty() || self.sites.len() == takes.sizes())
            && self.run_threads.len() == self.run_lengths.len();
        if !fitting {
            return Err("a column's length does not match the op codes");
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

    /// Time from the last event of the previous chunk to the last event of this one; `None` if it overflows.
    pub(super) fn duration_ns(&self) -> Option<u64> {
        self.time_deltas.duration_ns()
    }
}
