//! Shared by the tests: seeded random events of every kind, and functions to write and read files.
#![allow(dead_code)] // each test binary uses only some of these items

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use hksim_memory_trace::{
    End, Event, ExitStatus, Footer, Frame, Header, MapOp, MappingAtStart, MappingKind, MappingTraits, MemoryTraceError,
    Module, Op, Origin, PageAtStart, PagesAtStart, Reader, SiteId, Sites, Stack, StackEnd, TouchKind, Writer,
};
use hksim_trace::splitmix::Splitmix64;

/// Pages of the largest address space of x86-64.
pub const PAGES_MAX: u64 = 1 << 45;

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

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Small and extreme values.
    fn word(&mut self) -> u32 {
        match self.below(4) {
            0 => 0,
            1 => u32::MAX,
            2 => self.below(300) as u32,
            _ => self.next() as u32,
        }
    }
}

/// An event and, for a mapping, the name that it must have.
pub type Named = (Event, Option<String>);

fn range(random: &mut Random) -> Range<u64> {
    match random.below(8) {
        0 => 0..0,
        1 => 0..PAGES_MAX,
        2 => PAGES_MAX - 1..PAGES_MAX,
        _ => {
            let start = 0x7f00_0000 + random.below(1 << 20);
            start..start + random.below(5000)
        }
    }
}

fn map(random: &mut Random) -> MapOp {
    MapOp {
        pages: range(random),
        hint_page: random.pick(&[0, 1, 0x7f00_1234, u64::MAX]),
        kind: random.pick(&MappingKind::ALL),
        origin: random.pick(&Origin::ALL),
        protection: random.word(),
        flags: random.word(),
        name: None,
    }
}

/// A random operation of kind `kind`, from 0 to [`OP_KINDS`] - 1.
pub fn op(random: &mut Random, kind: u64) -> Op {
    let page = random.pick(&[0, PAGES_MAX - 1, 0x7f00_0000]) ^ random.below(2);
    let touch = |kind| Op::Touch { page, kind };
    match kind {
        0 => touch(TouchKind::Read),
        1 => touch(TouchKind::Write),
        2 => touch(TouchKind::Unknown),
        3 => Op::Map(Box::new(map(random))),
        4 => Op::Unmap(range(random)),
        5 => Op::Remap { old: range(random), new: range(random), flags: random.word() },
        6 => Op::Protect { pages: range(random), protection: random.word(), errno: random.word() },
        7 => Op::Advise { pages: range(random), advice: random.word(), errno: random.word() },
        8 => Op::Lock { pages: range(random), flags: random.word(), errno: random.word() },
        9 => Op::Unlock(range(random)),
        10 => Op::LockAll(random.word()),
        11 => Op::UnlockAll,
        12 => Op::NameMapping { pages: range(random), name_address: random.next() },
        13 => Op::DisableThp { value: random.word(), flags: random.word() },
        14 => Op::Fork { child_pid: random.word() },
        15 => Op::ChildEnded { child_pid: random.word() },
        16 => Op::Lost { events: random.next() },
        17 => {
            let (map, traits) = (map(random), MappingTraits(random.word()));
            Op::MappingAtStart(Box::new(MappingAtStart { map, traits }))
        }
        _ => Op::PagesAtStart(PagesAtStart { pages: range(random), state: random.pick(&PageAtStart::ALL) }),
    }
}

/// Number of kinds of [`op`].
pub const OP_KINDS: u64 = 19;

/// Random events of every kind, in order of time.
pub fn random_events(seed: u64, count: u64) -> Vec<Named> {
    let mut random = Random::new(seed);
    let names = ["/usr/lib/libc.so.6", "[stack]", "", "/tmp/µ", "/a file"];
    let mut time_ns = random.below(1 << 40);
    let event = |number| {
        // Half of the events are touches of neighbouring pages, as in a real recording.
        let op = match random.below(2) {
            0 if number >= OP_KINDS => Op::Touch { page: 0x7f00_0000 + number, kind: TouchKind::Write },
            _ => op(&mut random, number % OP_KINDS),
        };
        time_ns += random.pick(&[0, 0, 1, 700, 1 << 33]);
        let thread = random.pick(&[0, 0, 0, 1, 2, (1 << 22) - 1]);
        let name = op.mapping().is_some().then(|| random.pick(&names).to_string());
        (Event { time_ns, thread, op, site: SiteId::UNKNOWN }, name.filter(|name| !name.is_empty()))
    };
    (0..count).map(event).collect()
}

