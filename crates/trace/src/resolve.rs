//! From addresses to objects: the merge that recorders and importers share. It reorders events where needed.
//!
//! Events arrive sorted by timestamp. A free is stamped before the real call and an allocation after it. Even so, the reuse
//! of an address sometimes appears before its free: timestamps of two cores differ by some 100 ns, and some recorders log a
//! realloc only after it returned. So the merge keeps the order within each thread and lets a thread wait: an allocation
//! until its address is free, a free until its address is live. When a thread has waited longer than [`WaitLimits`] allows,
//! the merge gives up: what the thread waits for was not recorded.
//!
//! A free that is stamped too early can also find its address live with *the previous block* and end that block. Then
//! the free that really ended the previous block waits in vain. So frees are delayed briefly (`delayed.rs`): until their
//! thread's next event, until their address is returned again, or until a time limit.

mod address_map;
mod batch;
mod delay_table;
mod delayed;
mod event_sink;
mod objects;
mod plain;
mod raw;
mod recycler;
mod wait_limits;
mod waiting;

pub use event_sink::EventSink;
pub use plain::{Plain, PlainCall, Resolved};
pub use raw::{RawEvent, RawOp};
pub use wait_limits::WaitLimits;

use crate::error::TraceError;
use crate::event::{AllocCall, Event, InitialTouch, ObjectId, Op, ReallocCall, SiteId, ThreadId};
use crate::header::Quality;
use crate::ids::ObjectSet;
use address_map::AddressMap;
use batch::BatchState;
use delayed::DelayedFrees;
use objects::Objects;
use recycler::Recycler;
use std::collections::VecDeque;
use wait_limits::WaitPolicy;
use waiting::{Awaited, Now, WaitingThreads};

/// The merge. Push events with [`Resolver::push`], then call [`Resolver::finish`].
///
/// Emitted times never decrease: an event that waited gets the time of the one it waited for. Threads are
/// renumbered in order of their first emitted event.
#[derive(Debug)]
pub struct Resolver {
    limits: WaitLimits,
    wait_policy: WaitPolicy,
    objects: Objects,
    ids: Recycler,
    /// One queue per thread. Empty unless the thread waits; then the first event is the one that waits.
    threads: Vec<Thread>,
    /// Raw thread number to index in `threads`, and a cache of the pairs used last, indexed by the raw number's low bits.
    thread_of: AddressMap,
    thread_cache: ThreadCache,
    /// Raw and emitted thread number, indexed by the raw number's low bits.
    emitted_cache: [(u32, u32); THREAD_CACHE_SLOTS],
    waiting: WaitingThreads,
    /// Objects that were live at the last gap and have not been freed since, as far as is known.
    doubtful: ObjectSet,
    /// Frees that are delayed.
    delayed: DelayedFrees,
    batch: BatchState,
    /// Threads to try again, as the address they wait for has changed.
    woken: VecDeque<usize>,
    now: Now,
    emitter: Emitter,
    quality: Quality,
}

/// Slots of the thread caches; a power of two.
const THREAD_CACHE_SLOTS: usize = 64;

/// Raw number and index of the threads used last, each in its [slot](cache_slot).
type ThreadCache = [(u32, usize); THREAD_CACHE_SLOTS];

/// The cache slot of a raw thread number.
#[inline(always)]
fn cache_slot(raw: u32) -> usize {
    raw as usize % THREAD_CACHE_SLOTS
}

/// Index of a thread, if it is cached.
#[inline(always)]
fn cached_index(thread_cache: &ThreadCache, raw: u32) -> Option<usize> {
    let (last, index) = thread_cache[cache_slot(raw)];
    (last == raw && index != usize::MAX).then_some(index)
}

#[derive(Debug, Default)]
struct Thread {
    queue: VecDeque<RawEvent>,
    emitted_as: Option<ThreadId>,
}

/// What must not decrease from one emitted event to the next.
#[derive(Debug, Default)]
struct Emitter {
    time_ns: u64,
    threads: u32,
}

impl Resolver {
    /// A merge with no live object.
    pub fn new(limits: WaitLimits) -> Self {
        Resolver {
            limits,
            wait_policy: limits.wait_policy(),
            objects: Objects::new(),
            ids: Recycler::default(),
            threads: Vec::new(),
            thread_of: AddressMap::new(),
            thread_cache: [(0, usize::MAX); THREAD_CACHE_SLOTS],
            // Raw numbers that belong to other slots, so they are never found.
            emitted_cache: std::array::from_fn(|place| (u32::from(place == 0), 0)),
            waiting: WaitingThreads::default(),
            doubtful: ObjectSet::default(),
            delayed: DelayedFrees::default(),
            batch: BatchState::default(),
            woken: VecDeque::new(),
            now: Now::default(),
            emitter: Emitter::default(),
            quality: Quality::default(),
        }
    }

