//! What each raw event means: to the live objects, to the threads that wait, and in the trace.

use super::wait_limits::WaitPolicy;
use super::waiting::Awaited;
use super::{EventSink, RawEvent, RawOp, Resolver};
use crate::error::TraceError;
use crate::event::{AllocCall, Event, InitialTouch, ObjectId, Op, ReallocCall, SiteId};

/// The context in which one raw event is resolved. Passed by value to stay in registers.
pub(super) struct Out<'a, E> {
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

impl Resolver {
    /// Emits the event if possible; otherwise returns what it must wait for.
    #[inline(always)]
    pub(super) fn run(
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
                self.live.doubt_all();
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
        let Some(object) = self.create(&mut out, address)? else { return Ok(Some(Awaited::Free(address))) };
        self.emit(out, Op::Alloc { object, size, align_log2, call, initial_touch })
    }

    #[inline(always)]
    fn free<E: EventSink>(&mut self, out: Out<E>, address: u64) -> Result<Option<Awaited>, TraceError> {
        match self.end(address) {
            Some(object) => self.emit(out, Op::Free { object }),
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
        let Some(object) = self.live.get(old) else {
            if out.wait_policy == WaitPolicy::Wait {
                return Ok(Some(Awaited::Alloc(old)));
            }
            return self.realloc_unknown(out, new, size, call);
        };
        if new == 0 && size > 0 {
            return self.emit(out, Op::ReallocFailed { object, size, call });
        }
        if new == 0 {
            self.end(old);
            return self.emit(out, Op::ReallocFree { object, call });
        }
        if new != old {
            if self.live.get(new).is_some() && !self.free_unseen(&mut out, new)? {
                return Ok(Some(Awaited::Free(new)));
            }
            self.live.relocate(old, new);
            self.waiting.wake(Awaited::Free(old), &mut self.woken);
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
        let Some(object) = self.create(&mut out, new)? else { return Ok(Some(Awaited::Free(new))) };
        self.emit(out, Op::ReallocUnknown { object, size, call })
    }

    fn use_object<E: EventSink>(
        &mut self,
        out: Out<E>,
        address: u64,
        op: impl FnOnce(ObjectId) -> Op,
    ) -> Result<Option<Awaited>, TraceError> {
        match self.live.get(address) {
            Some(object) => self.emit(out, op(object)),
            None if out.wait_policy == WaitPolicy::Wait => Ok(Some(Awaited::Alloc(address))),
            None => {
                self.quality.uses_dropped += 1;
                Ok(None)
            }
        }
    }

    /// A new object at an address; `None` if the allocation must wait for the free of the present one.
    #[inline(always)]
    fn create<E: EventSink>(&mut self, out: &mut Out<E>, address: u64) -> Result<Option<ObjectId>, TraceError> {
        loop {
            if let Some(object) = self.live.allocate(address)? {
                self.waiting.wake(Awaited::Alloc(address), &mut self.woken);
                return Ok(Some(object));
            }
            if !self.free_unseen(out, address)? {
                return Ok(None);
            }
        }
    }

    /// Ends the object at an address; `None` if none is live there.
    #[inline(always)]
    fn end(&mut self, address: u64) -> Option<ObjectId> {
        let object = self.live.free(address)?;
        self.waiting.wake(Awaited::Free(address), &mut self.woken);
        Some(object)
    }

    /// Inserts a free that was not seen: that of the object at an address that was returned again. False, and nothing
    /// is inserted, if the free may still come.
    #[cold]
    fn free_unseen<E: EventSink>(&mut self, out: &mut Out<E>, address: u64) -> Result<bool, TraceError> {
        if out.wait_policy == WaitPolicy::Wait && !self.live.is_doubtful(address) {
            return Ok(false);
        }
        if let Some(object) = self.end(address) {
            self.quality.reuse_repaired += 1;
            self.emit(out.again(), Op::Free { object })?;
        }
        Ok(true)
    }

    #[inline(always)]
    fn emit<E: EventSink>(&mut self, out: Out<E>, op: Op) -> Result<Option<Awaited>, TraceError> {
        let thread = self.threads.emitted_as(out.thread);
        self.emitted_ns = self.emitted_ns.max(out.time_ns);
        let site = if op.asks_for_memory() { out.site } else { SiteId::UNKNOWN };
        out.sink.take(Event { time_ns: self.emitted_ns, thread, site, op });
        Ok(None)
    }
}
