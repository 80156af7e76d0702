//! The mappings of a recorded address space: which memory a touch is in, and whether it is modelled.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use hksim_memory_trace::{MapOp, MappingKind, Origin, PAGE_BYTES, SiteId};
use serde::{Deserialize, Serialize};

use crate::ranges::Ranges;

/// Number of a region, in order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u32);

/// Number of a part of a region, in order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartId(pub u32);

/// The part of a region that was mapped by calls from one site. A region can have several: the heap grows from many
/// sites, and mremap adds to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The region.
    pub region: RegionId,
    /// The call site; unknown if it was not recorded.
    pub site: SiteId,
}

/// Who uses anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// The heap of brk.
    Heap,
    /// A mapping of mmap.
    Mmap,
    /// A thread's stack (`MAP_STACK`).
    ThreadStack,
    /// Zero-initialised data of the program and of its loader.
    ProgramData,
    /// Made by the kernel outside mmap, brk and exec.
    Kernel,
}

/// A mapping with private anonymous memory, from its creation on. Parts of it may be unmapped or moved later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Who uses it.
    #[serde(rename = "use")]
    pub usage: Use,
    /// Its first address when it was created.
    pub address: u64,
    /// Its size: for the heap the largest, otherwise when it was created.
    pub bytes: u64,
    /// When it was created, in nanoseconds since the start of the recording.
    pub time_ns: u64,
}

/// What is mapped at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Modelled memory.
    Part(PartId),
    /// A stack that grows, which is simulated apart.
    Stack,
    /// Memory that is not modelled.
    Outside(Outside),
}

impl Mapped {
    fn part(self) -> Option<PartId> {
        match self {
            Self::Part(part) => Some(part),
            Self::Stack | Self::Outside(_) => None,
        }
    }
}

/// Memory that is not modelled, and the lack of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outside {
    /// A private mapping of a file.
    PrivateFile,
    /// A shared mapping of a file, tmpfs included.
    Shared,
    /// Shared memory without a file: `MAP_SHARED` with `MAP_ANONYMOUS`, System V segments, memfd.
    SharedMemory,
    /// Shared memory of the hugetlb pool.
    SharedHugetlb,
    /// hugetlb with pages of another size than 2 MiB.
    OtherHugetlb,
    /// vdso, vvar, shadow stacks and the like.
    Special,
    /// A replay's own memory.
    Harness,
    /// Nothing: the access raised a signal.
    Unmapped,
}

/// What was mapped of memory that is not modelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedOutside {
    /// Mappings.
    pub mappings: u64,
    /// Their bytes when they were made.
    pub bytes: u64,
}

impl Outside {
    /// What a shared mapping with these flags and this name is. Names of files can be missing, in anonymised recordings.
    fn shared(flags: u32, name: Option<&str>) -> Self {
        const MAP_ANONYMOUS: u32 = 0x20;
        const MAP_HUGETLB: u32 = 0x40000;
        let name = name.unwrap_or_default();
        let is_without_file = ["/dev/zero", "/memfd:", "/SYSV"].iter().any(|prefix| name.starts_with(prefix));
        if flags & MAP_HUGETLB != 0 || name.starts_with("/anon_hugepage") {
            Self::SharedHugetlb
        } else if flags & MAP_ANONYMOUS != 0 || is_without_file {
            Self::SharedMemory
        } else {
            Self::Shared
        }
    }
}

/// All mappings of an address space.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    mapped: Ranges<Mapped>,
    all: Vec<Region>,
    parts: Vec<Part>,
    part_ids: HashMap<Part, PartId>,
    heap: Option<RegionId>,
    mapped_outside: BTreeMap<Outside, MappedOutside>,
}

impl Regions {
    /// What was mapped so far of memory that is not modelled, by kind.
    pub fn mapped_outside(&self) -> &BTreeMap<Outside, MappedOutside> {
        &self.mapped_outside
    }

    /// Every region, in order of creation.
    pub fn all(&self) -> &[Region] {
        &self.all
    }

    /// Every part of a region, by [`PartId`].
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The region of a part.
    pub fn of_part(&self, part: PartId) -> &Region {
        &self.all[self.parts[part.0 as usize].region.0 as usize]
    }

