//! Mappings that allocators trim for alignment: they map more than they need, and unmap both ends so that an aligned
//! range is left. At another address they keep another part of the mapping, but the same range of the aligned memory.
//!
//! Such an allocator maps the size and the alignment (glibc's arenas, mimalloc), or one page less (jemalloc).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use crate::error::MemoryTraceError;
use crate::event::{Event, MappingKind, Op, Origin};
use crate::reader::Reader;
use crate::relocate::Moves;
use crate::rounded::{Rounded, rounded};

/// A mapping that was trimmed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trim {
    /// The pages that were left.
    kept: Range<u64>,
    /// Their alignment, in pages.
    alignment: u64,
}

impl Trim {
    /// The trim of a mapping whose range `kept` was left, if that can be due to alignment.
    fn of(mapped: &Range<u64>, kept: Range<u64>) -> Option<Self> {
        let unmapped = (mapped.end - mapped.start).checked_sub(kept.end - kept.start)?;
        let is_alignment =
            |&pages: &u64| pages > 1 && pages.is_power_of_two() && kept.start.is_multiple_of(pages) && !kept.is_empty();
        // Only the aligned range that begins first is left.
        let is_first = |&pages: &u64| kept.start - mapped.start < pages;
        let alignment = [unmapped, unmapped + 1].into_iter().find(|pages| is_alignment(pages) && is_first(pages))?;
        Some(Self { kept, alignment })
    }

    /// The pages that are left if the mapping begins at `start`.
    fn kept_at(&self, start: u64) -> Range<u64> {
        let first = start.next_multiple_of(self.alignment);
        first..first + (self.kept.end - self.kept.start)
    }
}

/// What an event has to do with memory that the program aligns.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// It makes a mapping within which the program rounds an address.
    Round(Rounded),
    /// It makes the mapping.
    Map(Trim),
    /// It unmaps an end. `map` is the number of the event that makes the mapping.
    Unmap {
        /// Number of the event that makes the mapping.
        map: u64,
    },
}

/// Mappings that the program aligns. At another address, the ends that are unmapped have other sizes, and rounded addresses
/// are elsewhere in the mapping.
pub(crate) struct Aligned {
    /// By number of the event.
    parts: BTreeMap<u64, Part>,
    /// What is still to be unmapped, by number of the event that made the mapping.
    ends: BTreeMap<u64, [Range<u64>; 2]>,
}

impl Aligned {
    /// Those of a recording.
    ///
    /// # Errors
    /// The recording cannot be read or is damaged.
    pub fn of(path: &Path) -> Result<Self, MemoryTraceError> {
        let rounded = rounded(path)?.into_iter().map(|(number, rounded)| (number, Part::Round(rounded)));
        let mut parts: BTreeMap<u64, Part> = rounded.collect();
        // What was trimmed is known better.
        parts.extend(trims(path)?);
        Ok(Self { parts, ends: BTreeMap::new() })
    }

    /// Mappings that the program aligns, by trimming them or by rounding an address within.
    pub fn mappings(&self) -> u64 {
        self.parts.values().filter(|part| !matches!(part, Part::Unmap { .. })).count() as u64
    }

    /// Moves the addresses of an event. A mapping or move goes to `start`.
    pub fn apply(&mut self, number: u64, mut event: Event, start: u64, moves: &mut Moves, into: &mut Vec<Event>) {
        match (self.parts.remove(&number), &mut event.op) {
            (Some(Part::Map(trim)), Op::Map(map)) => {
                let mapped = start..start + (map.pages.end - map.pages.start);
                let kept = trim.kept_at(start);
                moves.remove(&map.pages);
                moves.place(&trim.kept, kept.start);
                map.pages = mapped.clone();
                self.ends.insert(number, [mapped.start..kept.start, kept.end..mapped.end]);
                into.push(event);
            }
            (Some(Part::Round(rounded)), Op::Map(map)) => {
                rounded.place(&map.pages, start, moves);
                map.pages = start..start + (map.pages.end - map.pages.start);
                into.push(event);
            }
            (Some(Part::Unmap { map }), _) => {
                // The first of the recorded calls stands for both ends.
                let ends = self.ends.remove(&map).into_iter().flatten().filter(|pages| !pages.is_empty());
                into.extend(ends.map(|pages| Event { op: Op::Unmap(pages), ..event.clone() }));
            }
            _ => {
                moves.apply(&mut event, start);
                into.push(event);
            }
        }
    }
}

/// A thread's last mapping, as long as the thread only trims it.
struct Candidate {
    number: u64,
    mapped: Range<u64>,
    kept: Range<u64>,
    unmaps: Vec<u64>,
}

/// The trims of a recording, by the numbers of their events.
fn trims(path: &Path) -> Result<BTreeMap<u64, Part>, MemoryTraceError> {
    let mut reader = Reader::open(path)?;
    let (mut events, mut number) = (Vec::new(), 0);
    let mut candidates: BTreeMap<u32, Candidate> = BTreeMap::new();
    let mut parts = BTreeMap::new();
    while reader.next_chunk(&mut events)? {
        for event in &events {
            let is_trimmed_further = match (&event.op, candidates.get_mut(&event.thread)) {
                (Op::Unmap(pages), Some(candidate)) => candidate.unmap(number, pages),
                _ => false,
            };
            if !is_trimmed_further {
                if let Some(candidate) = candidates.remove(&event.thread) {
                    candidate.finish(&mut parts);
                }
                if let Some(candidate) = Candidate::of(number, &event.op) {
                    candidates.insert(event.thread, candidate);
                }
            }
            number += 1;
        }
    }
    candidates.into_values().for_each(|candidate| candidate.finish(&mut parts));
    Ok(parts)
}

