//! What is counted of accesses to cache lines.

use serde::{Deserialize, Serialize};

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
    /// To the line after the accessor's previous one, or after the line that was accessed last: the processor fetches such
    /// lines ahead.
    pub sequential: u64,
    /// To any other line.
    pub isolated: u64,
}

impl ByPattern {
    /// Their sum.
    pub fn total(self) -> u64 {
        self.sequential + self.isolated
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
    /// Distinct lines that anybody but the kernel accessed, an estimate above a few thousand.
    pub footprint_lines: u64,
}

impl LineCounts {
    /// The counts of an accessor.
    pub fn of(&self, accessor: Accessor) -> Option<&AccessorLines> {
        self.accessors.iter().find(|lines| lines.accessor == accessor)
    }
}