    fn part(&mut self, region: RegionId, site: SiteId) -> PartId {
        let part = Part { region, site };
        *self.part_ids.entry(part).or_insert_with(|| {
            self.parts.push(part);
            PartId(self.parts.len() as u32 - 1)
        })
    }

    /// The mapped ranges of modelled memory with their parts, in ascending order.
    pub fn ranges(&self) -> impl Iterator<Item = (Range<u64>, PartId)> {
        self.mapped.iter().filter_map(|(pages, mapped)| Some((pages, mapped.part()?)))
    }

    /// The modelled memory in a range with its parts, in ascending order.
    pub fn parts_in(&self, pages: &Range<u64>) -> Vec<(Range<u64>, PartId)> {
        let found = self.mapped.overlapping(pages).into_iter();
        found.filter_map(|(pages, mapped)| Some((pages, mapped.part()?))).collect()
    }

    /// What is mapped at a page.
    pub fn at(&self, page: u64) -> Mapped {
        // A stack grows when it is touched below its start.
        let stack_above = || self.mapped.beginning_from(page).filter(|above| *above == Mapped::Stack);
        self.mapped.at(page).or_else(stack_above).unwrap_or(Mapped::Outside(Outside::Unmapped))
    }

    /// A new mapping by a call from `site`, with the name of its file. Returns what it is.
    pub fn map(&mut self, map: &MapOp, name: Option<&str>, time_ns: u64, site: SiteId) -> Mapped {
        let mapped = match map.kind {
            MappingKind::Anonymous => {
                let region = self.region(map, time_ns);
                Mapped::Part(self.part(region, site))
            }
            MappingKind::GrowingStack => Mapped::Stack,
            MappingKind::PrivateFile => Mapped::Outside(Outside::PrivateFile),
            MappingKind::Shared => Mapped::Outside(Outside::shared(map.flags, name)),
            MappingKind::OtherHugetlb => Mapped::Outside(Outside::OtherHugetlb),
            MappingKind::Special => Mapped::Outside(Outside::Special),
            MappingKind::Harness => Mapped::Outside(Outside::Harness),
        };
        if let Mapped::Outside(outside) = mapped {
            let total = self.mapped_outside.entry(outside).or_default();
            total.mappings += 1;
            total.bytes += (map.pages.end - map.pages.start) * PAGE_BYTES;
        }
        self.mapped.insert(map.pages.clone(), mapped);
        mapped
    }

    fn region(&mut self, map: &MapOp, time_ns: u64) -> RegionId {
        const MAP_STACK: u32 = 0x20000;
        let usage = match map.origin {
            Origin::Brk => Use::Heap,
            Origin::Mmap if map.flags & MAP_STACK != 0 => Use::ThreadStack,
            Origin::Mmap => Use::Mmap,
            Origin::Exec => Use::ProgramData,
            Origin::Kernel => Use::Kernel,
        };
        let end = map.pages.end * PAGE_BYTES;
        if let Some(heap) = self.heap.filter(|_| usage == Use::Heap) {
            let region = &mut self.all[heap.0 as usize];
            region.bytes = region.bytes.max(end.saturating_sub(region.address));
            return heap;
        }
        let (address, bytes) = (map.pages.start * PAGE_BYTES, (map.pages.end - map.pages.start) * PAGE_BYTES);
        let id = RegionId(self.all.len() as u32);
        self.all.push(Region { usage, address, bytes, time_ns });
        if usage == Use::Heap {
            self.heap = Some(id);
        }
        id
    }

    /// Removes mappings.
    pub fn unmap(&mut self, pages: &Range<u64>) {
        self.mapped.remove(pages);
    }

    /// Moves or resizes a mapping by a call from `site`, which gets what is added. `keeps_source` for
    /// `MREMAP_DONTUNMAP`.
    pub fn remap(&mut self, old: &Range<u64>, new: &Range<u64>, keeps_source: bool, site: SiteId) {
        let Some((_, last)) = self.mapped.overlapping(old).pop() else { return };
        self.mapped.relocate(old, new, keeps_source);
        let grown = new.start + (old.end - old.start);
        if grown < new.end {
            let added = match last {
                Mapped::Part(part) => Mapped::Part(self.part(self.parts[part.0 as usize].region, site)),
                outside => outside,
            };
            self.mapped.insert(grown..new.end, added);
        }
    }

