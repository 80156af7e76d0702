//! The oracle: an LRU stack as a list, searched from its top, and every access with its distance.

use std::collections::HashSet;
use std::ops::Range;

use hksim_sim::lines::{Accessor, ByPattern, Misses};
use hksim_sim::tlb::PageSize;

/// An access that is not an immediate repetition.
#[derive(Clone, Copy)]
struct Access {
    accessor: Accessor,
    /// Whether the line follows one that was accessed before.
    is_sequential: bool,
    /// Lines of the run that it continues, up to the end of the range that it is part of.
    run: u64,
    size: PageSize,
    /// Distinct lines since the line was last accessed, itself included; `u64::MAX` for its first access.
    distance: u64,
}

/// The stack, its top last, and the accesses so far.
#[derive(Default)]
pub struct Stack {
    lines: Vec<u64>,
    known: HashSet<u64>,
    /// The line that each accessor accessed last, and how many lines of its run there are.
    previous: [Option<(u64, u64)>; Accessor::ALL.len()],
    /// The same of all.
    latest: Option<(u64, u64)>,
    accesses: Vec<Access>,
}

impl Stack {
    /// Accesses lines one after another, in pages of the sizes that `size` gives.
    pub fn access(&mut self, lines: Range<u64>, accessor: Accessor, size: impl Fn(u64) -> PageSize) {
        let start = self.accesses.len();
        lines.for_each(|line| self.access_line(line, accessor, size(line)));
        let run = self.accesses.last().map_or(0, |access| access.run);
        self.accesses[start..].iter_mut().for_each(|access| access.run = run);
    }

    fn access_line(&mut self, line: u64, accessor: Accessor, size: PageSize) {
        let latest = self.lines.last().copied();
        if latest == Some(line) {
            return;
        }
        let is_known = !self.known.insert(line);
        let found = is_known.then(|| self.lines.iter().rposition(|&other| other == line)).flatten();
        let distance = found.map_or(u64::MAX, |at| (self.lines.len() - at) as u64);
        found.map(|at| self.lines.remove(at));
        self.lines.push(line);
        let follows = |(before, _): &(u64, u64)| before + 1 == line;
        let latest = self.latest.filter(follows);
        let followed = self.previous[accessor as usize].filter(follows).or(latest);
        let run = followed.map_or(1, |(_, run)| run + 1);
        self.previous[accessor as usize] = Some((line, run));
        self.latest = Some((line, run));
        self.accesses.push(Access { accessor, is_sequential: followed.is_some(), run, size, distance });
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
        *match access {
            Access { is_sequential: false, .. } => &mut found.isolated,
            Access { run: ..=128, .. } => &mut found.short,
            Access { run: 129.., .. } => &mut found.sequential,
        } += 1;
    }
    found
}
