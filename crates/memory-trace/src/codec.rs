//! The bytes of events in a chunk. `docs/reference/memory-recording.md` describes them.
//!
//! Each event begins with a byte: its code, and whether time and thread change. Pages are differences to the page
//! before. Each chunk starts with time, thread and page 0, so it can be decoded alone.

use std::ops::Range;

use hksim_call_sites::SiteId;

use crate::at_start::{MappingAtStart, MappingTraits, PageAtStart, PagesAtStart};
use crate::event::{Event, MapOp, MappingKind, NameId, Op, Origin, TouchKind};
use crate::varint::{put, put_signed, take, take_signed};

/// Pages of the largest address space of x86-64 (57 bits).
const PAGES_MAX: u64 = 1 << 45;
/// Maximum number of threads: the kernel's limit of process ids (`PID_MAX_LIMIT`).
const THREADS_MAX: u32 = 1 << 22;
/// Bits of the first byte. The first one is only in recordings with call stacks.
const HAS_SITE: u8 = 0x20;
const TIME_CHANGES: u8 = 0x40;
const THREAD_CHANGES: u8 = 0x80;
const CODE: u8 = 0x1f;

const TOUCH_READ: u8 = 0;
const TOUCH_WRITE: u8 = 1;
const TOUCH_UNKNOWN: u8 = 2;
const MAP: u8 = 3;
const UNMAP: u8 = 4;
const REMAP: u8 = 5;
const PROTECT: u8 = 6;
const ADVISE: u8 = 7;
const LOCK: u8 = 8;
const UNLOCK: u8 = 9;
const LOCK_ALL: u8 = 10;
const UNLOCK_ALL: u8 = 11;
const NAME_MAPPING: u8 = 12;
const DISABLE_THP: u8 = 13;
const FORK: u8 = 14;
const CHILD_ENDED: u8 = 15;
const LOST: u8 = 16;
const MAPPING_AT_START: u8 = 17;
const PAGES_AT_START: u8 = 18;

/// What an event is stored relative to.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    time_ns: u64,
    thread: u32,
    page: u64,
}

/// Encodes the events of one chunk.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
    before: Before,
}

impl Encoder {
    /// The bytes so far. Afterwards the encoder is ready for the next chunk.
    pub fn finish(&mut self) -> Vec<u8> {
        self.before = Before::default();
        std::mem::take(&mut self.bytes)
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn push(&mut self, event: &Event) {
        let mut first = code(&event.op);
        let time = event.time_ns.saturating_sub(self.before.time_ns);
        first |= if time > 0 { TIME_CHANGES } else { 0 };
        first |= if event.thread != self.before.thread { THREAD_CHANGES } else { 0 };
        first |= if event.site != SiteId::UNKNOWN { HAS_SITE } else { 0 };
        self.bytes.push(first);
        if time > 0 {
            put(&mut self.bytes, time);
        }
        if event.thread != self.before.thread {
            put(&mut self.bytes, u64::from(event.thread));
        }
        if let Some(stack) = event.site.stack() {
            put(&mut self.bytes, u64::from(stack));
        }
        self.before.time_ns += time;
        self.before.thread = event.thread;
        self.operands(&event.op);
    }

    fn operands(&mut self, op: &Op) {
        match op {
            Op::Touch { page, .. } => self.page(*page),
            Op::Map(map) => self.map(map),
            Op::Unmap(pages) | Op::Unlock(pages) => self.range(pages),
            Op::Remap { old, new, flags } => {
                self.range(old);
                self.range(new);
                self.number(u64::from(*flags));
            }
            Op::Protect { pages, protection: what, errno }
            | Op::Advise { pages, advice: what, errno }
            | Op::Lock { pages, flags: what, errno } => {
                self.range(pages);
                self.number(u64::from(*what));
                self.number(u64::from(*errno));
            }
            Op::LockAll(flags) => self.number(u64::from(*flags)),
            Op::UnlockAll => {}
            Op::NameMapping { pages, name_address } => {
                self.range(pages);
                self.number(*name_address);
            }
            Op::DisableThp { value, flags } => {
                self.number(u64::from(*value));
                self.number(u64::from(*flags));
            }
            Op::Fork { child_pid } | Op::ChildEnded { child_pid } => self.number(u64::from(*child_pid)),
            Op::Lost { events } => self.number(*events),
            Op::MappingAtStart(start) => {
                self.map(&start.map);
                self.number(u64::from(start.traits.0));
            }
            Op::PagesAtStart(PagesAtStart { pages, state }) => {
                self.range(pages);
                let code = PageAtStart::ALL.iter().position(|known| known == state).unwrap_or_default();
                self.bytes.push(code as u8);
            }
        }
    }

    fn map(&mut self, map: &MapOp) {
        self.range(&map.pages);
        let kind = MappingKind::ALL.iter().position(|&kind| kind == map.kind).unwrap_or_default() as u8;
        let origin = Origin::ALL.iter().position(|&origin| origin == map.origin).unwrap_or_default() as u8;
        self.bytes.extend([kind, origin]);
        for number in [map.hint_page, u64::from(map.protection), u64::from(map.flags)] {
            self.number(number);
        }
        self.number(map.name.map_or(0, |name| u64::from(name.0) + 1));
    }

    fn number(&mut self, value: u64) {
        put(&mut self.bytes, value);
    }

    fn page(&mut self, page: u64) {
        put_signed(&mut self.bytes, page.wrapping_sub(self.before.page) as i64);
        self.before.page = page;
    }

    fn range(&mut self, pages: &Range<u64>) {
        self.page(pages.start);
        self.number(pages.end.saturating_sub(pages.start));
    }
}

fn code(op: &Op) -> u8 {
    match op {
        Op::Touch { kind: TouchKind::Read, .. } => TOUCH_READ,
        Op::Touch { kind: TouchKind::Write, .. } => TOUCH_WRITE,
        Op::Touch { kind: TouchKind::Unknown, .. } => TOUCH_UNKNOWN,
        Op::Map(_) => MAP,
        Op::Unmap(_) => UNMAP,
        Op::Remap { .. } => REMAP,
        Op::Protect { .. } => PROTECT,
        Op::Advise { .. } => ADVISE,
        Op::Lock { .. } => LOCK,
        Op::Unlock(_) => UNLOCK,
        Op::LockAll(_) => LOCK_ALL,
        Op::UnlockAll => UNLOCK_ALL,
        Op::NameMapping { .. } => NAME_MAPPING,
        Op::DisableThp { .. } => DISABLE_THP,
        Op::Fork { .. } => FORK,
        Op::ChildEnded { .. } => CHILD_ENDED,
        Op::Lost { .. } => LOST,
        Op::MappingAtStart(_) => MAPPING_AT_START,
        Op::PagesAtStart(_) => PAGES_AT_START,
    }
}

/// Decodes the events of one chunk.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    before: Before,
    defined: Defined,
}

