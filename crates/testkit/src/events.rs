//! Random traces for the drivers, with every kind of event in any order that a program can produce.

use hksim_trace::event::{Access, AllocCall, Event, InitialTouch, ObjectId, Op, ReallocCall, ThreadId};
use hksim_trace::ids::ObjectIds;

use crate::Random;

/// A random trace.
pub struct RandomTrace {
    /// The events.
    pub events: Vec<Event>,
    /// Number of threads.
    pub threads: u32,
    /// Peak number of live objects.
    pub objects_peak: u32,
}

/// A live object.
struct LiveObject {
    object: ObjectId,
    size: u64,
}

struct Generator {
    random: Random,
    threads: u32,
    bytes_max: u64,
    ids: ObjectIds,
    live: Vec<LiveObject>,
    time_ns: u64,
}

/// Generates a trace of `count` events, with blocks of at most `bytes_max` bytes.
pub fn random_trace(seed: u64, count: u64, threads: u32, bytes_max: u64) -> RandomTrace {
    let mut generator = Generator::new(seed, threads, bytes_max);
    let mut objects_peak = 0;
    let mut events = Vec::new();
    for index in 0..count {
        // The target number of live objects alternates, so that SuperSlabs fill and empty.
        let wanted = 40 + 400 * ((index / 1500) % 2) as usize;
        events.push(generator.event(wanted));
        objects_peak = objects_peak.max(generator.live.len() as u32);
    }
    RandomTrace { events, threads, objects_peak }
}

/// Generates a trace of `count` events by one thread: `malloc`, `calloc` and `free` of small blocks. The number of live
/// objects rises and falls, so that slabs become empty, often long after the previous event.
pub fn common_trace(seed: u64, count: u64) -> RandomTrace {
    let mut generator = Generator::new(seed, 1, 0);
    let mut objects_peak = 0;
    let mut events = Vec::new();
    for index in 0..count {
        generator.pass_time();
        let shrinks = index / 500 % 2 == 1;
        let frees = !generator.live.is_empty() && generator.random.per_mille(if shrinks { 800 } else { 250 });
        let op = if frees { generator.free() } else { generator.common_allocation() };
        events.push(Event::new(generator.time_ns, ThreadId(0), op));
        objects_peak = objects_peak.max(generator.live.len() as u32);
    }
    RandomTrace { events, threads: 1, objects_peak }
}

impl Generator {
    fn new(seed: u64, threads: u32, bytes_max: u64) -> Generator {
        let (random, ids) = (Random::new(seed), ObjectIds::default());
        Generator { random, threads, bytes_max, ids, live: Vec::new(), time_ns: 0 }
    }

    fn pass_time(&mut self) {
        self.time_ns += self.random.below(400);
        if self.random.per_mille(5) {
            self.time_ns += self.random.below(300_000_000);
        }
    }

    fn common_allocation(&mut self) -> Op {
        let object = self.ids.allocate().expect("a test has few objects");
        let size = self.random.log_uniform(8 << 10);
        self.live.push(LiveObject { object, size });
        let call = self.random.pick(&[AllocCall::Malloc, AllocCall::Malloc, AllocCall::Calloc]);
        Op::Alloc { object, size, align_log2: 0, call, initial_touch: self.initial_touch() }
    }

    fn free(&mut self) -> Op {
        let index = self.random.below(self.live.len() as u64) as usize;
        let object = self.live.swap_remove(index).object;
        self.ids.release(object);
        Op::Free { object }
    }

    fn event(&mut self, wanted: usize) -> Event {
        self.pass_time();
        let thread = ThreadId(self.random.below(u64::from(self.threads)) as u32);
        let op = match self.random.below(1000) {
            0..=3 => Op::ThreadExit,
            4..=9 => Op::FreeNull,
            10..=14 => Op::FreeUnknown,
            15..=599 if self.live.is_empty() || self.live.len() < wanted => self.allocation(),
            _ if self.live.is_empty() => self.allocation(),
            draw => self.on_live(draw),
        };
        Event::new(self.time_ns, thread, op)
    }

    fn size(&mut self) -> u64 {
        match self.random.below(10) {
            0..=5 => self.random.below(1100),
            6..=8 => self.random.log_uniform(self.bytes_max.min(64 << 10)),
            _ => self.random.log_uniform(self.bytes_max),
        }
    }

    fn initial_touch(&mut self) -> InitialTouch {
        self.random.pick(&[InitialTouch::None, InitialTouch::FirstByte, InitialTouch::All])
    }

    fn allocation(&mut self) -> Op {
        let object = self.ids.allocate().expect("a test has few objects");
        let size = self.size();
        self.live.push(LiveObject { object, size });
        if self.random.per_mille(10) {
            return Op::ReallocUnknown { object, size, call: ReallocCall::Realloc };
        }
        let (call, align_log2) = match self.random.below(20) {
            0..=2 => (AllocCall::Calloc, 0),
            3 => (AllocCall::PosixMemalign, 3 + self.random.below(11) as u8),
            4 => (AllocCall::AlignedAlloc, self.random.below(24) as u8),
            5 => (AllocCall::Realloc, 0),
            6 => (AllocCall::Pvalloc, 12),
            _ => (AllocCall::Malloc, 0),
        };
        Op::Alloc { object, size, align_log2, call, initial_touch: self.initial_touch() }
    }

    fn on_live(&mut self, draw: u64) -> Op {
        let index = self.random.below(self.live.len() as u64) as usize;
        let initial_touch = self.initial_touch();
        let new_size = self.size().max(1);
        let LiveObject { object, size } = &mut self.live[index];
        let object = *object;
        match draw % 10 {
            0 | 1 => {
                *size = if draw.is_multiple_of(3) { new_size } else { *size + 1 + *size / 3 }.min(self.bytes_max);
                Op::Realloc { object, size: *size, call: ReallocCall::Realloc, initial_touch }
            }
            2 => Op::UsableSize { object },
            3 | 4 => {
                let offset = self.random.below(*size + 1);
                let access = self.random.pick(&[Access::Read, Access::Write]);
                Op::Touch { object, offset, bytes: 1 + self.random.below(5000) as u32, access }
            }
            _ => {
                self.live.swap_remove(index);
                self.ids.release(object);
                if draw % 10 == 5 {
                    Op::ReallocFree { object, call: ReallocCall::Realloc }
                } else {
                    Op::Free { object }
                }
            }
        }
    }
}