impl Candidate {
    fn of(number: u64, op: &Op) -> Option<Self> {
        match op {
            Op::Map(map) if map.origin == Origin::Mmap && map.hint_page == 0 && map.kind == MappingKind::Anonymous => {
                Some(Self { number, mapped: map.pages.clone(), kept: map.pages.clone(), unmaps: Vec::new() })
            }
            _ => None,
        }
    }

    /// Unmaps an end. Returns false if these pages are not an end of what is left.
    fn unmap(&mut self, number: u64, pages: &Range<u64>) -> bool {
        let (is_head, is_tail) = (pages.start == self.kept.start, pages.end == self.kept.end);
        match (is_head, is_tail) {
            (true, false) if pages.end < self.kept.end => self.kept.start = pages.end,
            (false, true) if pages.start > self.kept.start => self.kept.end = pages.start,
            _ => return false,
        }
        self.unmaps.push(number);
        true
    }

    fn finish(self, parts: &mut BTreeMap<u64, Part>) {
        // Without an unmap there is no trim; its size would not be an alignment.
        if let Some(trim) = Trim::of(&self.mapped, self.kept).filter(|_| !self.unmaps.is_empty()) {
            parts.insert(self.number, Part::Map(trim));
            parts.extend(self.unmaps.into_iter().map(|unmap| (unmap, Part::Unmap { map: self.number })));
        }
    }
}

#[cfg(test)]
mod tests {
    use hksim_call_sites::SiteId;

    use super::*;
    use crate::event::{MapOp, TouchKind};

    #[test]
    fn the_alignment_follows_from_what_was_unmapped() {
        let arena = 16 << 8;
        // glibc: twice the arena's size; the head, the tail or both are unmapped.
        let trim = Trim::of(&(arena - 100..3 * arena - 100), arena..2 * arena).unwrap();
        assert_eq!(trim.alignment, arena);
        assert_eq!(trim.kept_at(3 * arena), 3 * arena..4 * arena);
        assert_eq!(trim.kept_at(3 * arena + 1), 4 * arena..5 * arena);
        assert!(Trim::of(&(arena..3 * arena), arena..2 * arena).is_some());
        // jemalloc: one page less than the size and the alignment.
        assert_eq!(Trim::of(&(1..1 + 600 + 511), 512..512 + 600).unwrap().alignment, 512);
        // Not the first aligned range, not aligned, not a power of two.
        assert_eq!(Trim::of(&(0..1024), 512..1024), None);
        assert_eq!(Trim::of(&(100..1124), 400..912), None);
        assert_eq!(Trim::of(&(0..1000), 0..300), None);
    }

    #[test]
    fn a_trimmed_mapping_is_trimmed_again() {
        // 128 MiB are mapped, and the aligned 64 MiB are left.
        let (arena, pages) = (1 << 14, 100 + (1 << 14)..100 + (3 << 14));
        let map = MapOp {
            pages: pages.clone(),
            hint_page: 0,
            kind: MappingKind::Anonymous,
            origin: Origin::Mmap,
            protection: 0,
            flags: 0x22,
            name: None,
        };
        let touch = Op::Touch { page: 2 * arena + 5, kind: TouchKind::Write };
        let [head, tail] = [pages.start..2 * arena, 3 * arena..pages.end];
        let ops = [Op::Map(Box::new(map)), Op::Unmap(head), Op::Unmap(tail), touch];
        let trim = Trim { kept: 2 * arena..3 * arena, alignment: arena };
        let rewritten = |start: u64| {
            let unmap = |number| (number, Part::Unmap { map: 0 });
            let parts = BTreeMap::from([(0, Part::Map(trim.clone())), unmap(1), unmap(2)]);
            let mut aligned = Aligned { parts, ends: BTreeMap::new() };
            let (mut moves, mut events) = (Moves::default(), Vec::new());
            for (number, op) in ops.iter().enumerate() {
                let event = Event { time_ns: 0, thread: 0, op: op.clone(), site: SiteId::UNKNOWN };
                aligned.apply(number as u64, event, start, &mut moves, &mut events);
            }
            let ops = events.into_iter().map(|event| match event.op {
                Op::Map(map) => (map.pages.start, map.pages.end),
                Op::Unmap(pages) => (pages.start, pages.end),
                Op::Touch { page, .. } => (page, page + 1),
                other => panic!("{other:?}"),
            });
            ops.collect::<Vec<_>>()
        };
        let touched = 6 * arena + 5;
        // Ends of other sizes.
        let start = 5 * arena + 7;
        let end = start + 2 * arena;
        let ends = [(start, 6 * arena), (7 * arena, end)];
        assert_eq!(rewritten(start), [(start, end), ends[0], ends[1], (touched, touched + 1)]);
        // Aligned: one end.
        let start = 6 * arena;
        assert_eq!(rewritten(start), [(start, 8 * arena), (7 * arena, 8 * arena), (touched, touched + 1)]);
    }
}
