//! From addresses to objects: the parking merge that recorders and importers share.
//!
//! Events arrive sorted by time stamp. A free is stamped before the real call and an allocation after it, yet
//! now and then the reuse of an address still appears before its free: stamps of two cores differ by
//! some 100 ns, and some recorders log a realloc only after it returned. So the merge keeps the order within each
//! thread and lets a thread wait: an allocation until its address is dead, a free until its address is live.
//! A thread that waited longer than the [`Window`] is given up on: what it waited for was never recorded.
//!
//! A free that is stamped too early can also find its address live *with the block before*, and would end that one: then
//! the free that really ended it waits in vain. So frees are held back a little (`held.rs`), to their thread's next event
//! or until their address is given out again.

mod addresses;
mod held;
mod parked;
mod raw;

pub use raw::{RawEvent, RawOp};

use crate::error::TraceError;
use crate::event::{AllocCall, Birth, Event, ObjectId, Op, ReallocCall, SiteId, ThreadId};
use crate::header::Quality;
use crate::ids::ObjectIds;
use addresses::Addresses;
use held::Held;
use parked::{Awaited, Now, Parked};
use std::collections::VecDeque;

/// How long a thread may wait for another thread's event. Whichever limit is passed first ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Events pushed since the wait began.
    pub events: u64,
    /// Nanoseconds that an allocation waits until its address is dead. A realloc is stamped before the
    /// call or after it, so the other stamp is off by the whole call.
    pub death_ns: u64,
    /// Nanoseconds that a free waits until its address is live. Shorter, as only the skew between the clocks of
    /// two cores matters here, and an unknown free must not wait for the next block at its address.
    pub birth_ns: u64,
    /// Nanoseconds that a free is held back, unless its thread goes on or its address is given out before. A free is
    /// stamped before the call; a clock that runs a little ahead of it would make it end the block before the right one.
    /// 0 where the order of frees is certain.
    pub hold_ns: u64,
}

impl Window {
    /// Where the order is certain, or there is one thread only: nothing waits.
    pub const CERTAIN: Window = Window { events: 0, death_ns: 0, birth_ns: 0, hold_ns: 0 };

    /// For stamps taken on several cores without a lock.
    pub const UNLOCKED_STAMPS: Window = Window { events: 4096, death_ns: 1_000_000, birth_ns: 10_000, hold_ns: 2_000 };

    /// 4096 events; 1 ms; 10 us; frees are not held. The largest step back measured between two cores was 350 ns.
    pub const DEFAULT: Window = Window { hold_ns: 0, ..Window::UNLOCKED_STAMPS };
}

impl Window {
    fn patience(&self) -> Patience {
        if *self == Window::CERTAIN { Patience::GiveUp } else { Patience::Park }
    }
}

impl Default for Window {
    fn default() -> Self {
        Window::DEFAULT
    }
}

/// The merge. Feed it with [`Resolver::push`], end it with [`Resolver::finish`].
///
/// Emitted times never decrease: an event that waited gets the time of the one it waited for. Threads are
/// numbered anew, in order of their first emitted event.
#[derive(Debug)]
pub struct Resolver {
    window: Window,
    objects: Addresses,
    ids: ObjectIds,
    /// One queue per thread: empty unless the thread waits, its head being what waits.
    threads: Vec<Thread>,
    /// Raw thread number to index in `threads`, and the pair used last.
    thread_of: Addresses,
    thread_last: (u32, usize),
    parked: Parked,
    /// Frees that are held back.
    held: Held,
    /// Threads whose awaited address has changed, to be tried again.
    woken: VecDeque<usize>,
    now: Now,
    emitter: Emitter,
    quality: Quality,
}

#[derive(Debug, Default)]
struct Thread {
    waiting: VecDeque<RawEvent>,
    emitted_as: Option<ThreadId>,
}

/// What must stay monotonous across emitted events.
#[derive(Debug, Default)]
struct Emitter {
    time_ns: u64,
    threads: u32,
}

/// How an event that cannot happen yet is to be treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Let it wait.
    Park,
    /// It waited long enough: make it happen.
    GiveUp,
}

impl Resolver {
    /// A merge with no live object.
    pub fn new(window: Window) -> Self {
        Resolver {
            window,
            objects: Addresses::new(),
            ids: ObjectIds::new(),
            threads: Vec::new(),
            thread_of: Addresses::new(),
            thread_last: (0, usize::MAX),
            parked: Parked::default(),
            held: Held::default(),
            woken: VecDeque::new(),
            now: Now::default(),
            emitter: Emitter::default(),
            quality: Quality::default(),
        }
    }