    /// The ranges that hold modelled memory, in ascending order; adjacent ones are joined.
    pub fn modelled(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (pages, _) in self.ranges() {
            match ranges.last_mut() {
                Some(last) if last.end == pages.start => last.end = pages.end,
                _ => ranges.push(pages),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pages: Range<u64>, kind: MappingKind, origin: Origin) -> MapOp {
        MapOp { pages, hint_page: 0, kind, origin, protection: 3, flags: 0x22, name: None }
    }

    #[test]
    fn later_mappings_replace_parts() {
        let mut regions = Regions::default();
        let first = regions.map(&map(100..200, MappingKind::Anonymous, Origin::Mmap), None, 0, SiteId::UNKNOWN);
        regions.map(&map(120..130, MappingKind::PrivateFile, Origin::Mmap), None, 1, SiteId::UNKNOWN);
        assert_eq!([regions.at(119), regions.at(130)], [first; 2]);
        assert_eq!(regions.at(125), Mapped::Outside(Outside::PrivateFile));
        regions.unmap(&(110..125));
        assert_eq!(regions.at(110), Mapped::Outside(Outside::Unmapped));
        assert_eq!(regions.at(129), Mapped::Outside(Outside::PrivateFile));
        assert_eq!([regions.at(105), regions.at(135)], [first; 2]);
        assert_eq!(regions.modelled(), [100..110, 130..200]);
    }

    #[test]
    fn the_heap_is_one_region() {
        let mut regions = Regions::default();
        let heap = regions.map(&map(100..110, MappingKind::Anonymous, Origin::Brk), None, 0, SiteId::UNKNOWN);
        assert_eq!(regions.map(&map(110..150, MappingKind::Anonymous, Origin::Brk), None, 0, SiteId::UNKNOWN), heap);
        assert_eq!((regions.all().len(), regions.all()[0].bytes), (1, 50 * PAGE_BYTES));
    }

    #[test]
    fn a_moved_region_keeps_its_number() {
        let mut regions = Regions::default();
        let moved = regions.map(&map(100..110, MappingKind::Anonymous, Origin::Mmap), None, 0, SiteId::UNKNOWN);
        regions.remap(&(100..110), &(500..600), false, SiteId::UNKNOWN);
        assert_eq!([regions.at(100), regions.at(99)], [Mapped::Outside(Outside::Unmapped); 2]);
        assert_eq!([regions.at(500), regions.at(599)], [moved; 2]);
        regions.remap(&(500..600), &(500..520), false, SiteId::UNKNOWN);
        assert_eq!(regions.at(520), Mapped::Outside(Outside::Unmapped));
    }

    #[test]
    fn pages_below_a_stack_belong_to_it() {
        let mut regions = Regions::default();
        regions.map(&map(900..1000, MappingKind::GrowingStack, Origin::Exec), None, 0, SiteId::UNKNOWN);
        assert_eq!(regions.at(890), Mapped::Stack);
        assert_eq!(regions.at(1000), Mapped::Outside(Outside::Unmapped));
    }

    #[test]
    fn what_a_call_adds_belongs_to_its_site() {
        let mut regions = Regions::default();
        let site = SiteId;
        let part = |regions: &Regions, page| match regions.at(page) {
            Mapped::Part(part) => regions.parts()[part.0 as usize],
            outside => panic!("{outside:?}"),
        };
        regions.map(&map(100..110, MappingKind::Anonymous, Origin::Brk), None, 0, site(1));
        regions.map(&map(110..120, MappingKind::Anonymous, Origin::Brk), None, 0, site(2));
        assert_eq!([105, 115].map(|page| part(&regions, page).site), [site(1), site(2)]);
        assert_eq!(regions.all().len(), 1, "one heap");
        regions.map(&map(500..510, MappingKind::Anonymous, Origin::Mmap), None, 0, site(3));
        regions.remap(&(500..510), &(700..730), false, site(4));
        assert_eq!([705, 715].map(|page| part(&regions, page).site), [site(3), site(4)]);
        assert_eq!(part(&regions, 705).region, part(&regions, 715).region);
    }
}
