//! Replays a trace on the allocator in a shared object.
//!
//! The object is loaded beside the process's own allocator, so its heaps hold the blocks of the trace and nothing else.
//! Events run in the order of the trace, each on an OS thread of its own trace thread, and the object's clock is that of
//! the trace. So the allocator does exactly what a simulation counts. Before the first event and after every window of
//! events [`hksim_window`] is called, where callgrind can be told to write its counts (`--dump-before=hksim_window`).

use std::convert::Infallible;
use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use hksim_engine::{Heaps, Object, TouchRule, perform};
use hksim_trace::event::{Event, Op};
use hksim_trace::source::EventSource;

use crate::loaded::Loaded;

/// Marks the end of a window for callgrind.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn hksim_window() {
    std::hint::black_box(());
}

/// How a trace is replayed.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// How the program touches its blocks.
    pub(crate) touch: TouchRule,
    /// Events in a window.
    pub(crate) window: u64,
}

/// What the threads share, in turn.
struct Shared {
    objects: Vec<Object<usize>>,
    done: u64,
}

impl Shared {
    fn finish_event(&mut self, window: u64) {
        self.done += 1;
        if self.done.is_multiple_of(window) {
            hksim_window();
        }
    }
}

/// Events of one thread.
type Turn = (Shared, Vec<Event>);

/// The thread of a trace thread.
struct Worker {
    turns: Sender<Turn>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start(loaded: Loaded, rules: Rules, returns: Sender<Shared>) -> Worker {
        let (turns, given) = channel();
        Worker { turns, thread: std::thread::spawn(move || work(loaded, rules, &given, &returns)) }
    }
}

fn work(loaded: Loaded, rules: Rules, turns: &Receiver<Turn>, returns: &Sender<Shared>) {
    while let Ok((mut shared, events)) = turns.recv() {
        for event in events {
            loaded.set_now(event.time_ns);
            let (mut heap, objects) = ((), &mut shared.objects);
            // A request that fails here fails in the simulation, too.
            let _: Result<_, Infallible> =
                perform(&loaded, || Ok(&mut heap), |id| &mut objects[id.0 as usize], &event.op, rules.touch, &mut ());
            shared.finish_event(rules.window);
        }
        if returns.send(shared).is_err() {
            return;
        }
    }
}

fn is_exit(event: &Event) -> bool {
    matches!(event.op, Op::ThreadExit)
}

/// Replays a trace. The threads of the trace that have not ended do not end now, either.
pub(crate) fn replay(loaded: Loaded, source: &mut dyn EventSource, rules: Rules) -> Result<(), Box<dyn Error>> {
    let summary = *source.summary();
    let mut workers: Vec<Option<Worker>> = (0..summary.threads).map(|_| None).collect();
    let (returns, returned) = channel();
    let mut shared = Shared { objects: vec![Object::DEAD; summary.objects_peak as usize], done: 0 };
    hksim_window();
    while let Some(batch) = source.next_batch()? {
        for run in batch.chunk_by(|one, next| one.thread == next.thread && !is_exit(one) && !is_exit(next)) {
            let worker = &mut workers[run[0].thread.0 as usize];
            if is_exit(&run[0]) {
                loaded.set_now(run[0].time_ns);
                if let Some(Worker { turns, thread }) = worker.take() {
                    drop(turns);
                    thread.join().map_err(|_| "a thread panicked")?;
                }
                shared.finish_event(rules.window);
                continue;
            }
            let worker = worker.get_or_insert_with(|| Worker::start(loaded, rules, returns.clone()));
            worker.turns.send((shared, run.to_vec()))?;
            shared = returned.recv()?;
        }
    }
    if !shared.done.is_multiple_of(rules.window) {
        hksim_window();
    }
    Ok(())
}