    /// Changes [`WaitLimits::free_delay_ns`] from now on.
    pub fn delay_frees(&mut self, free_delay_ns: u64) {
        self.limits.free_delay_ns = free_delay_ns;
    }

    /// Takes the next event, in order of timestamps, and emits the events that are ready.
    ///
    /// # Errors
    /// [`TraceError::TooManyObjects`].
    #[inline]
    pub fn push(&mut self, raw: RawEvent, sink: &mut impl EventSink) -> Result<(), TraceError> {
        self.take(&raw, sink)
    }

    /// As [`Resolver::push`], by reference: copying an event costs more than a lookup.
    ///
    /// # Errors
    /// As for [`Resolver::push`].
    #[inline(always)]
    pub fn take(&mut self, raw: &RawEvent, sink: &mut impl EventSink) -> Result<(), TraceError> {
        self.now = Now { event: self.now.event + 1, time_ns: self.now.time_ns.max(raw.time_ns) };
        if !self.waiting.is_empty() {
            self.give_up_overdue(sink)?;
            self.give_up_stale(raw.time_ns, &raw.op, sink)?;
        }
        let thread = self.thread_index(raw.thread)?;
        if self.limits.free_delay_ns > 0 {
            if !self.delayed.is_empty() {
                self.admit_delayed(thread, &raw.op, sink)?;
            }
            if let RawOp::Free { address } = raw.op
                && address != 0
                && self.threads[thread].queue.is_empty()
            {
                self.delayed.add(thread, address, raw);
                return Ok(());
            }
        }
        self.admit(thread, raw, sink)
    }

    #[cold]
    fn give_up_overdue(&mut self, sink: &mut impl EventSink) -> Result<(), TraceError> {
        while let Some((thread, awaited)) = self.waiting.overdue(self.now, &self.limits) {
            // The awaited event may be in the queue of another waiting thread: then end that thread's wait.
            let thread = self.thread_holding(thread, awaited).unwrap_or(thread);
            self.waiting.remove(thread);
            self.give_up(thread, sink)?;
        }
        Ok(())
    }

    /// The thread other than `waiting` that has the awaited event in its queue.
    fn thread_holding(&self, waiting: usize, awaited: Awaited) -> Option<usize> {
        let is_awaited = |raw: &RawEvent| match awaited {
            Awaited::Alloc(address) => raw.op.allocated() == Some(address),
            Awaited::Free(address) => raw.op.freed() == Some(address),
        };
        let mut others = self.waiting.threads().filter(|&thread| thread != waiting);
        others.find(|&thread| self.threads[thread].queue.iter().any(is_awaited))
    }

    /// Ends the waits for an event of this address that `op` cannot satisfy, because it is stamped too late.
    ///
    /// A free is stamped before the call and an allocation after it. So the free that an allocation waits for is stamped before
    /// that allocation, up to the skew between clocks, and likewise the allocation that a free waits for. If `op` were accepted in
    /// its place, every later block at this address would be mistaken for the one before or after it.
    #[cold]
    fn give_up_stale(&mut self, time_ns: u64, op: &RawOp, sink: &mut impl EventSink) -> Result<(), TraceError> {
        let awaited = match (*op, op.allocated()) {
            (RawOp::Free { address }, _) => Awaited::Free(address),
            (RawOp::Alloc { .. }, Some(address)) => Awaited::Alloc(address),
            _ => return Ok(()),
        };
        let skew_ns = self.limits.free_delay_ns;
        while skew_ns > 0
            && let Some(thread) = self.waiting.take_stale(awaited, time_ns.saturating_sub(skew_ns))
        {
            self.give_up(thread, sink)?;
        }
        Ok(())
    }

    /// Admits the delayed frees that must come before `op` of `thread`.
    #[inline(always)]
    fn admit_delayed(&mut self, thread: usize, op: &RawOp, sink: &mut impl EventSink) -> Result<(), TraceError> {
        while let Some((holder, free)) = self.delayed.take_due(self.now.time_ns, self.limits.free_delay_ns, thread) {
            self.admit(holder, &free, sink)?;
        }
        while let Some((holder, free)) = self.take_conflicting(thread, op) {
            self.admit(holder, &free, sink)?;
        }
        Ok(())
    }

