//! The mappings of a process that the script shows. perf records new mappings, but not the removal of mappings.

use super::super::failure::Failure;
use super::line::Mapping;
use super::report::RegionKind;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Maximum number of mappings of all processes: sixteen times Linux's default limit for one process.
pub(super) const MAPPINGS_MAX: usize = 1 << 20;

/// Maximum growth of a stack. The usual limit is 8 MiB; some systems set 64 MiB.
const STACK_BYTES_MAX: u64 = 64 << 20;

/// Maximum distance from the end of the program to the start of the `brk` heap, which the kernel randomises within 1
/// GiB.
const HEAP_GAP_BYTES_MAX: u64 = 1 << 30;

/// A mapping, with its faults.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub start: u64,
    pub end: u64,
    pub kind: RegionKind,
    pub name: Rc<str>,
    access: [u8; 3],
    pub faults: u64,
    pub first_touch: u64,
}

impl Region {
    pub(super) fn is_code(&self) -> bool {
        self.access[2] == b'x'
    }
}

/// The effect of a new mapping on the pages in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The whole range is new memory.
    Fresh,
    /// A mapping has grown or changed its protection: its pages remain.
    Kept,
}

/// The mappings of one process.
#[derive(Clone, Default)]
pub(super) struct Mappings {
    /// By first address.
    regions: BTreeMap<u64, Region>,
    /// Name and end of the program's own file. The heap follows it.
    program: Option<(Rc<str>, u64)>,
}

impl Mappings {
    pub(super) fn len(&self) -> usize {
        self.regions.len()
    }

    pub(super) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    /// The mapping that contains an address, or the stack that grew down to it.
    pub(super) fn find(&mut self, address: u64) -> Option<&mut Region> {
        let below = self.regions.range(..=address).next_back();
        let start = match below.filter(|(_, region)| address < region.end) {
            Some((&start, _)) => start,
            None => {
                let (&start, region) = self.regions.range(address..).next()?;
                (region.kind == RegionKind::Stack && start - address <= STACK_BYTES_MAX).then_some(start)?
            }
        };
        self.regions.get_mut(&start)
    }

    /// Adds a mapping. Existing mappings that overlap it are trimmed. Those that it covers completely are passed to
    /// `gone`.
    pub(super) fn add(&mut self, mapping: Mapping, gone: &mut dyn FnMut(Region)) -> Result<Change, Failure> {
        let Mapping { start, end, access, .. } = mapping;
        let mut flags = [b'-'; 3];
        flags.iter_mut().zip(access.bytes()).for_each(|(flag, byte)| *flag = byte);
        let (kind, name) = self.named(&mapping);
        let mut region = Region { start, end, kind, name, access: flags, faults: 0, first_touch: 0 };
        let change = self.change(&region);
        for old in self.cut(start, end) {
            if change == Change::Kept && old.kind == region.kind {
                region.faults += old.faults;
                region.first_touch += old.first_touch;
            } else {
                gone(old);
            }
        }
        self.regions.insert(start, region);
        if self.regions.len() > MAPPINGS_MAX {
            return Err(Failure::new("more than 1048576 mappings at the same time", "cut the script"));
        }
        Ok(change)
    }

    /// Whether the mapping is an existing one that has grown or changed its protection.
    fn change(&self, new: &Region) -> Change {
        let mut overlaps = self.regions.range(..new.end).rev().take_while(|(_, old)| old.end > new.start);
        let kept = overlaps.any(|(_, old)| {
            let is_same = (old.start, old.end) == (new.start, new.end);
            let grew = new.start <= old.start && old.end <= new.end && !is_same;
            let inside = old.start <= new.start && new.end <= old.end;
            let is_protected = inside && old.access != new.access;
            old.kind == new.kind && old.name == new.name && (grew && old.access == new.access || is_protected)
        });
        if kept { Change::Kept } else { Change::Fresh }
    }

    /// Removes the parts of mappings in a range and keeps the rest. Returns the mappings that are removed completely.
    fn cut(&mut self, start: u64, end: u64) -> Vec<Region> {
        let overlaps = self.regions.range(..end).rev().take_while(|(_, old)| old.end > start);
        let starts: Vec<u64> = overlaps.map(|(&start, _)| start).collect();
        let mut gone = Vec::new();
        for start_old in starts {
            let Some(old) = self.regions.remove(&start_old) else { continue };
            let (below, above) = (old.start < start, old.end > end);
            if above {
                let (faults, first_touch) = if below { (0, 0) } else { (old.faults, old.first_touch) };
                self.regions.insert(end, Region { start: end, faults, first_touch, ..old.clone() });
            }
            match below {
                true => drop(self.regions.insert(old.start, Region { end: start, ..old })),
                false if !above => gone.push(old),
                false => (),
            }
        }
        gone
    }

    /// The kind of a mapping, determined by its name, or by its address if it has no name.
    fn named(&mut self, mapping: &Mapping) -> (RegionKind, Rc<str>) {
        let kind = match mapping.name {
            "[heap]" => RegionKind::Heap,
            name if name.starts_with("[stack") => RegionKind::Stack,
            "" | "//anon" => return self.nameless(mapping),
            name if name.starts_with("[anon") || name.starts_with("//anon") || name.starts_with("/anon_hugepage") => {
                RegionKind::Anonymous
            }
            name if name.starts_with('[') => RegionKind::Kernel,
            name => {
                let known = self.regions.range(..mapping.start).next_back().filter(|(_, old)| &*old.name == name);
                let name = known.map_or_else(|| name.into(), |(_, old)| old.name.clone());
                match &mut self.program {
                    Some((program, end)) if *program == name => *end = (*end).max(mapping.end),
                    Some(_) => (),
                    None => self.program = Some((Rc::clone(&name), mapping.end)),
                }
                return (RegionKind::File, name);
            }
        };
        (kind, kind.word().into())
    }

    /// The kind of a mapping without a name. The zeroed data of a file (bss) begins where its initialised data ends.
    /// The first part of the heap follows the program. A mapping that grows keeps its kind.
    fn nameless(&self, mapping: &Mapping) -> (RegionKind, Rc<str>) {
        let before = self.regions.range(..mapping.start).next_back().map(|(_, old)| old);
        if let Some(old) = before.filter(|old| old.end == mapping.start && old.access[1] == b'w')
            && matches!(old.kind, RegionKind::File | RegionKind::Heap)
        {
            return (old.kind, Rc::clone(&old.name));
        }
        let same = self.regions.get(&mapping.start).filter(|old| old.kind == RegionKind::Heap);
        let follows_program = self.program.as_ref().is_some_and(|(_, end)| {
            (*end..end.saturating_add(HEAP_GAP_BYTES_MAX)).contains(&mapping.start) && mapping.access.starts_with("rw")
        });
        let kind = if same.is_some() || follows_program { RegionKind::Heap } else { RegionKind::Anonymous };
        (kind, kind.word().into())
    }
}
