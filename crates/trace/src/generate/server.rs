//! `server`: threads serve requests from a store of long-lived objects. The store grows, stays steady with turnover,
//! bursts and shrinks.
//!
//! Each request allocates a few short-lived objects, reads and writes some stored objects, and replaces some of those.
//! Sizes are heavy-tailed. One step is one small action of one thread, so requests of several threads overlap.

use super::program::{EventBuilder, Program};
use crate::error::TraceError;
use crate::event::{Access, AllocCall, InitialTouch, ObjectId, Op, ReallocCall, ThreadId};
use crate::splitmix::Splitmix64;
use serde::{Deserialize, Serialize};

/// Parameters of `server`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Approximate peak of live requested bytes, reached in the burst. At least 1 MiB and at most 256 bytes per event.
    pub live: u64,
    /// Threads, from 1 to 1024.
    pub threads: u32,
    /// Length in events, rounded up to whole requests.
    pub events: u64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Server {
    fn default() -> Self {
        Server { live: 256 << 20, threads: 4, events: 2_500_000, seed: 42 }
    }
}

const LIVE_BYTES_MIN: u64 = 1 << 20;
const LIVE_BYTES_PER_EVENT_MAX: u64 = 256;
const THREADS_MAX: u32 = 1024;

impl Server {
    pub(super) fn program(&self) -> Result<ServerProgram, TraceError> {
        let bad = |parameter, value, remedy| TraceError::BadParameter { workload: "server", parameter, value, remedy };
        if self.threads == 0 || self.threads > THREADS_MAX {
            return Err(bad("threads", self.threads as u64, "must be from 1 to 1024"));
        }
        if self.live < LIVE_BYTES_MIN {
            return Err(bad("live", self.live, "must be at least 1 MiB"));
        }
        if self.live / LIVE_BYTES_PER_EVENT_MAX > self.events {
            return Err(bad("live", self.live, "needs more events: raise events to at least live / 256"));
        }
        let mut program = ServerProgram {
            parameters: self.clone(),
            random: Splitmix64::new(self.seed),
            stored: Vec::new(),
            stored_bytes: 0,
            next_stored_size: 0,
            passing_bytes: 0,
            handed_over: Vec::new(),
            workers: Vec::new(),
            phase: None,
            exited: 0,
        };
        program.reset();
        Ok(program)
    }
}

/// The phases of the run. A mark with the phase's name begins each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Ramp,
    Steady,
    Burst,
    RampDown,
}