    /// The next delayed free that must come before `op`, where an older one of another thread can stay delayed.
    #[inline(always)]
    fn take_conflicting(&mut self, thread: usize, op: &RawOp) -> Option<(usize, RawEvent)> {
        if self.delayed.is_empty() {
            return None;
        }
        let own = self.delayed.take_of_thread(thread);
        own.or_else(|| {
            let reused = op.allocated().filter(|&address| self.delayed.contains(address))?;
            self.objects.get(reused).and_then(|_| self.delayed.take_at(reused))
        })
    }

    /// Resolves the next event of a thread, or lets it wait.
    ///
    /// Rare paths get a copy of the event, so that the event itself can stay in registers.
    #[inline(always)]
    fn admit(&mut self, thread: usize, raw: &RawEvent, sink: &mut impl EventSink) -> Result<(), TraceError> {
        if !self.threads[thread].queue.is_empty() {
            self.enqueue(thread, *raw);
            return Ok(());
        }
        match self.run(thread, raw, self.wait_policy, sink)? {
            Some(awaited) => {
                self.enqueue(thread, *raw);
                self.waiting.add(thread, awaited, self.now);
            }
            None if self.woken.is_empty() => {}
            None => self.run_woken(sink)?,
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn enqueue(&mut self, thread: usize, raw: RawEvent) {
        self.threads[thread].queue.push_back(raw);
    }

    /// Whether a block is live at the address after the events emitted so far.
    pub fn is_live(&self, address: u64) -> bool {
        self.objects.get(address).is_some()
    }

    /// Emits all events that still wait. Returns the counts of what was guessed or repaired.
    ///
    /// # Errors
    /// [`TraceError::TooManyObjects`].
    pub fn finish(mut self, sink: &mut impl EventSink) -> Result<Quality, TraceError> {
        while let Some((thread, free)) = self.delayed.take_first() {
            self.admit(thread, &free, sink)?;
        }
        while let Some(thread) = self.waiting.take_oldest() {
            self.give_up(thread, sink)?;
        }
        Ok(self.quality)
    }

    #[inline(always)]
    fn thread_index(&mut self, raw: u32) -> Result<usize, TraceError> {
        match cached_index(&self.thread_cache, raw) {
            Some(index) => Ok(index),
            None => self.find_thread(raw),
        }
    }

    #[inline(never)]
    fn find_thread(&mut self, raw: u32) -> Result<usize, TraceError> {
        let index = match self.thread_of.get(raw as u64) {
            Some(index) => index as usize,
            None => {
                let index = self.threads.len();
                self.thread_of.insert(raw as u64, u32::try_from(index).map_err(|_| TraceError::TooManyObjects)?);
                self.threads.push(Thread::default());
                index
            }
        };
        self.thread_cache[cache_slot(raw)] = (raw, index);
        self.batch.slots_used = self.batch.slots_used.max(cache_slot(raw) + 1);
        Ok(index)
    }

    /// Resolves the waiting event of a thread although the event that it waits for has not come.
    fn give_up(&mut self, thread: usize, sink: &mut impl EventSink) -> Result<(), TraceError> {
        if let Some(raw) = self.threads[thread].queue.pop_front() {
            self.run(thread, &raw, WaitPolicy::GiveUp, sink)?;
        }
        self.woken.push_back(thread);
        self.run_woken(sink)
    }

    /// Resolves the queued events of woken threads up to the next one that must wait. This may wake other threads.
    #[cold]
    fn run_woken(&mut self, sink: &mut impl EventSink) -> Result<(), TraceError> {
        while let Some(thread) = self.woken.pop_front() {
            while let Some(&raw) = self.threads[thread].queue.front() {
                let overtaken = self.emitter.time_ns > raw.time_ns;
                if let Some(awaited) = self.run(thread, &raw, WaitPolicy::Wait, sink)? {
                    self.waiting.add(thread, awaited, self.now);
                    break;
                }
                self.quality.parked += overtaken as u64;
                self.threads[thread].queue.pop_front();
            }
        }
        Ok(())
    }

    /// Emits the event if possible; otherwise returns what it must wait for.
    #[inline(always)]
    fn run(
        &mut self,
        thread: usize,
        raw: &RawEvent,
        wait_policy: WaitPolicy,
        sink: &mut impl EventSink,
    ) -> Result<Option<Awaited>, TraceError> {
        let out = Out { thread, time_ns: raw.time_ns, site: raw.site, wait_policy, sink };
        match raw.op {
            RawOp::Alloc { address, size, align_log2, call, initial_touch } => {
                self.alloc(out, address, size, align_log2, call, initial_touch)
            }
            RawOp::Free { address } if address != 0 => self.free(out, address),
            op => self.run_rare(out, op),
        }
    }

    #[inline(never)]
    fn run_rare<E: EventSink>(&mut self, out: Out<E>, op: RawOp) -> Result<Option<Awaited>, TraceError> {
        match op {
            RawOp::Alloc { address, size, align_log2, call, initial_touch } => {
                self.alloc(out, address, size, align_log2, call, initial_touch)
            }
            RawOp::Free { address: 0 } => self.emit(out, Op::FreeNull),
            RawOp::Free { address } => self.free(out, address),
            RawOp::Realloc { old: 0, new, size, call, initial_touch } => {
                self.alloc(out, new, size, 0, call.of_null(), initial_touch)
            }
            RawOp::Realloc { old, new, size, call, initial_touch } => {
                self.realloc(out, old, new, size, call, initial_touch)
            }
            RawOp::UsableSize { address: 0 } => Ok(None),
            RawOp::UsableSize { address } => self.use_object(out, address, |object| Op::UsableSize { object }),
            RawOp::Touch { address, offset, bytes, access } => {
                self.use_object(out, address, |object| Op::Touch { object, offset, bytes, access })
            }
            RawOp::ThreadStart => self.emit(out, Op::ThreadStart),
            RawOp::ThreadExit => self.emit(out, Op::ThreadExit),
            RawOp::Fork { child_pid } => self.emit(out, Op::Fork { child_pid }),
            RawOp::ForkEnd { child_pid, outlives } => self.emit(out, Op::ForkEnd { child_pid, outlives }),
            RawOp::Exec => self.emit(out, Op::Exec),
            RawOp::Gap => {
                self.doubtful = self.ids.empty_set();
                self.objects.ids().for_each(|id| self.doubtful.insert(id));
                Ok(None)
            }
            RawOp::Mark { name } => self.emit(out, Op::Mark { name }),
            RawOp::MemoryPolicy { policy, inherited } => self.emit(out, Op::MemoryPolicy { policy, inherited }),
        }
    }

    #[inline(always)]
    fn alloc<E: EventSink>(
        &mut self,
        mut out: Out<E>,
        address: u64,
        size: u64,
        align_log2: u8,
        call: AllocCall,
        initial_touch: InitialTouch,
    ) -> Result<Option<Awaited>, TraceError> {
        if address == 0 {
            return self.emit(out, Op::AllocFailed { size, align_log2, call });
        }
        let mut object = ObjectId(self.ids.upcoming().ok_or(TraceError::TooManyObjects)?);
        if self.objects.insert_new(address, object.0) {
            self.ids.allocate();
            self.waiting.wake(Awaited::Alloc(address), &mut self.woken);
        } else if out.wait_policy == WaitPolicy::Wait && !self.is_doubtful(address) {
            return Ok(Some(Awaited::Free(address)));
        } else {
            self.free_unseen(out.again(), address)?;
            object = self.allocate_at(address)?;
        }
        self.emit(out, Op::Alloc { object, size, align_log2, call, initial_touch })
    }

    #[inline(always)]
    fn free<E: EventSink>(&mut self, out: Out<E>, address: u64) -> Result<Option<Awaited>, TraceError> {
        match self.objects.remove(address) {
            Some(id) => {
                self.release_object(address, ObjectId(id));
                self.emit(out, Op::Free { object: ObjectId(id) })
            }
            None if out.wait_policy == WaitPolicy::Wait => Ok(Some(Awaited::Alloc(address))),
            None => {
                self.quality.unknown_frees += 1;
                self.emit(out, Op::FreeUnknown)
            }
        }
    }

    fn realloc<E: EventSink>(
        &mut self,
        mut out: Out<E>,
        old: u64,
        new: u64,
        size: u64,
        call: ReallocCall,
        initial_touch: InitialTouch,
    ) -> Result<Option<Awaited>, TraceError> {
        let Some(id) = self.objects.get(old) else {
            if out.wait_policy == WaitPolicy::Wait {
                return Ok(Some(Awaited::Alloc(old)));
            }
            return self.realloc_unknown(out, new, size, call);
        };
        let object = ObjectId(id);
        if new == 0 && size > 0 {
            return self.emit(out, Op::ReallocFailed { object, size, call });
        }
        if new == 0 {
            self.objects.remove(old);
            self.release_object(old, object);
            return self.emit(out, Op::ReallocFree { object, call });
        }
        if new != old {
            if self.objects.get(new).is_some() {
                if out.wait_policy == WaitPolicy::Wait && !self.is_doubtful(new) {
                    return Ok(Some(Awaited::Free(new)));
                }
                self.free_unseen(out.again(), new)?;
            }
            self.objects.remove(old);
            self.waiting.wake(Awaited::Free(old), &mut self.woken);
            self.objects.insert_new(new, id);
            self.waiting.wake(Awaited::Alloc(new), &mut self.woken);
        }
        self.quality.reallocs_to_zero_kept += (size == 0) as u64;
        self.emit(out, Op::Realloc { object, size: size.max(1), call, initial_touch })
    }

    /// A realloc of an address whose allocation was not seen.
    fn realloc_unknown<E: EventSink>(
        &mut self,
        mut out: Out<E>,
        new: u64,
        size: u64,
        call: ReallocCall,
    ) -> Result<Option<Awaited>, TraceError> {
        if new == 0 && size > 0 {
            return self.emit(out, Op::AllocFailed { size, align_log2: 0, call: call.of_null() });
        }
        self.quality.unknown_frees += 1;
        if new == 0 {
            return self.emit(out, Op::FreeUnknown);
        }
        if self.objects.get(new).is_some() {
            self.free_unseen(out.again(), new)?;
        }
        let object = self.allocate_at(new)?;
        self.emit(out, Op::ReallocUnknown { object, size, call })
    }

    fn use_object<E: EventSink>(
        &mut self,
        out: Out<E>,
        address: u64,
        op: impl FnOnce(ObjectId) -> Op,
    ) -> Result<Option<Awaited>, TraceError> {
        match self.objects.get(address) {
            Some(id) => self.emit(out, op(ObjectId(id))),
            None if out.wait_policy == WaitPolicy::Wait => Ok(Some(Awaited::Alloc(address))),
            None => {
                self.quality.uses_dropped += 1;
                Ok(None)
            }
        }
    }

    /// Inserts the free that was not seen, for an object whose address is returned again.
    #[cold]
    fn free_unseen<E: EventSink>(&mut self, out: Out<E>, address: u64) -> Result<(), TraceError> {
        if let Some(id) = self.objects.remove(address) {
            self.quality.reuse_repaired += 1;
            self.release_object(address, ObjectId(id));
            self.emit(out, Op::Free { object: ObjectId(id) })?;
        }
        Ok(())
    }

    #[cold]
    fn allocate_at(&mut self, address: u64) -> Result<ObjectId, TraceError> {
        let object = ObjectId(self.ids.allocate().ok_or(TraceError::TooManyObjects)?);
        self.objects.insert_new(address, object.0);
        self.waiting.wake(Awaited::Alloc(address), &mut self.woken);
        Ok(object)
    }

    /// Whether the block at an address may have been freed in a gap. An allocation must not wait for its free: the free of the
    /// next block would end it, and so on for every later block at this address.
    #[cold]
    fn is_doubtful(&self, address: u64) -> bool {
        self.objects.get(address).is_some_and(|id| self.doubtful.contains(ObjectId(id)))
    }

    #[inline(always)]
    fn release_object(&mut self, address: u64, object: ObjectId) {
        self.ids.release(object.0);
        self.doubtful.remove(object);
        self.waiting.wake(Awaited::Free(address), &mut self.woken);
    }

    /// The number under which a thread's events are emitted.
    #[inline(always)]
    fn emitted_as(&mut self, thread: usize) -> ThreadId {
        match self.threads[thread].emitted_as {
            Some(thread) => thread,
            None => self.emitter.number(&mut self.threads[thread]),
        }
    }

    #[inline(always)]
    fn emit<E: EventSink>(&mut self, out: Out<E>, op: Op) -> Result<Option<Awaited>, TraceError> {
        let thread = self.emitted_as(out.thread);
        self.emitter.time_ns = self.emitter.time_ns.max(out.time_ns);
        let site = if op.asks_for_memory() { out.site } else { SiteId::UNKNOWN };
        out.sink.take(Event { time_ns: self.emitter.time_ns, thread, site, op });
        Ok(None)
    }
}

/// The context in which one raw event is resolved. Passed by value to stay in registers.
struct Out<'a, E> {
    thread: usize,
    time_ns: u64,
    site: SiteId,
    wait_policy: WaitPolicy,
    sink: &'a mut E,
}

impl<E> Out<'_, E> {
    /// A copy, to emit an event before the main one.
    #[inline(always)]
    fn again(&mut self) -> Out<'_, E> {
        Out { sink: self.sink, ..*self }
    }
}

impl Emitter {
    fn number(&mut self, thread: &mut Thread) -> ThreadId {
        let number = ThreadId(self.threads);
        self.threads += 1;
        thread.emitted_as = Some(number);
        number
    }
}
