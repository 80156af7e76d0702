//! Real threads, one for each thread of the trace, and the order between their events.
//!
//! A dispatcher reads the trace and passes each thread its events. Every event on an object carries a ticket: the
//! number of earlier events on that object. A thread waits until those earlier events are done, so threads wait for
//! each other only when an object crosses threads. There is no deadlock: an event waits only for earlier events of the
//! trace, and the earliest pending event is the first in its queue.

use std::cell::UnsafeCell;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Condvar, Mutex, OnceLock, PoisonError};

use hksim_engine::{DriveError, MemoryPolicyRule, Object, TouchRule, perform};
use hksim_trace::event::{Op, ThreadId};
use hksim_trace::source::EventSource;

use super::allocators::SharedAllocator;
use super::gate::{Gate, next};
use super::queue::{Item, Queue};
use super::threads::{Task, Threads};
use crate::error::ChildError;
use crate::memory_policy::apply_memory_policy;
use crate::window::PreparedTrace;
use hksim_linux_probe::resident::make_resident;

/// A live object, and the number of its events that are done.
struct Slot<P> {
    done: Gate,
    object: UnsafeCell<Object<P>>,
}

// SAFETY: only the thread whose ticket equals `done` uses the object. `P` is the location of a block of a
// `SharedAllocator`: an address, which may pass from thread to thread.
unsafe impl<P: Copy> Sync for Slot<P> {}

/// The threads and their shared state; `P` is the location of a block.
pub(crate) struct Workers<P> {
    slots: Box<[Slot<P>]>,
    queues: Vec<Queue>,
    touch: TouchRule,
    memory_policy: MemoryPolicyRule,
    failed: AtomicU64,
    /// The first memory policy that the kernel refused.
    policy_refused: Mutex<Option<ChildError>>,
    /// Why memory that the program locked is not locked in the replay.
    lock_refused: Mutex<Option<io::Error>>,
    /// Heaps that could not be opened.
    heaps_refused: AtomicU64,
    ready: Barrier,
    working: Mutex<usize>,
    all_done: Condvar,
}

/// The totals of a run.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) events: u64,
    pub(crate) failed: u64,
    /// Why memory that the program locked is not locked in the replay.
    pub(crate) lock_refused: Option<io::Error>,
}

/// The task of one thread.
struct Worker<'a, P, S> {
    workers: &'a Workers<P>,
    thread: ThreadId,
    queue: &'a Queue,
    shared: &'a OnceLock<S>,
}

impl<P: Copy, S: SharedAllocator<Place = P>> Task for Worker<'_, P, S> {
    fn run(&self) {
        self.workers.work(self.thread, self.queue, self.shared);
    }
}

impl<P: Copy> Workers<P> {
    pub(crate) fn new(trace: &PreparedTrace, touch: TouchRule) -> Workers<P> {
        let summary = trace.reader.summary();
        let dead = || Slot { done: Gate::default(), object: UnsafeCell::new(Object::DEAD) };
        let slots: Box<[_]> = (0..summary.objects_peak).map(|_| dead()).collect();
        make_resident(slots.as_ptr().cast(), size_of_val(&*slots));
        let threads = summary.threads as usize;
        Workers {
            slots,
            queues: (0..threads).map(|_| Queue::new()).collect(),
            touch,
            memory_policy: trace.memory_policy,
            failed: AtomicU64::new(0),
            policy_refused: Mutex::default(),
            lock_refused: Mutex::default(),
            heaps_refused: AtomicU64::new(0),
            ready: Barrier::new(threads + 1),
            working: Mutex::new(threads),
            all_done: Condvar::new(),
        }
    }

    /// Starts the threads, waits until all are ready, and calls `window`, which sets `shared` to the allocator of all
    /// threads.
    pub(crate) fn run<S: SharedAllocator<Place = P>, T>(
        &self,
        shared: &OnceLock<S>,
        window: impl FnOnce() -> Result<T, ChildError>,
    ) -> Result<T, ChildError> {
        let numbered = (0..).map(ThreadId).zip(&self.queues);
        let tasks: Vec<_> = numbered.map(|(thread, queue)| Worker { workers: self, thread, queue, shared }).collect();
        let threads = match Threads::start(&tasks) {
            Ok(threads) => threads,
            Err(why) => {
                // The started threads wait for the missing ones, so they cannot be joined. The parent reports the
                // missing result.
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

    fn work<S: SharedAllocator<Place = P>>(&self, thread: ThreadId, queue: &Queue, shared: &OnceLock<S>) {
        self.ready.wait();
        let mut exits = false;
        let mut item = queue.pop();
        if let Some(shared) = shared.get() {
            let mut heap = None;
            while let Some(op) = item.op {
                shared.set_now(item.time_ns);
                self.perform(shared, thread, &mut heap, &op, item.ticket);
                exits = matches!(op, Op::ThreadExit);
                item = queue.pop();
            }
        }
        *self.working.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.all_done.notify_all();
        if !exits {
            // The thread does not exit in the trace, so its stack and its allocator state must remain.
            self.wait_until_done();
        }
    }

    /// Performs an event. A thread's heap is opened at its first event with an object, and closed at its exit in the
    /// trace.
    #[inline]
    fn perform<S: SharedAllocator<Place = P>>(
        &self,
        shared: &S,
        thread: ThreadId,
        heap: &mut Option<S::Heap>,
        op: &Op,
        ticket: u32,
    ) {
        if matches!(op, Op::ThreadExit) {
            heap.take().into_iter().for_each(|heap| shared.close_heap(heap));
            return;
        }
        if let Some(change) = self.memory_policy.change(op) {
            let locked = self.memory_policy.lock(op).map_or(Ok(()), |lock| shared.lock(lock));
            note_first(&self.lock_refused, locked);
            note_first(&self.policy_refused, apply_memory_policy(change));
        }
        let Some(id) = op.object() else { return };
        if heap.is_none() {
            *heap = shared.open_heap(thread);
            self.heaps_refused.fetch_add(u64::from(heap.is_none()), Ordering::Relaxed);
        }
        let slot = &self.slots[id.0 as usize];
        slot.done.wait(|done| done == ticket);
        if let Some(heap) = heap {
            // SAFETY: all earlier events on the object are done, and later ones wait for this one.
            let object = unsafe { &mut *slot.object.get() };
            let Ok(served) = perform(shared, || Ok::<_, Infallible>(heap), |_| object, op, self.touch, &mut ());
            self.failed.fetch_add(u64::from(served.is_err()), Ordering::Relaxed);
        }
        slot.done.advance(next(ticket));
    }

    /// Dispatches every event, and waits until all are done. `stop` is called when a mark is dispatched; earlier events
    /// may still be pending then.
    pub(crate) fn dispatch(
        &self,
        trace: &mut PreparedTrace,
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
        if self.heaps_refused.load(Ordering::Relaxed) > 0 {
            return Err(ChildError::Drive { event: events, why: DriveError::TooManyThreads });
        }
        take(&self.policy_refused).map_or(Ok(()), Err)?;
        Ok(Done { events, failed: self.failed.load(Ordering::Relaxed), lock_refused: take(&self.lock_refused) })
    }

    fn wait_until_done(&self) {
        let mut working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        while *working > 0 {
            working = self.all_done.wait(working).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Notes the first error of several threads.
fn note_first<E>(first: &Mutex<Option<E>>, done: Result<(), E>) {
    if let Err(why) = done {
        first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

fn take<E>(first: &Mutex<Option<E>>) -> Option<E> {
    first.lock().unwrap_or_else(PoisonError::into_inner).take()
}