    /// Takes the next event in order of time stamps and emits what can happen now.
    ///
    /// # Errors
    /// [`TraceError::TooManyObjects`].
    #[inline]
    pub fn push(&mut self, raw: RawEvent, emit: &mut impl FnMut(Event)) -> Result<(), TraceError> {
        self.take(&raw, emit)
    }

    /// As [`Resolver::push`], for events that need not be moved: that costs more than a lookup.
    ///
    /// # Errors
    /// As for [`Resolver::push`].
    #[inline]
    pub fn take(&mut self, raw: &RawEvent, emit: &mut impl FnMut(Event)) -> Result<(), TraceError> {
        self.now = Now { event: self.now.event + 1, time_ns: self.now.time_ns.max(raw.time_ns) };
        if !self.parked.is_empty() {
            self.give_up_overdue(emit)?;
        }
        let thread = self.thread_index(raw.thread)?;
        if self.window.hold_ns > 0 {
            if !self.held.is_empty() {
                self.admit_held(thread, &raw.op, emit)?;
            }
            if let RawOp::Free { address } = raw.op
                && address != 0
                && self.threads[thread].waiting.is_empty()
            {
                self.held.add(thread, address, raw, self.window.hold_ns);
                return Ok(());
            }
        }
        self.admit(thread, raw, emit)
    }

    fn give_up_overdue(&mut self, emit: &mut impl FnMut(Event)) -> Result<(), TraceError> {
        while let Some(thread) = self.parked.take_overdue(self.now, &self.window) {
            self.give_up(thread, emit)?;
        }
        Ok(())
    }

    /// Lets the frees happen that cannot be held back behind `op` of `thread`.
    #[inline]
    fn admit_held(&mut self, thread: usize, op: &RawOp, emit: &mut impl FnMut(Event)) -> Result<(), TraceError> {
        while let Some((holder, free)) = self.held.take_due(self.now.time_ns, thread) {
            self.admit(holder, &free, emit)?;
        }
        if self.held.is_empty() { Ok(()) } else { self.admit_behind(thread, op, emit) }
    }

    /// As [`Resolver::admit_held`], for frees behind one of another thread that can be held on.
    fn admit_behind(&mut self, thread: usize, op: &RawOp, emit: &mut impl FnMut(Event)) -> Result<(), TraceError> {
        loop {
            let reused = op.born().filter(|&address| self.objects.get(address).is_some());
            let Some((holder, free)) = self.held.take_behind(thread, reused) else {
                return Ok(());
            };
            self.admit(holder, &free, emit)?;
        }
    }

    /// Makes the next event of a thread happen, or lets it wait.
    #[inline]
    fn admit(&mut self, thread: usize, raw: &RawEvent, emit: &mut impl FnMut(Event)) -> Result<(), TraceError> {
        let waits = !self.threads[thread].waiting.is_empty();
        let awaited = if waits { None } else { self.run(thread, raw, self.window.patience(), emit)? };
        if waits || awaited.is_some() {
            self.threads[thread].waiting.push_back(*raw);
        }
        if let Some(awaited) = awaited {
            self.parked.add(thread, awaited, self.now);
        } else if !waits && !self.woken.is_empty() {
            return self.run_woken(emit);
        }
        Ok(())
    }

    /// Whether a block is live at the address, as far as events were emitted.
    pub fn is_live(&self, address: u64) -> bool {
        self.objects.get(address).is_some()
    }

    /// Emits everything that still waits, and says what was repaired.
    ///
    /// # Errors
    /// [`TraceError::TooManyObjects`].
    pub fn finish(mut self, emit: &mut impl FnMut(Event)) -> Result<Quality, TraceError> {
        while let Some((thread, free)) = self.held.take_first() {
            self.admit(thread, &free, emit)?;
        }
        while let Some(thread) = self.parked.take_oldest() {
            self.give_up(thread, emit)?;
        }
        Ok(self.quality)
    }

    fn thread_index(&mut self, raw: u32) -> Result<usize, TraceError> {
        if self.thread_last.0 == raw && self.thread_last.1 != usize::MAX {
            return Ok(self.thread_last.1);
        }
        let index = match self.thread_of.get(raw as u64) {
            Some(index) => index as usize,
            None => {
                let index = self.threads.len();
                self.thread_of.insert(raw as u64, u32::try_from(index).map_err(|_| TraceError::TooManyObjects)?);
                self.threads.push(Thread::default());
                index
            }
        };
        self.thread_last = (raw, index);
        Ok(index)
    }

