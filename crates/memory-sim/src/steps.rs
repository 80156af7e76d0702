//! Translates recorded events into operations of the kernel model. The result is the same for all settings.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hksim_linux_mm::{
    Access, Advice, Backing, Content, KnownPages, KnownTraits, LockFlags, MapFlags, Protection, RemapSource, ThpDisable,
};
use hksim_memory_trace::{
    Event, Inherited, MapOp, Op, Origin, PAGE_BYTES, PagesAtStart, SiteId, ThpDisabled, TouchKind,
};
use serde::{Deserialize, Serialize};

use crate::at_start::{self, PagesKnown, SharedHuge};
use crate::regions::{Mapped, Outside, PartId, Region, Regions, Use};

/// One operation of one address space.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Time since the start of the recording.
    pub time_ns: u64,
    /// The operation.
    pub action: Action,
    /// The modelled memory that it may populate, in ascending order.
    pub populates: Vec<(Range<u64>, PartId)>,
}

/// An operation of the kernel model.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A first touch of modelled memory.
    Touch {
        page: u64,
        access: Access,
        part: PartId,
    },
    /// A touch of a stack that grows, or below it.
    TouchStack {
        page: u64,
        access: Access,
    },
    /// A stack that grows: new, or with a lower start.
    MapStack {
        pages: Range<u64>,
        flags: MapFlags,
        origin: Origin,
    },
    /// A touch of mapped memory that is not modelled. It creates page tables.
    TouchOutside {
        page: u64,
        /// It writes a page of a private file mapping, which makes it anonymous memory.
        written_privately: bool,
    },
    /// A modelled mapping.
    Map {
        pages: Range<u64>,
        flags: MapFlags,
        locks: bool,
        usage: Use,
    },
    /// Memory added to the heap by brk.
    GrowHeap {
        pages: Range<u64>,
        heap_start: u64,
    },
    /// A mapping that is not modelled.
    MapOutside {
        pages: Range<u64>,
    },
    Unmap(Range<u64>),
    Remap {
        old: Range<u64>,
        new: Range<u64>,
        source: RemapSource,
    },
    Protect {
        pages: Range<u64>,
        protection: Protection,
    },
    Advise {
        pages: Range<u64>,
        advice: Advice,
        /// Who advised, where that was recorded.
        site: SiteId,
    },
    Lock {
        pages: Range<u64>,
        on_fault: bool,
    },
    Unlock(Range<u64>),
    LockAll(LockFlags),
    UnlockAll,
    Name {
        pages: Range<u64>,
        name: Option<u32>,
    },
    DisableThp(ThpDisable),
    Fork {
        child_pid: u32,
    },
    ChildEnded {
        child_pid: u32,
    },
    /// A mapping that was there when the recording began: modelled memory, or a stack that grows.
    KnowMapping {
        pages: Range<u64>,
        flags: MapFlags,
        traits: KnownTraits,
        is_stack: bool,
    },
    /// A mapping that was there when the recording began, and is not modelled.
    KnowOutside {
        pages: Range<u64>,
    },
    /// Pages that were there when the recording began.
    KnowPages {
        pages: Range<u64>,
        state: KnownPages,
    },
    /// A page that was there when the recording began, and that a write found write-protected.
    KnowProtected {
        page: u64,
    },
    /// The address space ended.
    End,
}

/// `MADV_*` and `MREMAP_*` values of `include/uapi/asm-generic/mman-common.h` and `include/uapi/linux/mman.h`.
mod abi {
    pub const PROT_READ: u32 = 1;
    pub const PROT_WRITE: u32 = 2;
    pub const PROT_EXEC: u32 = 4;
    pub const MAP_TYPE: u32 = 0xf;
    pub const MAP_DROPPABLE: u32 = 8;
    pub const MAP_ANONYMOUS: u32 = 0x20;
    pub const MAP_LOCKED: u32 = 0x2000;
    pub const MAP_NORESERVE: u32 = 0x4000;
    pub const MAP_POPULATE: u32 = 0x8000;
    pub const MAP_STACK: u32 = 0x20000;
    pub const MAP_HUGETLB: u32 = 0x40000;
    pub const MREMAP_DONTUNMAP: u32 = 4;
    pub const MCL_CURRENT: u32 = 1;
    pub const MCL_FUTURE: u32 = 2;
    pub const MCL_ONFAULT: u32 = 4;
    pub const MLOCK_ONFAULT: u32 = 1;
}