/// What events may refer to: what this chunk and those before it define.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defined {
    /// Number of names.
    pub names: u32,
    /// Number of call sites.
    pub sites: u32,
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8], defined: Defined) -> Self {
        Self { bytes, before: Before::default(), defined }
    }

    /// Whether every byte was decoded.
    pub fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next event; `None` if the bytes are not an event.
    pub fn next(&mut self) -> Option<Event> {
        let first = self.byte()?;
        if first & TIME_CHANGES != 0 {
            self.before.time_ns = self.before.time_ns.checked_add(take(&mut self.bytes)?)?;
        }
        if first & THREAD_CHANGES != 0 {
            self.before.thread = self.word().filter(|&thread| thread < THREADS_MAX)?;
        }
        let site = match first & HAS_SITE {
            0 => SiteId::UNKNOWN,
            _ => SiteId::of_stack(self.word().filter(|&site| site < self.defined.sites)?),
        };
        let op = self.op(first & CODE)?;
        Some(Event { time_ns: self.before.time_ns, thread: self.before.thread, op, site })
    }

    #[inline]
    fn op(&mut self, code: u8) -> Option<Op> {
        Some(match code {
            TOUCH_READ => Op::Touch { page: self.page()?, kind: TouchKind::Read },
            TOUCH_WRITE => Op::Touch { page: self.page()?, kind: TouchKind::Write },
            TOUCH_UNKNOWN => Op::Touch { page: self.page()?, kind: TouchKind::Unknown },
            MAP => Op::Map(Box::new(self.map()?)),
            UNMAP => Op::Unmap(self.range()?),
            REMAP => Op::Remap { old: self.range()?, new: self.range()?, flags: self.word()? },
            PROTECT => Op::Protect { pages: self.range()?, protection: self.word()?, errno: self.word()? },
            ADVISE => Op::Advise { pages: self.range()?, advice: self.word()?, errno: self.word()? },
            LOCK => Op::Lock { pages: self.range()?, flags: self.word()?, errno: self.word()? },
            UNLOCK => Op::Unlock(self.range()?),
            LOCK_ALL => Op::LockAll(self.word()?),
            UNLOCK_ALL => Op::UnlockAll,
            NAME_MAPPING => Op::NameMapping { pages: self.range()?, name_address: take(&mut self.bytes)? },
            DISABLE_THP => Op::DisableThp { value: self.word()?, flags: self.word()? },
            FORK => Op::Fork { child_pid: self.word()? },
            CHILD_ENDED => Op::ChildEnded { child_pid: self.word()? },
            LOST => Op::Lost { events: take(&mut self.bytes)? },
            MAPPING_AT_START => {
                let (map, traits) = (self.map()?, MappingTraits(self.word()?));
                Op::MappingAtStart(Box::new(MappingAtStart { map, traits }))
            }
            PAGES_AT_START => {
                let (pages, code) = (self.range()?, self.byte()?);
                let state = *PageAtStart::ALL.get(usize::from(code))?;
                Op::PagesAtStart(PagesAtStart { pages, state })
            }
            _ => return None,
        })
    }

    fn map(&mut self) -> Option<MapOp> {
        let pages = self.range()?;
        let kind = *MappingKind::ALL.get(usize::from(self.byte()?))?;
        let origin = *Origin::ALL.get(usize::from(self.byte()?))?;
        let hint_page = take(&mut self.bytes)?;
        let (protection, flags) = (self.word()?, self.word()?);
        let name = match self.word()? {
            0 => None,
            number if number <= self.defined.names => Some(NameId(number - 1)),
            _ => return None,
        };
        Some(MapOp { pages, hint_page, kind, origin, protection, flags, name })
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(byte)
    }

    fn word(&mut self) -> Option<u32> {
        take(&mut self.bytes)?.try_into().ok()
    }

    #[inline]
    fn page(&mut self) -> Option<u64> {
        let page = self.before.page.wrapping_add(take_signed(&mut self.bytes)? as u64);
        self.before.page = page;
        (page < PAGES_MAX).then_some(page)
    }

    fn range(&mut self) -> Option<Range<u64>> {
        let start = self.page()?;
        let end = start.checked_add(take(&mut self.bytes)?)?;
        (end <= PAGES_MAX).then_some(start..end)
    }
}
