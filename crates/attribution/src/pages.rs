//! What has happened to each page of a process.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::functions::FunctionId;

/// The call that removed a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Removal {
    /// `madvise` with this advice, while the mapping stayed.
    Advice(i32),
    /// `munmap`, or a mapping over it.
    Unmapped,
    /// `brk` below it.
    HeapShrunk,
    /// `mremap` of its mapping.
    Moved,
}

/// A removal, and who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Removed {
    /// How.
    pub how: Removal,
    /// The function that made the call.
    pub by: FunctionId,
}

/// The history of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// It has never been present.
    Never,
    /// It is present.
    Present,
    /// It was present until a call removed it.
    Removed {
        /// The call.
        removed: Removed,
        /// Whether it was part of a huge page.
        was_huge: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum State {
    Present { is_huge: bool },
    Removed { removed: Removed, was_huge: bool },
}

/// All pages that were ever present, by number.
#[derive(Debug, Default)]
pub struct Pages {
    states: BTreeMap<u64, State>,
}

impl Pages {
    /// What has happened to a page.
    pub fn history(&self, page: u64) -> History {
        match self.states.get(&page) {
            None => History::Never,
            Some(State::Present { .. }) => History::Present,
            Some(&State::Removed { removed, was_huge }) => History::Removed { removed, was_huge },
        }
    }

    /// Whether a page is present.
    pub fn is_present(&self, page: u64) -> bool {
        matches!(self.states.get(&page), Some(State::Present { .. }))
    }

    /// Pages became present.
    pub fn install(&mut self, pages: Range<u64>, is_huge: bool) {
        for page in pages {
            self.states.insert(page, State::Present { is_huge });
        }
    }

    /// A call removed pages.
    pub fn remove(&mut self, pages: Range<u64>, removed: Removed) {
        for (_, state) in self.states.range_mut(pages) {
            if let State::Present { is_huge } = *state {
                *state = State::Removed { removed, was_huge: is_huge };
            }
        }
    }

    /// `mremap` moved a mapping: its pages are elsewhere.
    pub fn relocate(&mut self, from: Range<u64>, to: u64, by: FunctionId) {
        let moved: Vec<(u64, State)> = self.states.range(from.clone()).map(|(&page, &state)| (page, state)).collect();
        self.remove(from.clone(), Removed { how: Removal::Moved, by });
        for (page, state) in moved {
            self.states.insert(page - from.start + to, state);
        }
    }
}