    /// Makes the waiting event of a thread happen although what it waits for did not.
    fn give_up(&mut self, thread: usize, emit: &mut impl FnMut(Event)) -> Result<(), TraceError> {
        if let Some(raw) = self.threads[thread].waiting.pop_front() {
            self.run(thread, &raw, Patience::GiveUp, emit)?;
        }
        self.woken.push_back(thread);
        self.run_woken(emit)
    }

    /// Runs the queues of woken threads as far as they go; that may wake others.
    fn run_woken(&mut self, emit: &mut impl FnMut(Event)) -> Result<(), TraceError> {
        while let Some(thread) = self.woken.pop_front() {
            while let Some(&raw) = self.threads[thread].waiting.front() {
                let overtaken = self.emitter.time_ns > raw.time_ns;
                if let Some(awaited) = self.run(thread, &raw, Patience::Park, emit)? {
                    self.parked.add(thread, awaited, self.now);
                    break;
                }
                self.quality.parked += overtaken as u64;
                self.threads[thread].waiting.pop_front();
            }
        }
        Ok(())
    }

    /// Emits the event if it can happen; returns what it waits for if not.
    #[inline]
    fn run(
        &mut self,
        thread: usize,
        raw: &RawEvent,
        patience: Patience,
        emit: &mut impl FnMut(Event),
    ) -> Result<Option<Awaited>, TraceError> {
        let mut out = Out { thread, time_ns: raw.time_ns, site: raw.site, patience, emit };
        match raw.op {
            RawOp::Alloc { address, size, align_log2, call, birth } => {
                self.alloc(&mut out, address, size, align_log2, call, birth)
            }
            RawOp::Free { address: 0 } => self.emit(&mut out, Op::FreeNull),
            RawOp::Free { address } => self.free(&mut out, address),
            RawOp::Realloc { old: 0, new, size, call, birth } => {
                self.alloc(&mut out, new, size, 0, allocating(call), birth)
            }
            RawOp::Realloc { old, new, size, call, birth } => self.realloc(&mut out, old, new, size, call, birth),
            RawOp::UsableSize { address: 0 } => Ok(None),
            RawOp::UsableSize { address } => self.use_object(&mut out, address, |object| Op::UsableSize { object }),
            RawOp::Touch { address, offset, bytes, access } => {
                self.use_object(&mut out, address, |object| Op::Touch { object, offset, bytes, access })
            }
            RawOp::ThreadStart => self.emit(&mut out, Op::ThreadStart),
            RawOp::ThreadExit => self.emit(&mut out, Op::ThreadExit),
            RawOp::Fork { child_pid } => self.emit(&mut out, Op::Fork { child_pid }),
            RawOp::Exec => self.emit(&mut out, Op::Exec),
            RawOp::Mark { name } => self.emit(&mut out, Op::Mark { name }),
        }
    }

    #[inline]
    fn alloc<E: FnMut(Event)>(
        &mut self,
        out: &mut Out<E>,
        address: u64,
        size: u64,
        align_log2: u8,
        call: AllocCall,
        birth: Birth,
    ) -> Result<Option<Awaited>, TraceError> {
        if address == 0 {
            return self.emit(out, Op::AllocFailed { size, align_log2, call });
        }
        let object = self.ids.upcoming();
        if !self.objects.insert_new(address, object.0) {
            if out.patience == Patience::Park {
                return Ok(Some(Awaited::Death(address)));
            }
            self.free_unseen(out, address)?;
            let object = self.bear(address)?;
            return self.emit(out, Op::Alloc { object, size, align_log2, call, birth });
        }
        self.ids.allocate().ok_or(TraceError::TooManyObjects)?;
        self.parked.wake(Awaited::Birth(address), &mut self.woken);
        self.emit(out, Op::Alloc { object, size, align_log2, call, birth })
    }

    #[inline]
    fn free<E: FnMut(Event)>(&mut self, out: &mut Out<E>, address: u64) -> Result<Option<Awaited>, TraceError> {
        match self.objects.remove(address) {
            Some(id) => {
                self.bury(address, ObjectId(id));
                self.emit(out, Op::Free { object: ObjectId(id) })
            }
            None if out.patience == Patience::Park => Ok(Some(Awaited::Birth(address))),
            None => {
                self.quality.unknown_frees += 1;
                self.emit(out, Op::FreeUnknown)
            }
        }
    }

