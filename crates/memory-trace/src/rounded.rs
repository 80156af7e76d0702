//! Addresses that a program rounds up to 2 MiB within a mapping: it maps more than it needs, and uses the memory from the
//! first aligned address on, as `aligned_alloc` does. At another address of the mapping it rounds to another place.
//!
//! A recording shows only where the program used the mapping. The memory counts as rounded if its first use is at the
//! first 2 MiB boundary of a mapping that begins elsewhere (by chance: one mapping in 512), or if a mapping that begins
//! at a boundary is used except for its last 2 MiB.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use crate::error::MemoryTraceError;
use crate::event::{Event, MappingKind, Op, Origin};
use crate::reader::Reader;
use crate::relocate::Moves;

/// Pages of 2 MiB, the alignment of huge pages.
const ALIGNMENT: u64 = 512;
/// Such mappings are aligned by the kernel.
const MAP_HUGETLB: u32 = 0x40000;

/// A mapping within which the program rounded an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rounded {
    /// The pages from the rounded address on that are used.
    used: Range<u64>,
    /// Whether the program wrote before the rounded address. It then leaves room for that even if the mapping begins at
    /// a boundary.
    has_header: bool,
}

impl Rounded {
    /// Notes where the pages of a mapping are that begins at `start` now.
    pub fn place(&self, mapped: &Range<u64>, start: u64, moves: &mut Moves) {
        moves.place(mapped, start);
        let header = u64::from(self.has_header);
        let rounded = (start + header).next_multiple_of(ALIGNMENT);
        // The header before the rounded address moves with it.
        moves.place(&(self.used.start - header..self.used.end), rounded - header);
    }
}

/// What a mapping was used for so far.
#[derive(Debug)]
struct Mapping {
    /// Number of the event that made it.
    number: u64,
    pages: Range<u64>,
    /// The first boundary after the first page.
    boundary: u64,
    /// Uses of the first page, of the last one before the boundary, and of others before it.
    head: [bool; 3],
    /// The first use from the boundary on.
    first: u64,
    /// The end of the last use.
    end: u64,
}

impl Mapping {
    /// The mapping that an operation makes, if it can hold a rounded range.
    fn of(number: u64, op: &Op) -> Option<Self> {
        let Op::Map(map) = op else { return None };
        let is_placed_by_kernel = map.origin == Origin::Mmap && map.hint_page == 0;
        let is_candidate = is_placed_by_kernel && map.kind == MappingKind::Anonymous && map.flags & MAP_HUGETLB == 0;
        let pages = map.pages.clone();
        (is_candidate && pages.end - pages.start > ALIGNMENT).then(|| Self {
            number,
            boundary: (pages.start + 1).next_multiple_of(ALIGNMENT),
            head: [false; 3],
            first: u64::MAX,
            end: pages.start,
            pages,
        })
    }

    /// Notes a use of some of its pages. What concerns all of them says nothing about a place.
    fn note(&mut self, pages: &Range<u64>) {
        let used = pages.start.max(self.pages.start)..pages.end.min(self.pages.end);
        if used == self.pages || used.is_empty() {
            return;
        }
        if used.start < self.boundary {
            let head = used.start..used.end.min(self.boundary);
            let is_single = head.end - head.start == 1;
            let [first, last] = [self.pages.start, self.boundary - 1].map(|page| is_single && head.start == page);
            let kinds = [first, last, !first && !last];
            self.head = [0, 1, 2].map(|kind| self.head[kind] || kinds[kind]);
        }
        if used.end > self.boundary {
            self.first = self.first.min(used.start.max(self.boundary));
        }
        self.end = self.end.max(used.end);
    }

    /// What the uses tell.
    fn rounded(&self) -> Option<Rounded> {
        let Self { pages, boundary, head: [first, last, others], end, .. } = self;
        let has_header = *first || *last;
        let is_aligned = pages.start.is_multiple_of(ALIGNMENT);
        let used = if self.first == *boundary && !others && (has_header || !is_aligned) {
            Rounded { used: *boundary..*end, has_header }
        } else if is_aligned && *end + ALIGNMENT == pages.end {
            Rounded { used: pages.start..*end, has_header: false }
        } else {
            return None;
        };
        // It must fit wherever the mapping begins.
        let needed = used.used.end - used.used.start + ALIGNMENT - u64::from(!used.has_header);
        (needed <= pages.end - pages.start).then_some(used)
    }
}

/// The mappings of a recording within which the program rounded an address, by the number of the event that makes them.
///
/// # Errors
/// The recording cannot be read or is damaged.
pub(crate) fn rounded(path: &Path) -> Result<BTreeMap<u64, Rounded>, MemoryTraceError> {
    let mut reader = Reader::open(path)?;
    let (mut events, mut number) = (Vec::new(), 0);
    let mut uses = Uses::default();
    while reader.next_chunk(&mut events)? {
        for event in &events {
            uses.apply(number, event);
            number += 1;
        }
    }
    uses.end(&(0..u64::MAX));
    Ok(uses.found)
}

/// The mappings that exist, by first page, and what was found about those that are gone.
#[derive(Debug, Default)]
struct Uses {
    mappings: BTreeMap<u64, Mapping>,
    found: BTreeMap<u64, Rounded>,
}

