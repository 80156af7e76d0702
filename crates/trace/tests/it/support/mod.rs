//! Shared by the tests: seeded random events of every kind, and functions to write and read files.
#![allow(dead_code)] // each test binary uses only some of these items

pub mod importing;

use hksim_trace::error::TraceError;
use hksim_trace::event::*;
use hksim_trace::header::*;
use hksim_trace::hkt::TraceWriter;
use hksim_trace::memory_policy::{LockAll, MemoryPolicy, ThpDisable};
use hksim_trace::profile::SiteProfile;
use hksim_trace::sites::{Frame, Module, Sites};
use hksim_trace::source::EventSource;
use hksim_trace::splitmix::Splitmix64;
use std::path::Path;

/// Random numbers.
pub struct Random(Splitmix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(Splitmix64::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// From 0 to `end` - 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

pub const ALLOC_CALLS: [AllocCall; 9] = [
    AllocCall::Malloc,
    AllocCall::Calloc,
    AllocCall::Realloc,
    AllocCall::Reallocarray,
    AllocCall::PosixMemalign,
    AllocCall::AlignedAlloc,
    AllocCall::Memalign,
    AllocCall::Valloc,
    AllocCall::Pvalloc,
];
pub const REALLOC_CALLS: [ReallocCall; 2] = [ReallocCall::Realloc, ReallocCall::Reallocarray];
pub const INITIAL_TOUCHES: [InitialTouch; 6] = [
    InitialTouch::None,
    InitialTouch::FirstByte,
    InitialTouch::All,
    InitialTouch::Watched,
    InitialTouch::Read,
    InitialTouch::ReadThenWrite,
];

/// Valid events of every kind. A naive stack of free ids determines the ids, independently of `ObjectIds`.
pub fn random_events(random: &mut Random, length: usize) -> Vec<Event> {
    let (mut live, mut dead, mut peak) = (Vec::<u32>::new(), Vec::<u32>::new(), 0);
    let (mut time_ns, mut threads) = (0, 1);
    let mut events = Vec::with_capacity(length);
    while events.len() < length {
        time_ns += if random.chance(1) { random.below(1 << 40) } else { random.below(300) };
        let thread = ThreadId(if random.chance(1) { threads } else { random.below(threads as u64) as u32 });
        threads = threads.max(thread.0 + 1);
        let mut new_object = || {
            let id = dead.pop().unwrap_or_else(|| {
                peak += 1;
                peak - 1
            });
            live.push(id);
            ObjectId(id)
        };
        let size = if random.chance(2) { random.below(1 << 46) } else { random.below(2000) };
        let op = match random.below(20) {
            0..=5 => {
                let (call, initial_touch) = (random.pick(&ALLOC_CALLS[..2]), random.pick(&INITIAL_TOUCHES));
                Op::Alloc { object: new_object(), size, align_log2: 0, call, initial_touch }
            }
            6 => {
                let (call, initial_touch) = (random.pick(&ALLOC_CALLS), random.pick(&INITIAL_TOUCHES));
                Op::Alloc { object: new_object(), size, align_log2: random.below(64) as u8, call, initial_touch }
            }
            7 => Op::ReallocUnknown { object: new_object(), size, call: random.pick(&REALLOC_CALLS) },
            8 => Op::AllocFailed {
                size: random.next(),
                align_log2: random.below(64) as u8,
                call: random.pick(&ALLOC_CALLS),
            },
            9 => of_no_object(random),
            _ if live.is_empty() => Op::FreeNull,
            kind => {
                let at = random.below(live.len() as u64) as usize;
                let object = ObjectId(live[at]);
                if kind >= 15 {
                    live.swap_remove(at);
                    dead.push(object.0);
                }
                let call = random.pick(&REALLOC_CALLS);
                match kind {
                    10 | 11 => {
                        Op::Realloc { object, size: size + 1, call, initial_touch: random.pick(&INITIAL_TOUCHES) }
                    }
                    12 => Op::ReallocFailed { object, size: random.next(), call },
                    13 => Op::UsableSize { object },
                    14 => {
                        let (bytes, access) = (random.next() as u32 | 1, random.pick(&[Access::Read, Access::Write]));
                        Op::Touch { object, offset: size, bytes, access }
                    }
                    15 => Op::ReallocFree { object, call },
                    _ => Op::Free { object },
                }
            }
        };
        // Sites occur only in every other 20 000 events, so that some chunks have no sites.
        let has_site = op.asks_for_memory() && events.len() / 20_000 % 2 == 1 && random.chance(90);
        let site = SiteId(if has_site { random.below(1 << 20) as u32 } else { 0 });
        events.push(Event { time_ns, thread, site, op });
    }
    events
}

/// An event without an object.
fn of_no_object(random: &mut Random) -> Op {
    match random.below(9) {
        0 => Op::FreeNull,
        1 => Op::FreeUnknown,
        2 => Op::ThreadStart,
        3 => Op::ThreadExit,
        4 => Op::Fork { child_pid: random.next() as u32 },
        7 => Op::ForkEnd { child_pid: random.next() as u32, outlives: random.chance(50) },
        5 => Op::Exec,
        6 => Op::MemoryPolicy { policy: random_policy(random), inherited: random.chance(50) },
        _ => Op::Mark { name: random.next() as u32 },
    }
}

fn random_policy(random: &mut Random) -> MemoryPolicy {
    match random.below(3) {
        0 => MemoryPolicy::ThpDisable(random.pick(&[ThpDisable::Off, ThpDisable::All, ThpDisable::ExceptAdvised])),
        1 => {
            let lock = LockAll { current: random.chance(50), future: random.chance(50), on_fault: false };
            MemoryPolicy::LockAll(LockAll { on_fault: lock != LockAll::NONE && random.chance(50), ..lock })
        }
        _ => MemoryPolicy::Personality(random.next() as u32),
    }
}

pub fn sample_header() -> Header {
    let origin = Origin::Recorded {
        command: vec!["./app".into(), "-x".into()],
        pid: 77,
        program_version: None,
        attached: false,
    };
    Header::new(origin, TouchSource::FullStream, Clock::Measured)
}

pub fn sample_footer() -> Footer {
    let quality = Quality { unknown_frees: 3, parked: 4, ..Quality::default() };
    let modules = vec![Module { path: "/bin/app".into(), build_id: Some("00ff".into()) }];
    let place = |address, function: Option<&str>| Frame {
        module: Some(0),
        address,
        function: function.map(Into::into),
        source: None,
    };
    let frames = vec![place(0x1000, Some("main")), place(0x2000, None)];
    let sites = Sites { modules, frames, stacks: vec![vec![1, 0].into(), vec![0].into()] };
    let profiles = vec![
        SiteProfile { written: 2, ..SiteProfile::of_size(100, true) },
        SiteProfile { site: 1, written: 3, ..SiteProfile::default() },
    ];
    Footer { mark_names: vec!["main".into(), "end".into()], quality, sites, profiles }
}

pub fn write_trace(path: &Path, events: &[Event]) -> Summary {
    let mut writer = TraceWriter::create(path, &sample_header()).unwrap();
    for event in events {
        writer.push(event).unwrap();
    }
    writer.finish(&sample_footer()).unwrap()
}

pub fn read_all(source: &mut (impl EventSource + ?Sized)) -> Result<Vec<Event>, TraceError> {
    let mut events = Vec::new();
    while let Some(batch) = source.next_batch()? {
        events.extend_from_slice(batch);
    }
    Ok(events)
}