/// Translates the events of one address space.
#[derive(Clone, Debug, Default)]
pub struct Translator {
    regions: Regions,
    /// Names of mappings (`PR_SET_VMA_ANON_NAME`) by their address.
    names: BTreeMap<u64, u32>,
    /// Steps before the first event: what the process inherited.
    at_start: Vec<Action>,
    /// The pages that were there when the recording began.
    known: PagesKnown,
    /// What was left out.
    pub tally: Tally,
}

/// What a recording holds besides modelled memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Recorded faults outside modelled memory, by kind of memory.
    pub traps_outside: BTreeMap<Outside, u64>,
    /// Recorded faults in modelled memory.
    pub traps_recorded: u64,
    /// Calls with an advice that the model does not know, by `MADV_*` number.
    pub advice_unmodelled: BTreeMap<u32, u64>,
    /// Events that the recorder lost.
    pub lost_events: u64,
    /// Calls of prctl after which the recorded process could have huge pages, although the recorder had switched them
    /// off; also one by a program before exec. Touches inside a huge page were not seen.
    pub thp_enabled: u64,
    /// What was there when the recording began in the middle.
    pub at_start: MemoryAtStart,
}

/// Resident anonymous memory of a process, stacks included, when a recording of it began in the middle. It keeps its state
/// until recorded operations change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryAtStart {
    /// All of it.
    pub resident_bytes: u64,
    /// In huge pages: accesses to them raise no fault.
    pub huge_bytes: u64,
}

impl Translator {
    /// For an address space that began by exec, or in the middle.
    pub fn at_exec(inherited: &Inherited) -> Self {
        let disable = thp_disable(inherited.thp_disable);
        let at_start = (disable != ThpDisable::Off).then_some(Action::DisableThp(disable));
        let thp_enabled = u64::from(inherited.thp_chosen && disable != ThpDisable::All);
        let tally = Tally { thp_enabled, ..Tally::default() };
        Self { at_start: at_start.into_iter().collect(), tally, ..Self::default() }
    }

    /// The same for a process whose family shared these huge pages when the recording began.
    pub fn among(self, shared_huge: Arc<SharedHuge>) -> Self {
        Self { known: PagesKnown::among(shared_huge), ..self }
    }

    /// The mappings so far.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// A forked child's: the same mappings, nothing counted yet.
    pub fn forked(&self) -> Self {
        Self { tally: Tally::default(), ..self.clone() }
    }