impl Phase {
    /// The phase after `part` of `whole` events, and the target of the stored bytes there, in 1/1000 of
    /// [`Server::live`].
    fn at(part: u64, whole: u64) -> (Phase, u64) {
        let permille = (part as u128 * 1000 / whole.max(1) as u128) as u64;
        match permille {
            0..200 => (Phase::Ramp, 4 * permille),
            200..700 => (Phase::Steady, 800),
            700..750 => (Phase::Burst, 800 + (permille - 700) * 5),
            750..800 => (Phase::Burst, 980 - (permille - 750) * 4),
            _ => (Phase::RampDown, 780 * (1000 - permille.min(1000)) / 200),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    object: ObjectId,
    size: u64,
}

/// A thread in the middle of a request.
#[derive(Clone, Debug, Default)]
struct Worker {
    /// Short-lived objects of the request so far.
    passing: Vec<Block>,
    /// How many short-lived objects the request will allocate.
    passing_wanted: u64,
    started: bool,
}

pub(super) struct ServerProgram {
    parameters: Server,
    random: Splitmix64,
    /// Long-lived objects; requests prefer the front.
    stored: Vec<Block>,
    stored_bytes: u64,
    /// Size of the next object to be stored.
    next_stored_size: u64,
    passing_bytes: u64,
    /// Short-lived objects that another thread will free.
    handed_over: Vec<Block>,
    workers: Vec<Worker>,
    phase: Option<Phase>,
    exited: u32,
}

const PASSING_MAX: u64 = 16;
const STORES_MAX: u64 = 16;
const EVICTIONS_MAX: u64 = 24;
const TOUCHES_MAX: u64 = 8;
const HANDED_OVER_MAX: usize = 64;

impl Program for ServerProgram {
    const STEP_EVENTS_MAX: usize = 256;
    const MARK_NAMES: &[&str] = &["ramp", "steady", "burst", "ramp-down"];

    fn step(&mut self, builder: &mut EventBuilder) -> bool {
        if builder.written() >= self.parameters.events {
            return self.leave(builder);
        }
        let thread = ThreadId(self.random.below(self.parameters.threads as u64) as u32);
        // The first steps are round-robin, so that threads appear in order of their ids.
        let newcomer = self.workers.iter().position(|worker| !worker.started);
        let thread = newcomer.map_or(thread, |index| ThreadId(index as u32));
        if newcomer.is_some() {
            builder.write(thread, Op::ThreadStart);
            self.begin_request(thread);
            return true;
        }
        let (phase, _) = Phase::at(builder.written(), self.parameters.events);
        if self.phase != Some(phase) {
            self.phase = Some(phase);
            builder.write(thread, Op::Mark { name: phase as u32 });
        }
        let worker = &self.workers[thread.0 as usize];
        if (worker.passing.len() as u64) < worker.passing_wanted {
            self.make_passing(thread, builder);
        } else {
            self.end_request(thread, builder);
        }
        true
    }

    fn reset(&mut self) {
        self.random = Splitmix64::new(self.parameters.seed);
        self.stored.clear();
        self.stored_bytes = 0;
        self.next_stored_size = self.stored_size();
        self.passing_bytes = 0;
        self.handed_over.clear();
        self.workers.clear();
        self.workers.resize(self.parameters.threads as usize, Worker::default());
        self.phase = None;
        self.exited = 0;
    }
}

impl ServerProgram {
    fn begin_request(&mut self, thread: ThreadId) {
        let wanted = 2 + self.random.below(PASSING_MAX - 1);
        let worker = &mut self.workers[thread.0 as usize];
        worker.started = true;
        worker.passing_wanted = wanted;
    }

    /// Allocates one more short-lived object, or grows the last one.
    fn make_passing(&mut self, thread: ThreadId, builder: &mut EventBuilder) {
        let grows = self.random.chance(1, 8);
        let worker = &mut self.workers[thread.0 as usize];
        match worker.passing.last_mut() {
            Some(last) if grows && last.size <= 1 << 15 => {
                self.passing_bytes += last.size;
                last.size *= 2;
                let (object, size) = (last.object, last.size);
                builder.write(
                    thread,
                    Op::Realloc { object, size, call: ReallocCall::Realloc, initial_touch: InitialTouch::All },
                );
            }
            _ => {
                let size = self.passing_size();
                let block = self.alloc(thread, size, builder);
                self.passing_bytes += size;
                self.workers[thread.0 as usize].passing.push(block);
            }
        }
    }

    /// Accesses and adjusts the store, frees the request's objects, and begins the next request.
    fn end_request(&mut self, thread: ThreadId, builder: &mut EventBuilder) {
        self.use_store(thread, builder);
        self.adjust_store(thread, builder);
        while let Some(block) = self.workers[thread.0 as usize].passing.pop() {
            if self.random.chance(1, 16) && self.handed_over.len() < HANDED_OVER_MAX {
                self.handed_over.push(block);
            } else {
                self.free_passing(thread, block, builder);
            }
        }
        for _ in 0..4 {
            let Some(block) = self.handed_over.pop() else { break };
            self.free_passing(thread, block, builder);
        }
        self.begin_request(thread);
    }

    /// Reads and writes stored objects. Four of five accesses go to the first eighth of them, the popular objects.
    fn use_store(&mut self, thread: ThreadId, builder: &mut EventBuilder) {
        let stored = self.stored.len() as u64;
        for _ in 0..self.random.below(TOUCHES_MAX + 1).min(stored) {
            let popular = self.random.chance(4, 5);
            let at = self.random.below(if popular { stored.div_ceil(8) } else { stored });
            let Block { object, size } = self.stored[at as usize];
            let offset = self.random.below(size);
            let bytes = (1 + self.random.below(4096)).min(size - offset) as u32;
            let access = if self.random.chance(1, 4) { Access::Write } else { Access::Read };
            builder.write(thread, Op::Touch { object, offset, bytes, access });
        }
    }

    /// Moves the store towards its target size; at that size, replaces one or two objects.
    fn adjust_store(&mut self, thread: ThreadId, builder: &mut EventBuilder) {
        let (_, permille) = Phase::at(builder.written(), self.parameters.events);
        let aim = (self.parameters.live as u128 * permille as u128 / 1000) as u64;
        for _ in 0..self.random.below(3) {
            self.evict(thread, builder);
        }
        for _ in 0..EVICTIONS_MAX {
            if self.stored_bytes <= aim {
                break;
            }
            self.evict(thread, builder);
        }
        for _ in 0..STORES_MAX {
            // An object that does not fit yet remains the next one: discarding it would make large objects rarer.
            let size = self.next_stored_size;
            let after = self.stored_bytes + size;
            if after > aim || after + self.passing_bytes > self.parameters.live {
                break;
            }
            self.next_stored_size = self.stored_size();
            let block = self.alloc(thread, size, builder);
            self.stored_bytes = after;
            self.stored.push(block);
            // The new object gets a random position, so popular objects are of every age.
            let last = self.stored.len() - 1;
            let place = self.random.below(self.stored.len() as u64) as usize;
            self.stored.swap(last, place);
        }
    }

    fn evict(&mut self, thread: ThreadId, builder: &mut EventBuilder) {
        if self.stored.is_empty() {
            return;
        }
        let at = self.random.below(self.stored.len() as u64) as usize;
        let block = self.stored.swap_remove(at);
        self.stored_bytes -= block.size;
        builder.free(thread, block.object);
    }

    fn free_passing(&mut self, thread: ThreadId, block: Block, builder: &mut EventBuilder) {
        self.passing_bytes -= block.size;
        builder.free(thread, block.object);
    }

    fn alloc(&mut self, thread: ThreadId, size: u64, builder: &mut EventBuilder) -> Block {
        let (call, align_log2) = match self.random.below(100) {
            0..10 => (AllocCall::Calloc, 0),
            10..12 => (AllocCall::PosixMemalign, 6),
            12 => (AllocCall::AlignedAlloc, 6),
            13 => (AllocCall::Memalign, 12),
            _ => (AllocCall::Malloc, 0),
        };
        Block { object: builder.alloc(thread, size, align_log2, call, InitialTouch::All), size }
    }

    /// The size of a stored object: 16 bytes to 1 MiB, rarely more, and at most 1/64 of [`Server::live`].
    fn stored_size(&mut self) -> u64 {
        let (least_log2, most_log2) = match self.random.below(10_000) {
            0..7_000 => (4, 8),
            7_000..9_600 => (8, 12),
            9_600..9_970 => (12, 16),
            9_970..9_998 => (16, 20),
            _ => (20, 22),
        };
        self.size_between(least_log2, most_log2).min(self.parameters.live / 64)
    }

    /// The size of a short-lived object: 16 bytes to 64 KiB.
    fn passing_size(&mut self) -> u64 {
        let (least_log2, most_log2) = match self.random.below(100) {
            0..70 => (4, 8),
            70..96 => (8, 12),
            _ => (12, 16),
        };
        self.size_between(least_log2, most_log2)
    }

    /// A size from 2^`least_log2` to 2^`most_log2` - 1. Each power of two is equally likely, and so is each size from
    /// one power to the next.
    fn size_between(&mut self, least_log2: u64, most_log2: u64) -> u64 {
        let floor = 1 << (least_log2 + self.random.below(most_log2 - least_log2));
        floor + self.random.below(floor)
    }

    /// Ends the threads one by one. Stored objects stay live, as in a server that is stopped.
    fn leave(&mut self, builder: &mut EventBuilder) -> bool {
        let thread = ThreadId(self.exited);
        let Some(worker) = self.workers.get_mut(self.exited as usize) else { return false };
        for block in std::mem::take(&mut worker.passing) {
            self.free_passing(thread, block, builder);
        }
        builder.write(thread, Op::ThreadExit);
        self.exited += 1;
        true
    }
}
