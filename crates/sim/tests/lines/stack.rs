//! The oracle: an LRU stack as a list, searched from its top, and every access with its distance.

use std::collections::HashSet;

use hksim_sim::lines::{Accessor, ByPattern, Misses};
use hksim_sim::tlb::PageSize;

/// An access that is not an immediate repetition.
#[derive(Clone, Copy)]
struct Access {
    accessor: Accessor,
    is_sequential: bool,
    size: PageSize,
    /// Distinct lines since the line was last accessed, itself included; `u64::MAX` for its first access.
    distance: u64,
}

/// The stack, its top last, and the accesses so far.
#[derive(Default)]
pub struct Stack {
    lines: Vec<u64>,
    known: HashSet<u64>,
    previous: [Option<u64>; Accessor::ALL.len()],
    accesses: Vec<Access>,
}

impl Stack {
    pub fn access(&mut self, line: u64, accessor: Accessor, size: PageSize) {
        let latest = self.lines.last().copied();
        if latest == Some(line) {
            return;
        }
        let is_known = !self.known.insert(line);
        let found = is_known.then(|| self.lines.iter().rposition(|&other| other == line)).flatten();
        let distance = found.map_or(u64::MAX, |at| (self.lines.len() - at) as u64);
        found.map(|at| self.lines.remove(at));
        self.lines.push(line);
        let previous = self.previous[accessor as usize].replace(line);
        let is_sequential = [previous, latest].into_iter().flatten().any(|before| before + 1 == line);
        self.accesses.push(Access { accessor, is_sequential, size, distance });
    }

    /// Number of accesses.
    pub fn accesses(&self) -> usize {
        self.accesses.len()
    }

    /// Accesses that a cache misses.
    pub fn misses(&self, lines: u64) -> usize {
        self.accesses.iter().filter(|access| access.distance > lines).count()
    }

    /// The accesses of one accessor.
    pub fn of(&self, accessor: Accessor) -> OfAccessor {
        let accesses: Vec<Access> = self.accesses.iter().copied().filter(|by| by.accessor == accessor).collect();
        OfAccessor { accesses: by_pattern(accesses.iter()), list: accesses }
    }
}

/// The accesses of one accessor.
pub struct OfAccessor {
    pub accesses: ByPattern,
    list: Vec<Access>,
}

impl OfAccessor {
    /// Those that a cache misses.
    pub fn misses(&self, lines: u64) -> Misses {
        let of = |size: PageSize| {
            by_pattern(self.list.iter().filter(|access| access.size == size && access.distance > lines))
        };
        Misses { small_pages: of(PageSize::Base), huge_pages: of(PageSize::Huge) }
    }
}

fn by_pattern<'a>(accesses: impl Iterator<Item = &'a Access>) -> ByPattern {
    let mut found = ByPattern::default();
    for access in accesses {
        *(if access.is_sequential { &mut found.sequential } else { &mut found.isolated }) += 1;
    }
    found
}
