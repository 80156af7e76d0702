//! The mappings of a process, and which of them were made for a single block.

use std::collections::BTreeMap;
use std::ops::Range;

use hksim_policy::PAGE_BYTES;
use hksim_trace::event::ObjectId;

use crate::functions::FunctionId;

/// A mapping, in order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingId(usize);

/// Where a mapping comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The heap of brk, which this function grew.
    Heap(FunctionId),
    /// `mmap` in this function.
    Mmap(FunctionId),
    /// Memory without a file from before the first event.
    Earlier,
    /// Data of this file: an index of [`crate::functions::Functions::file`].
    Data(u32),
}

impl Source {
    /// The source with the function of the same name.
    pub(crate) fn renamed(self, names: &BTreeMap<FunctionId, FunctionId>) -> Source {
        match self {
            Source::Heap(function) => Source::Heap(function.renamed(names)),
            Source::Mmap(function) => Source::Mmap(function.renamed(names)),
            Source::Earlier | Source::Data(_) => self,
        }
    }
}

/// The blocks that were ever placed in a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    /// One, which takes up nearly all of it.
    Only(ObjectId),
    Several,
}

#[derive(Debug)]
struct Info {
    source: Source,
    /// The event in which it was made; `None` for those from before the first event.
    event: Option<u64>,
    content: Content,
    was_unmapped: bool,
}

/// Mappings that were made for a block each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerBlock {
    /// How many.
    pub mappings: u64,
    /// How many of them were unmapped again.
    pub unmapped: u64,
}

/// All mappings.
#[derive(Debug, Default)]
pub struct Mappings {
    /// By first address: end and mapping.
    mapped: BTreeMap<u64, (u64, MappingId)>,
    infos: Vec<Info>,
}

impl Mappings {
    /// A new mapping, in place of what was there.
    pub fn map(&mut self, range: Range<u64>, source: Source, event: Option<u64>) {
        self.unmap(range.clone());
        let id = MappingId(self.infos.len());
        self.infos.push(Info { source, event, content: Content::Nothing, was_unmapped: false });
        self.mapped.insert(range.start, (range.end, id));
    }

    /// Removes what is mapped in a range.
    pub fn unmap(&mut self, range: Range<u64>) {
        for (start, end, id) in self.overlapping(&range) {
            self.mapped.remove(&start);
            if start < range.start {
                self.mapped.insert(start, (range.start, id));
            }
            if end > range.end {
                self.mapped.insert(range.end, (end, id));
            }
            self.infos[id.0].was_unmapped |= range.start <= start && end <= range.end;
        }
    }

    /// `mremap`: what was mapped at the start of `from` is now in `to`.
    pub fn relocate(&mut self, from: Range<u64>, to: Range<u64>) {
        let Some((_, id)) = self.at(from.start) else { return };
        let was_unmapped = self.infos[id.0].was_unmapped;
        self.unmap(from);
        self.unmap(to.clone());
        self.infos[id.0].was_unmapped = was_unmapped;
        self.mapped.insert(to.start, (to.end, id));
    }

    fn overlapping(&self, range: &Range<u64>) -> Vec<(u64, u64, MappingId)> {
        let before = self.mapped.range(..range.start).next_back().filter(|(_, (end, _))| *end > range.start);
        let within = self.mapped.range(range.start..range.end.max(range.start));
        before.into_iter().chain(within).map(|(&start, &(end, id))| (start, end, id)).collect()
    }

    /// What is mapped at an address: its range, as far as it is one piece, and the mapping.
    pub fn at(&self, address: u64) -> Option<(Range<u64>, MappingId)> {
        let (&start, &(end, id)) = self.mapped.range(..=address).next_back()?;
        (address < end).then_some((start..end, id))
    }

    /// Replaces functions by those of the same name.
    pub(crate) fn rename(&mut self, names: &BTreeMap<FunctionId, FunctionId>) {
        self.infos.iter_mut().for_each(|info| info.source = info.source.renamed(names));
    }

    /// Where a mapping comes from.
    pub fn source(&self, id: MappingId) -> Source {
        self.infos[id.0].source
    }

    /// A block was placed by an event.
    pub fn placed(&mut self, block: Range<u64>, object: ObjectId, event: u64) {
        let Some((range, id)) = self.at(block.start) else { return };
        let info = &mut self.infos[id.0];
        let slack = (range.end - range.start).saturating_sub(block.end - block.start);
        // A header and the rest of a page, or what a coarser granularity of large mappings wastes.
        let fits = slack <= (2 * PAGE_BYTES).max((range.end - range.start) / 8);
        info.content = match info.content {
            Content::Nothing if info.event == Some(event) && fits => Content::Only(object),
            Content::Only(only) if only == object => Content::Only(only),
            _ => Content::Several,
        };
    }

    /// Whether a mapping was made for a block, and has had no other.
    pub fn is_per_block(&self, id: MappingId) -> bool {
        matches!(self.infos[id.0].content, Content::Only(_))
    }

    /// The mappings for a block each, by the function that made them.
    pub fn per_block(&self) -> BTreeMap<FunctionId, PerBlock> {
        let mut found: BTreeMap<FunctionId, PerBlock> = BTreeMap::new();
        for info in &self.infos {
            if let (Source::Mmap(function), Content::Only(_)) = (info.source, info.content) {
                let counts = found.entry(function).or_default();
                counts.mappings += 1;
                counts.unmapped += u64::from(info.was_unmapped);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Source = Source::Mmap(FunctionId(3));

    #[test]
    fn a_mapping_with_a_second_block_is_not_for_one() {
        let mut mappings = Mappings::default();
        mappings.map(0x1000..0x11000, BY, Some(7));
        mappings.placed(0x1010..0x10000, ObjectId(1), 7);
        let (_, id) = mappings.at(0x2000).expect("mapped");
        assert!(mappings.is_per_block(id));
        mappings.placed(0x1010..0x10000, ObjectId(2), 9);
        assert!(!mappings.is_per_block(id), "reused for another block");
        mappings.map(0x20000..0x30000, BY, Some(8));
        mappings.placed(0x20000..0x24000, ObjectId(3), 8);
        assert!(!mappings.is_per_block(mappings.at(0x20000).expect("mapped").1), "much of it is left");
    }

    #[test]
    fn mappings_are_divided_moved_and_counted() {
        let mut mappings = Mappings::default();
        mappings.map(0x1000..0x9000, BY, Some(1));
        mappings.unmap(0x3000..0x5000);
        assert_eq!(mappings.at(0x2fff).map(|(range, _)| range), Some(0x1000..0x3000));
        assert_eq!(mappings.at(0x3000), None);
        assert_eq!(mappings.at(0x8000).map(|(range, _)| range), Some(0x5000..0x9000));
        mappings.map(0x10000..0x20000, BY, Some(2));
        mappings.placed(0x10000..0x20000, ObjectId(0), 2);
        mappings.relocate(0x10000..0x20000, 0x40000..0x60000);
        assert_eq!(mappings.at(0x10000), None);
        mappings.placed(0x40000..0x60000, ObjectId(0), 3);
        let per_block = |mappings: &Mappings| mappings.per_block()[&FunctionId(3)];
        assert_eq!(per_block(&mappings), PerBlock { mappings: 1, unmapped: 0 });
        mappings.unmap(0x40000..0x60000);
        assert_eq!(per_block(&mappings), PerBlock { mappings: 1, unmapped: 1 });
    }
}
