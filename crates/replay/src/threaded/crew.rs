//! Real threads, one for each of the trace, and the order between them.
//!
//! A dispatcher reads the trace and hands each thread its events. Every event on an object carries a ticket: the number
//! of earlier events on that object. It waits until those are done, so threads wait for each other only where an object
//! crosses threads. No wait can last: an event waits for earlier ones of the trace only, and the earliest that is not
//! done stands first in its queue.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Condvar, Mutex, OnceLock, PoisonError};

use hksim_engine::{DriveError, MemoryPolicyRule, TouchRule};
use hksim_trace::event::Op;
use hksim_trace::source::EventSource;

use super::gate::{Gate, next};
use super::queue::{Item, Queue};
use super::threads::{Task, Threads};
use super::world::Shared;
use crate::apply::{Object, apply};
use crate::error::ChildError;
use crate::memory_policy::{obey, refused};
use crate::window::Prepared;
use hksim_linux_probe::resident::make_resident;

/// A live object, and how many of its events are done.
struct Slot<P> {
    done: Gate,
    object: UnsafeCell<Object<P>>,
}

// SAFETY: the object belongs to the thread whose ticket has come.
unsafe impl<P: Send> Sync for Slot<P> {}

/// Threads and what they share; `P` is where a block lies.
pub(crate) struct Crew<P> {
    slots: Box<[Slot<P>]>,
    queues: Vec<Queue>,
    touch: TouchRule,
    memory_policy: MemoryPolicyRule,
    failed: AtomicU64,
    /// Memory policies that the kernel refused.
    disobeyed: AtomicU64,
    /// Heaps that could not be opened.
    homeless: AtomicU64,
    ready: Barrier,
    working: Mutex<usize>,
    all_done: Condvar,
}

/// What a crew's run came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) events: u64,
    pub(crate) failed: u64,
}

/// One thread's part.
struct Worker<'a, P, S> {
    crew: &'a Crew<P>,
    queue: &'a Queue,
    shared: &'a OnceLock<S>,
}

impl<P: Copy + Send, S: Shared<Place = P>> Task for Worker<'_, P, S> {
    fn run(&self) {
        self.crew.work(self.queue, self.shared);
    }
}

impl<P: Copy + Send> Crew<P> {
    pub(crate) fn new(trace: &Prepared, touch: TouchRule) -> Crew<P> {
        let summary = trace.reader.summary();
        let dead = || Slot { done: Gate::default(), object: UnsafeCell::new(Object::DEAD) };
        let slots: Box<[_]> = (0..summary.objects_peak).map(|_| dead()).collect();
        make_resident(slots.as_ptr().cast(), size_of_val(&*slots));
        let threads = summary.threads as usize;
        Crew {
            slots,
            queues: (0..threads).map(|_| Queue::new()).collect(),
            touch,
            memory_policy: trace.memory_policy,
            failed: AtomicU64::new(0),
            disobeyed: AtomicU64::new(0),
            homeless: AtomicU64::new(0),
            ready: Barrier::new(threads + 1),
            working: Mutex::new(threads),
            all_done: Condvar::new(),
        }
    }

    /// Starts the threads, then calls `window` once they have settled in. `shared` is filled by it: threads take their
    /// allocator from there.
    pub(crate) fn run<S: Shared<Place = P>, T>(
        &self,
        shared: &OnceLock<S>,
        window: impl FnOnce() -> Result<T, ChildError>,
    ) -> Result<T, ChildError> {
        let tasks: Vec<_> = self.queues.iter().map(|queue| Worker { crew: self, queue, shared }).collect();
        let threads = match Threads::start(&tasks) {
            Ok(threads) => threads,
            Err(why) => {
                // Those that were started wait for all; the parent is told that there is no result.
                eprintln!("replay child: cannot start {} threads: {why}", tasks.len());
                std::process::exit(1);
            }
        };
        self.ready.wait();
        let result = window();
        if result.is_err() {
            self.queues.iter().for_each(|queue| queue.push(Item::END));
        }
        drop(threads);
        result
    }

    fn work<S: Shared<Place = P>>(&self, queue: &Queue, shared: &OnceLock<S>) {
        self.ready.wait();
        let mut exits = false;
        let mut item = queue.pop();
        if let Some(shared) = shared.get() {
            let mut heap = None;
            while let Some(op) = item.op {
                shared.set_now(item.time_ns);
                self.perform(shared, &mut heap, &op, item.ticket);
                exits = matches!(op, Op::ThreadExit);
                item = queue.pop();
            }
        }
        *self.working.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.all_done.notify_all();
        if !exits {
            // The trace does not say that it ends: its stack, and what its allocator keeps for it, stay.
            self.wait_until_done();
        }
    }

    /// Performs an event. A heap is opened at a thread's first event that has an object, and closed where the trace says that
    /// it exits.
    #[inline]
    fn perform<'s, S: Shared<Place = P>>(&self, shared: &'s S, heap: &mut Option<S::Heap<'s>>, op: &Op, ticket: u32) {
        if matches!(op, Op::ThreadExit) {
            heap.take().into_iter().for_each(|heap| shared.leave(heap));
            return;
        }
        if let Some(change) = self.memory_policy.change(op) {
            let locked = self.memory_policy.lock(op).is_none_or(|lock| shared.lock(lock));
            self.disobeyed.fetch_add(u64::from(obey(change).is_err() || !locked), Ordering::Relaxed);
        }
        let Some(object) = op.object() else { return };
        if heap.is_none() {
            *heap = shared.join();
            self.homeless.fetch_add(u64::from(heap.is_none()), Ordering::Relaxed);
        }
        let slot = &self.slots[object.0 as usize];
        slot.done.wait(|done| done == ticket);
        if let Some(heap) = heap {
            // SAFETY: all earlier events on the object are done, later ones wait for this one.
            let object = unsafe { &mut *slot.object.get() };
            if apply(heap, object, op, self.touch).is_err() {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        slot.done.advance(next(ticket));
    }

    /// Hands out every event, and waits until all are done. `stop` is called at the marks, while threads may lag behind.
    pub(crate) fn dispatch(
        &self,
        trace: &mut Prepared,
        tickets: &mut [u32],
        mut stop: impl FnMut(u64),
    ) -> Result<Done, ChildError> {
        let mut events = 0;
        let mut stops = trace.stops.iter().copied();
        let mut next_stop = stops.next();
        while let Some(batch) = trace.reader.next_batch()? {
            for event in batch {
                let ticket = event.op.object().map_or(0, |object| {
                    let ticket = &mut tickets[object.0 as usize];
                    std::mem::replace(ticket, next(*ticket))
                });
                let thread = event.thread.0 as usize;
                self.queues[thread].push(Item { op: Some(event.op), time_ns: event.time_ns, ticket });
                events += 1;
                if trace.last_events[thread] == events {
                    self.queues[thread].push(Item::END);
                }
                if next_stop == Some(events) {
                    stop(events);
                    next_stop = stops.next();
                }
            }
        }
        self.wait_until_done();
        if self.homeless.load(Ordering::Relaxed) > 0 {
            return Err(ChildError::Drive { event: events, why: DriveError::TooManyThreads });
        }
        if self.disobeyed.load(Ordering::Relaxed) > 0 {
            return Err(refused(std::io::Error::last_os_error()));
        }
        Ok(Done { events, failed: self.failed.load(Ordering::Relaxed) })
    }

    fn wait_until_done(&self) {
        let mut working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        while *working > 0 {
            working = self.all_done.wait(working).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