impl Uses {
    fn apply(&mut self, number: u64, event: &Event) {
        match &event.op {
            Op::Touch { page, .. } => self.note(&(*page..page + 1)),
            Op::Protect { pages, .. }
            | Op::Advise { pages, .. }
            | Op::Lock { pages, .. }
            | Op::Unlock(pages)
            | Op::NameMapping { pages, .. } => self.note(pages),
            Op::Unmap(pages) => self.end(pages),
            Op::Remap { old, new, .. } => {
                self.end(old);
                self.end(new);
            }
            Op::Map(map) => {
                self.end(&map.pages);
                self.mappings.extend(Mapping::of(number, &event.op).map(|mapping| (mapping.pages.start, mapping)));
            }
            // How a mapping from before the recording was used first is not known.
            Op::MappingAtStart(_)
            | Op::PagesAtStart(_)
            | Op::LockAll(_)
            | Op::UnlockAll
            | Op::DisableThp { .. }
            | Op::Fork { .. }
            | Op::ChildEnded { .. }
            | Op::Lost { .. } => {}
        }
    }

    fn note(&mut self, pages: &Range<u64>) {
        for start in self.overlapping(pages) {
            if let Some(mapping) = self.mappings.get_mut(&start) {
                mapping.note(pages);
            }
        }
    }

    /// Pages are gone. A mapping of which a part remains was used for that.
    fn end(&mut self, pages: &Range<u64>) {
        for start in self.overlapping(pages) {
            let Some(mapping) = self.mappings.get_mut(&start) else { continue };
            if pages.start <= mapping.pages.start && mapping.pages.end <= pages.end {
                self.found.extend(mapping.rounded().map(|rounded| (mapping.number, rounded)));
                self.mappings.remove(&start);
            } else {
                mapping.note(pages);
            }
        }
    }

    /// The first pages of the mappings that overlap a range.
    fn overlapping(&self, pages: &Range<u64>) -> Vec<u64> {
        let first = self.mappings.range(..=pages.start).next_back();
        let first =
            first.filter(|(_, mapping)| mapping.pages.end > pages.start).map_or(pages.start, |(&start, _)| start);
        self.mappings.range(first..pages.end.max(first)).map(|(&start, _)| start).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MapOp;

    /// What is found about a mapping with these uses.
    fn found(pages: Range<u64>, uses: &[Range<u64>]) -> Option<Rounded> {
        let map = Op::Map(Box::new(MapOp {
            pages,
            hint_page: 0,
            kind: MappingKind::Anonymous,
            origin: Origin::Mmap,
            protection: 3,
            flags: 0x22,
            name: None,
        }));
        let mut mapping = Mapping::of(0, &map)?;
        uses.iter().for_each(|pages| mapping.note(pages));
        mapping.rounded()
    }

    fn page(page: u64) -> Range<u64> {
        page..page + 1
    }

    #[test]
    fn a_first_use_at_the_boundary_is_rounded() {
        // 16 MiB aligned by glibc: its header in the first page, another before the block.
        let mapped = 100..100 + 4096 + 512 + 1;
        let header = Rounded { used: 512..4608, has_header: true };
        assert_eq!(found(mapped.clone(), &[page(100), page(511), 512..4608]), Some(header));
        let without = Rounded { used: 512..700, has_header: false };
        assert_eq!(found(mapped.clone(), &[page(699), page(512)]), Some(without));
        assert_eq!(found(mapped.clone(), &[page(512), page(300)]), None, "used before the boundary");
        assert_eq!(found(mapped.clone(), &[page(513)]), None, "another first use");
        assert_eq!(found(mapped.clone(), std::slice::from_ref(&mapped)), None, "advice for all of it is no use");
        assert_eq!(found(mapped, &[page(512), 600..4700]), None, "no room for another place");
    }

    #[test]
    fn a_mapping_that_begins_at_a_boundary_leaves_its_last_2_mib_unused() {
        let mapped = 1024..1024 + 2048 + 512;
        let rounded = Rounded { used: 1024..3072, has_header: false };
        assert_eq!(found(mapped.clone(), &[page(1024), page(3071)]), Some(rounded));
        assert_eq!(found(mapped.clone(), &[page(1024), page(3070)]), None);
        // With a header the first boundary after it.
        let header = Rounded { used: 1536..3000, has_header: true };
        assert_eq!(found(mapped, &[page(1024), 1536..3000]), Some(header));
    }

    #[test]
    fn the_rounded_range_moves_to_the_next_boundary() {
        let places = |rounded: &Rounded, start: u64, pages: [u64; 3]| {
            let mut moves = Moves::default();
            rounded.place(&(100..5000), start, &mut moves);
            pages.map(|page| moves.page(page))
        };
        let header = Rounded { used: 512..4608, has_header: true };
        assert_eq!(places(&header, 9700, [100, 511, 512]), [9700, 9727, 9728]);
        assert_eq!(places(&header, 9728, [100, 511, 512]), [9728, 10239, 10240]);
        let without = Rounded { used: 512..4608, has_header: false };
        assert_eq!(places(&without, 9728, [512, 513, 4607]), [9728, 9729, 13823]);
    }
}
