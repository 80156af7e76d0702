//! What is counted of accesses to cache lines.

use serde::{Deserialize, Serialize};

use super::LINE_BYTES;
use crate::observer::Cause;

/// Who accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accessor {
    /// The program, in its blocks.
    Program,
    /// The allocator, in blocks: calloc's zeros, realloc's copies, prefaulting.
    Filling,
    /// The allocator's own data: links, headers, metadata, front caches.
    Bookkeeping,
    /// The kernel, which zeroes the pages that it installs. The time of that is part of the fault's.
    Kernel,
}

impl Accessor {
    /// All of them, in their order.
    pub const ALL: [Accessor; 4] = [Accessor::Program, Accessor::Filling, Accessor::Bookkeeping, Accessor::Kernel];

    /// Who makes accesses of this cause.
    pub fn of(cause: Cause) -> Accessor {
        match cause {
            Cause::Application => Accessor::Program,
            Cause::Zeroing | Cause::Copy | Cause::Prefault => Accessor::Filling,
            Cause::Header | Cause::FreeList | Cause::Metadata => Accessor::Bookkeeping,
        }
    }
}

/// Accesses to lines, by how the processor finds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByPattern {
    /// In a long run of lines that follow each other, whoever accesses them: the processor fetches such lines ahead.
    pub sequential: u64,
    /// In a run that is short so far, after its first line.
    pub short: u64,
    /// To a line that follows neither the accessor's previous one nor the line that was accessed last: the first one of a run.
    pub isolated: u64,
}

/// How the processor finds a line: the fields of [`ByPattern`], in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Sequential,
    Short,
    Isolated,
}

impl Pattern {
    pub(super) const COUNT: usize = 3;
}

impl ByPattern {
    pub(super) fn of([sequential, short, isolated]: [u64; Pattern::COUNT]) -> ByPattern {
        ByPattern { sequential, short, isolated }
    }

    /// Their sum.
    pub fn total(self) -> u64 {
        self.sequential + self.short + self.isolated
    }

    /// Without those of `part`. Misses are estimates, so a part may exceed the whole.
    fn minus(self, part: ByPattern) -> ByPattern {
        ByPattern {
            sequential: self.sequential.saturating_sub(part.sequential),
            short: self.short.saturating_sub(part.short),
            isolated: self.isolated.saturating_sub(part.isolated),
        }
    }
}

/// Misses of a cache, by pattern and by the size of the page that maps the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misses {
    /// In small pages.
    pub small_pages: ByPattern,
    /// In huge pages.
    pub huge_pages: ByPattern,
}

impl Misses {
    /// All of them, by pattern.
    pub fn by_pattern(self) -> ByPattern {
        let Misses { small_pages, huge_pages } = self;
        ByPattern {
            sequential: small_pages.sequential + huge_pages.sequential,
            short: small_pages.short + huge_pages.short,
            isolated: small_pages.isolated + huge_pages.isolated,
        }
    }
}

/// The lines of one accessor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessorLines {
    /// Who.
    pub accessor: Accessor,
    /// Accesses. Of several in a row to one line, only the first counts, and a range of bytes counts once for each of its
    /// lines.
    pub accesses: ByPattern,
    /// Misses of a fully associative cache with LRU replacement, for each of [`LineCounts::cache_lines`]. Sampled, and
    /// scaled to all lines.
    pub misses: Vec<Misses>,
}

/// Accesses to cache lines of 64 bytes, and misses by the size of the cache, which all accessors share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCounts {
    /// Sizes of caches in lines, ascending.
    pub cache_lines: Vec<u64>,
    /// For each accessor, in the order of [`Accessor::ALL`].
    pub accessors: Vec<AccessorLines>,
    /// Distinct lines that anybody but the kernel accessed, an estimate.
    pub footprint_lines: u64,
    /// Faults by what was accessed between them.
    #[serde(default)]
    pub faults: BetweenFaults,
}

/// Faults outside huge pages that came later than in the event of the fault before, by the lines that were accessed since then.
/// What the kernel needs for a fault has left the caches if these were many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BetweenFaults {
    /// Their number.
    pub faults: u64,
    /// For each of [`LineCounts::cache_lines`], how many came after accesses to more lines than that.
    pub misses: Vec<u64>,
}

impl LineCounts {
    /// The counts of an accessor.
    pub fn of(&self, accessor: Accessor) -> Option<&AccessorLines> {
        self.accessors.iter().find(|lines| lines.accessor == accessor)
    }
}

/// Accesses whose lines are accessed again after a similar number of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// Who.
    pub accessor: Accessor,
    /// Whether huge pages map the lines.
    pub is_huge: bool,
    /// Distinct lines from one access to the next of the same line, about.
    pub lines: u64,
    /// The accesses.
    pub accesses: ByPattern,
}

impl LineCounts {
    /// The faults of [`BetweenFaults`]: bytes of distinct lines that were accessed since the fault before, about, and the
    /// number of faults.
    pub fn between_faults(&self) -> Vec<(u64, u64)> {
        let BetweenFaults { faults, misses } = &self.faults;
        let mut left = *faults;
        let mut below = self.cache_lines.first().map_or(0, |smallest| smallest / 4);
        let mut between = Vec::new();
        for (&lines, &missed) in self.cache_lines.iter().zip(misses) {
            between.push((((below as f64) * (lines as f64)).sqrt() as u64 * LINE_BYTES, left.saturating_sub(missed)));
            (left, below) = (left.min(missed), lines);
        }
        between.push((below * LINE_BYTES, left));
        between.retain(|&(_, faults)| faults > 0);
        between
    }

    /// All accesses by how soon their line is accessed again: for each accessor and page size, those that hit the
    /// smallest cache, those that the first cache misses and the second one hits, and so on; last, those that all miss.
    /// The page size of the first of these is not known; they count as in small pages.
    pub fn reuses(&self) -> Vec<Reuse> {
        let mut reuses = Vec::new();
        for AccessorLines { accessor, accesses, misses } in &self.accessors {
            let (Some(&smallest), Some(first)) = (self.cache_lines.first(), misses.first()) else { continue };
            let reuse = |is_huge, lines, accesses| Reuse { accessor: *accessor, is_huge, lines, accesses };
            reuses.push(reuse(false, smallest / 2, accesses.minus(first.by_pattern())));
            for (size, missed) in misses.iter().enumerate() {
                let missed_next = misses.get(size + 1).copied().unwrap_or_default();
                let lines = self.cache_lines[size];
                let next = self.cache_lines.get(size + 1).copied().unwrap_or(lines);
                let between = ((lines as f64) * (next as f64)).sqrt() as u64;
                reuses.push(reuse(false, between, missed.small_pages.minus(missed_next.small_pages)));
                reuses.push(reuse(true, between, missed.huge_pages.minus(missed_next.huge_pages)));
            }
        }
        reuses.retain(|reuse| reuse.accesses.total() > 0);
        reuses
    }
}