/// Random call sites.
pub fn random_sites(seed: u64, count: u64) -> Sites {
    let mut random = Random::new(seed);
    let module = |number: u64| {
        let build_id: Vec<u8> = (0..[0, 20, 64][number as usize % 3]).map(|byte: u8| byte ^ number as u8).collect();
        Module::new(format!("/usr/lib/lib{number}.so").into(), &build_id)
    };
    let mut sites = Sites { modules: (0..9).map(module).collect(), ..Sites::default() };
    for number in 0..count {
        let frames = (0..random.below(40)).map(|_| Frame {
            module: random.pick(&[None, Some(0), Some(3), Some(8)]),
            address: random.pick(&[0, 0x1234, u64::MAX]) ^ random.below(100),
            function: random.pick(&[None, None, Some("f"), Some("a::b<c>")]).map(Into::into),
            source: random.pick(&[None, Some("a.c:7")]).map(Into::into),
        });
        let mut frames: Vec<Frame> = frames.collect();
        // No two stacks are equal.
        frames.push(Frame { module: Some(1), address: number, function: None, source: None });
        let first = sites.frames.len() as u32;
        sites.frames.append(&mut frames);
        let frames = (first..sites.frames.len() as u32).collect();
        sites.stacks.push(Stack { frames, end: Some(random.pick(&StackEnd::ALL)) });
    }
    sites
}

/// Gives the mappings and moves among events random call sites.
pub fn add_sites(seed: u64, events: &mut [Named], sites: &Sites) {
    let mut random = Random::new(seed);
    for (event, _) in events {
        if matches!(event.op, Op::Map(_) | Op::Remap { .. }) && random.below(4) > 0 {
            event.site = SiteId::of_stack(random.below(sites.stacks.len() as u64) as u32);
        }
    }
}

/// Writes events whose call sites are those of `sites`.
pub fn write_with_sites(path: &Path, events: &[Named], sites: &Sites) {
    let header = Header { stack_depth: Some(64), ..Header::example(&["app", "--flag"]) };
    let mut writer = Writer::create(path, &header).expect("a file");
    for (event, name) in events {
        let mut event = event.clone();
        if let (Some(map), Some(name)) = (event.op.mapping_mut(), name) {
            map.name = Some(writer.name(name));
        }
        event.site = writer.site_of(sites, event.site);
        writer.push(event).expect("an event");
    }
    writer.finish(&footer()).expect("the end");
}

/// A stack with the paths and build ids of its modules.
pub type NamedStack = (Vec<(Frame, Option<Module>)>, StackEnd);

/// The stack of a call site, independent of numbers; `None` for an unknown site.
pub fn named_stack(sites: &Sites, site: SiteId) -> Option<NamedStack> {
    let end = sites.stack(site)?.end.expect("an end");
    let named = |frame: &Frame| (Frame { module: None, ..frame.clone() }, sites.module_of(frame).cloned());
    Some((sites.frames_of(site).map(named).collect(), end))
}

/// The stack of each event of a file.
pub fn read_stacks(path: &Path) -> Vec<Option<NamedStack>> {
    let mut reader = Reader::open(path).expect("a recording");
    let (mut stacks, mut chunk) = (Vec::new(), Vec::new());
    while reader.next_chunk(&mut chunk).expect("a chunk") {
        stacks.extend(chunk.iter().map(|event| named_stack(reader.sites(), event.site)));
    }
    stacks
}

pub fn footer() -> Footer {
    let unrecorded_calls = BTreeMap::from([("mbind".to_string(), Some(7))]);
    Footer {
        end: End::Exit,
        end_ns: Some(1 << 40),
        lost_events: 3,
        unrecorded_calls,
        status: Some(ExitStatus::Code(2)),
    }
}

pub fn write(path: &Path, events: &[Named]) {
    let mut writer = Writer::create(path, &Header::example(&["app", "--flag"])).expect("a file");
    for (event, name) in events {
        let mut event = event.clone();
        if let (Some(map), Some(name)) = (event.op.mapping_mut(), name) {
            map.name = Some(writer.name(name));
        }
        writer.push(event).expect("an event");
    }
    writer.finish(&footer()).expect("the end");
}

/// The events of a file, and whether it has its footer.
pub fn read(path: &Path) -> Result<(Vec<Named>, bool), MemoryTraceError> {
    let mut reader = Reader::open(path)?;
    let (mut events, mut chunk) = (Vec::new(), Vec::new());
    while reader.next_chunk(&mut chunk)? {
        for mut event in chunk.drain(..) {
            let mut name = None;
            if let Some(map) = event.op.mapping_mut() {
                name = map.name.take().map(|name| reader.name(name).to_string());
            }
            events.push((event, name));
        }
    }
    Ok((events, reader.footer().is_some()))
}