    /// Translates an event into steps. A new mapping has the name of its file.
    pub fn translate(&mut self, event: &Event, name: Option<&str>, steps: &mut Vec<Step>) {
        let before = steps.len();
        let mut push = |action| steps.push(Step { time_ns: event.time_ns, action, populates: Vec::new() });
        self.at_start.drain(..).for_each(&mut push);
        match &event.op {
            Op::Touch { page, kind } => {
                if let Some(action) = self.touch(*page, *kind) {
                    let is_write = access_of(*kind) != Access::Read;
                    if is_write && self.known.is_first_write(*page) {
                        push(Action::KnowProtected { page: *page });
                    }
                    push(action);
                }
            }
            Op::Map(map) => {
                let mapped = self.regions.map(map, name, event.time_ns, event.site);
                push(self.map(map, mapped));
            }
            Op::Unmap(pages) => {
                self.regions.unmap(pages);
                push(Action::Unmap(pages.clone()));
            }
            Op::Remap { old, new, flags } => {
                let keeps_source = flags & abi::MREMAP_DONTUNMAP != 0;
                self.regions.remap(old, new, keeps_source, event.site);
                let source = if keeps_source { RemapSource::Kept } else { RemapSource::Unmapped };
                push(Action::Remap { old: old.clone(), new: new.clone(), source });
            }
            Op::Protect { pages, protection, .. } => {
                push(Action::Protect { pages: pages.clone(), protection: protection_of(*protection) });
            }
            Op::Advise { pages, advice, errno } => {
                if let Some(advice) = self.advice(*advice, *errno) {
                    push(Action::Advise { pages: pages.clone(), advice, site: event.site });
                }
            }
            Op::Lock { pages, flags, .. } => {
                push(Action::Lock { pages: pages.clone(), on_fault: flags & abi::MLOCK_ONFAULT != 0 });
            }
            Op::Unlock(pages) => push(Action::Unlock(pages.clone())),
            Op::LockAll(flags) => push(Action::LockAll(LockFlags {
                current: flags & abi::MCL_CURRENT != 0,
                future: flags & abi::MCL_FUTURE != 0,
                on_fault: flags & abi::MCL_ONFAULT != 0,
            })),
            Op::UnlockAll => push(Action::UnlockAll),
            Op::NameMapping { pages, name_address } => {
                push(Action::Name { pages: pages.clone(), name: self.name(*name_address) });
            }
            Op::DisableThp { value, flags } => {
                let disable = thp_disable(ThpDisabled::set(*value, *flags));
                push(Action::DisableThp(disable));
                self.tally.thp_enabled += u64::from(disable != ThpDisable::All);
            }
            Op::Fork { child_pid } => push(Action::Fork { child_pid: *child_pid }),
            Op::ChildEnded { child_pid } => push(Action::ChildEnded { child_pid: *child_pid }),
            Op::Lost { events } => self.tally.lost_events += events,
            Op::MappingAtStart(start) => {
                let mapped = self.regions.map(&start.map, name, event.time_ns, event.site);
                push(at_start::mapping(start, mapped));
            }
            Op::PagesAtStart(start) => {
                self.note_start(start);
                self.known.operations(start).into_iter().for_each(&mut push);
            }
        }
        for step in &mut steps[before..] {
            step.populates = self.populated_by(&step.action);
        }
    }

    fn note_start(&mut self, start: &PagesAtStart) {
        let is_modelled = !matches!(self.regions.at(start.pages.start), Mapped::Outside(_));
        if is_modelled && start.state.is_resident() {
            let bytes = (start.pages.end - start.pages.start) * PAGE_BYTES;
            self.known.add(start.pages.clone());
            self.tally.at_start.resident_bytes += bytes;
            self.tally.at_start.huge_bytes += if start.state.is_huge() { bytes } else { 0 };
        }
    }

    /// The memory that a call may populate. Any call on locked memory may, whatever its purpose.
    fn populated_by(&self, action: &Action) -> Vec<(Range<u64>, PartId)> {
        use Advice::{Collapse, PopulateRead, PopulateWrite};
        let pages = match action {
            Action::Map { pages, .. }
            | Action::GrowHeap { pages, .. }
            | Action::Protect { pages, .. }
            | Action::Remap { new: pages, .. }
            | Action::Advise { pages, advice: PopulateRead | PopulateWrite | Collapse, .. }
            | Action::Lock { pages, .. } => pages,
            Action::LockAll(_) => &(0..u64::MAX),
            _ => return Vec::new(),
        };
        self.regions.parts_in(pages)
    }

    fn touch(&mut self, page: u64, kind: TouchKind) -> Option<Action> {
        match self.regions.at(page) {
            Mapped::Part(part) => {
                self.tally.traps_recorded += 1;
                Some(Action::Touch { page, access: access_of(kind), part })
            }
            Mapped::Stack => Some(Action::TouchStack { page, access: access_of(kind) }),
            Mapped::Outside(outside) => {
                *self.tally.traps_outside.entry(outside).or_default() += 1;
                let written_privately = outside == Outside::PrivateFile && kind == TouchKind::Write;
                (outside != Outside::Unmapped).then_some(Action::TouchOutside { page, written_privately })
            }
        }
    }