    fn realloc<E: FnMut(Event)>(
        &mut self,
        out: &mut Out<E>,
        old: u64,
        new: u64,
        size: u64,
        call: ReallocCall,
        birth: Birth,
    ) -> Result<Option<Awaited>, TraceError> {
        let Some(id) = self.objects.get(old) else {
            if out.patience == Patience::Park {
                return Ok(Some(Awaited::Birth(old)));
            }
            return self.realloc_unknown(out, new, size, call);
        };
        let object = ObjectId(id);
        if new == 0 && size > 0 {
            return self.emit(out, Op::ReallocFailed { object, size, call });
        }
        if new == 0 {
            self.objects.remove(old);
            self.bury(old, object);
            return self.emit(out, Op::ReallocFree { object, call });
        }
        if new != old {
            if self.objects.get(new).is_some() {
                if out.patience == Patience::Park {
                    return Ok(Some(Awaited::Death(new)));
                }
                self.free_unseen(out, new)?;
            }
            self.objects.remove(old);
            self.parked.wake(Awaited::Death(old), &mut self.woken);
            self.objects.insert(new, id);
            self.parked.wake(Awaited::Birth(new), &mut self.woken);
        }
        self.quality.reallocs_to_zero_kept += (size == 0) as u64;
        self.emit(out, Op::Realloc { object, size: size.max(1), call, birth })
    }

    /// A realloc of an address never seen allocated.
    fn realloc_unknown<E: FnMut(Event)>(
        &mut self,
        out: &mut Out<E>,
        new: u64,
        size: u64,
        call: ReallocCall,
    ) -> Result<Option<Awaited>, TraceError> {
        if new == 0 && size > 0 {
            return self.emit(out, Op::AllocFailed { size, align_log2: 0, call: allocating(call) });
        }
        self.quality.unknown_frees += 1;
        if new == 0 {
            return self.emit(out, Op::FreeUnknown);
        }
        if self.objects.get(new).is_some() {
            self.free_unseen(out, new)?;
        }
        let object = self.bear(new)?;
        self.emit(out, Op::ReallocUnknown { object, size, call })
    }

    fn use_object<E: FnMut(Event)>(
        &mut self,
        out: &mut Out<E>,
        address: u64,
        op: impl FnOnce(ObjectId) -> Op,
    ) -> Result<Option<Awaited>, TraceError> {
        match self.objects.get(address) {
            Some(id) => self.emit(out, op(ObjectId(id))),
            None if out.patience == Patience::Park => Ok(Some(Awaited::Birth(address))),
            None => {
                self.quality.uses_dropped += 1;
                Ok(None)
            }
        }
    }

    /// Frees an object whose free was never seen, because its address is given out again.
    fn free_unseen<E: FnMut(Event)>(&mut self, out: &mut Out<E>, address: u64) -> Result<(), TraceError> {
        if let Some(id) = self.objects.remove(address) {
            self.quality.reuse_repaired += 1;
            self.bury(address, ObjectId(id));
            self.emit(out, Op::Free { object: ObjectId(id) })?;
        }
        Ok(())
    }

    #[inline]
    fn bear(&mut self, address: u64) -> Result<ObjectId, TraceError> {
        let object = self.ids.allocate().ok_or(TraceError::TooManyObjects)?;
        self.objects.insert(address, object.0);
        self.parked.wake(Awaited::Birth(address), &mut self.woken);
        Ok(object)
    }

    #[inline]
    fn bury(&mut self, address: u64, object: ObjectId) {
        self.ids.release(object);
        self.parked.wake(Awaited::Death(address), &mut self.woken);
    }

    #[inline]
    fn emit<E: FnMut(Event)>(&mut self, out: &mut Out<E>, op: Op) -> Result<Option<Awaited>, TraceError> {
        let thread = match self.threads[out.thread].emitted_as {
            Some(thread) => thread,
            None => self.emitter.number(&mut self.threads[out.thread]),
        };
        self.emitter.time_ns = self.emitter.time_ns.max(out.time_ns);
        let site = if op.asks_for_memory() { out.site } else { SiteId::UNKNOWN };
        (out.emit)(Event { time_ns: self.emitter.time_ns, thread, site, op });
        Ok(None)
    }
}

/// Where the events of one raw event go.
struct Out<'a, E> {
    thread: usize,
    time_ns: u64,
    site: SiteId,
    patience: Patience,
    emit: &'a mut E,
}

impl Emitter {
    fn number(&mut self, thread: &mut Thread) -> ThreadId {
        let number = ThreadId(self.threads);
        self.threads += 1;
        thread.emitted_as = Some(number);
        number
    }
}

/// The allocating name of a resizing function.
fn allocating(call: ReallocCall) -> AllocCall {
    match call {
        ReallocCall::Realloc => AllocCall::Realloc,
        ReallocCall::Reallocarray => AllocCall::Reallocarray,
    }
}