    fn map(&self, map: &MapOp, mapped: Mapped) -> Action {
        let pages = map.pages.clone();
        let flags = flags_of(map);
        let part = match mapped {
            Mapped::Part(part) => part,
            Mapped::Stack => return Action::MapStack { pages, flags, origin: map.origin },
            Mapped::Outside(_) => return Action::MapOutside { pages },
        };
        let &Region { usage, address, .. } = self.regions.of_part(part);
        if usage == Use::Heap {
            return Action::GrowHeap { pages, heap_start: address / PAGE_BYTES };
        }
        Action::Map { pages, flags, locks: map.flags & abi::MAP_LOCKED != 0, usage }
    }

    /// The advice as the model knows it. Advice that failed is included, for two reasons: the mappings before the one
    /// that refused it may have taken it; and if it failed because huge pages were off, it can succeed in the model.
    fn advice(&mut self, number: u32, errno: u32) -> Option<Advice> {
        let advice = advice_of(number);
        if advice.is_none() && errno == 0 {
            *self.tally.advice_unmodelled.entry(number).or_default() += 1;
        }
        advice
    }

    fn name(&mut self, address: u64) -> Option<u32> {
        let next = self.names.len() as u32;
        (address != 0).then(|| *self.names.entry(address).or_insert(next))
    }
}

/// The arguments of a mapping as the model knows them.
pub(crate) fn flags_of(map: &MapOp) -> MapFlags {
    let has = |flag: u32| map.flags & flag != 0;
    MapFlags {
        protection: protection_of(map.protection),
        noreserve: has(abi::MAP_NORESERVE),
        populate: has(abi::MAP_POPULATE),
        hugetlb: has(abi::MAP_HUGETLB),
        stack: has(abi::MAP_STACK),
        backing: backing(map),
    }
}

/// What anonymous memory is made from. A mapping by mmap without `MAP_ANONYMOUS` is one of `/dev/zero`.
pub(crate) fn backing(map: &MapOp) -> Backing {
    match map.flags & abi::MAP_TYPE {
        _ if map.origin != Origin::Mmap => Backing::Anonymous,
        abi::MAP_DROPPABLE => Backing::Droppable,
        _ if map.flags & abi::MAP_ANONYMOUS == 0 => Backing::ZeroDevice,
        _ => Backing::Anonymous,
    }
}

fn thp_disable(setting: ThpDisabled) -> ThpDisable {
    match setting {
        ThpDisabled::Off => ThpDisable::Off,
        ThpDisabled::All => ThpDisable::All,
        ThpDisabled::ExceptAdvised => ThpDisable::ExceptAdvised,
    }
}

fn access_of(kind: TouchKind) -> Access {
    match kind {
        TouchKind::Read => Access::Read,
        // Contents are not recorded. An unknown access counts as a write, like most first accesses to heap memory.
        TouchKind::Write | TouchKind::Unknown => Access::Write(Content::NonZero),
    }
}

fn protection_of(bits: u32) -> Protection {
    let has = |bit: u32| bits & bit != 0;
    Protection::from_prot(has(abi::PROT_READ), has(abi::PROT_WRITE), has(abi::PROT_EXEC))
}

/// The advice with a `MADV_*` number (`include/uapi/asm-generic/mman-common.h`), if the model knows it.
fn advice_of(number: u32) -> Option<Advice> {
    Some(match number {
        0 => Advice::Normal,
        1 => Advice::Random,
        2 => Advice::Sequential,
        3 => Advice::WillNeed,
        4 => Advice::DontNeed,
        8 => Advice::Free,
        10 => Advice::DontFork,
        11 => Advice::DoFork,
        12 => Advice::Mergeable,
        13 => Advice::Unmergeable,
        14 => Advice::HugePage,
        15 => Advice::NoHugePage,
        16 => Advice::DontDump,
        17 => Advice::DoDump,
        18 => Advice::WipeOnFork,
        19 => Advice::KeepOnFork,
        20 => Advice::Cold,
        22 => Advice::PopulateRead,
        23 => Advice::PopulateWrite,
        24 => Advice::DontNeedLocked,
        25 => Advice::Collapse,
        102 => Advice::GuardInstall,
        103 => Advice::GuardRemove,
        _ => return None,
    })
}
