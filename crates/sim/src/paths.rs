//! How often an allocator runs each path of its code.
//!
//! The allocator announces its paths to its memory ([`Memory::path`](hksim_policy::Memory::path)), which counts them if
//! its observer wants that ([`COUNTS_PATHS`](crate::observer::MemoryObserver::COUNTS_PATHS)); otherwise the announcements
//! are compiled away. Page operations belong to a paging policy, not to the placement: the observer of each design
//! counts its own.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Index, Range, Sub};

use hksim_policy::Path;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::observer::{Accesses, Cause};
use crate::tlb::PageSize;
use crate::translations::{Change, TranslationObserver, Translations};

/// Counts of all paths. As JSON, an object with the names and counts of the paths that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCounts([u64; Path::COUNT]);

impl Default for PathCounts {
    fn default() -> PathCounts {
        PathCounts([0; Path::COUNT])
    }
}

impl Index<Path> for PathCounts {
    type Output = u64;

    fn index(&self, path: Path) -> &u64 {
        &self.0[path as usize]
    }
}

impl PathCounts {
    /// Each path with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Path, u64)> + '_ {
        Path::ALL.iter().map(|&path| (path, self[path]))
    }

    /// Adds runs of a path.
    pub fn add(&mut self, path: Path, times: u64) {
        self.0[path as usize] += times;
    }

    /// The sum of two counts.
    #[must_use]
    pub fn plus(mut self, other: &PathCounts) -> PathCounts {
        other.iter().for_each(|(path, times)| self.add(path, times));
        self
    }
}

/// The paths that ran after an earlier count of the same run.
impl Sub<&PathCounts> for PathCounts {
    type Output = PathCounts;

    fn sub(mut self, earlier: &PathCounts) -> PathCounts {
        self.0.iter_mut().zip(earlier.0).for_each(|(count, earlier)| *count -= earlier);
        self
    }
}

impl Serialize for PathCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().filter(|&(_, count)| count > 0).map(|(path, count)| (path.name(), count)))
    }
}

impl<'de> Deserialize<'de> for PathCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PathCounts, D::Error> {
        let mut counts = PathCounts::default();
        for (name, count) in BTreeMap::<String, u64>::deserialize(deserializer)? {
            let path = Path::named(&name).ok_or_else(|| D::Error::custom(format!("`{name}` is no path")))?;
            counts.0[path as usize] = count;
        }
        Ok(counts)
    }
}

/// Counts that a shared memory changes.
pub(crate) struct PathCells([Cell<u64>; Path::COUNT]);

impl Default for PathCells {
    fn default() -> PathCells {
        PathCells([const { Cell::new(0) }; Path::COUNT])
    }
}

impl PathCells {
    #[inline(always)]
    pub(crate) fn add(&self, path: Path, times: u64) {
        let count = &self.0[path as usize];
        count.set(count.get() + times);
    }

    pub(crate) fn get(&self) -> PathCounts {
        PathCounts(std::array::from_fn(|number| self.0[number].get()))
    }
}

/// The accesses that may change a page, and nothing of TLBs or cache lines: for runs whose paths are counted.
#[derive(Clone)]
pub struct OnlyPaths;

impl Translations for OnlyPaths {
    const USED: bool = false;
    const ACCESSES: Accesses = Accesses::Changing;

    fn access(&mut self, _page: u64, _size: PageSize, _cause: Cause) {}

    fn changed(&mut self, _pages: &Range<u64>, _by: Change) {}
}

/// Accounting of a run whose paths are counted.
pub type PathObserver = TranslationObserver<OnlyPaths>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_names_the_paths_that_ran() {
        let mut counts = PathCounts::default();
        counts.add(Path::Free, 3);
        let text = serde_json::to_string(&counts).expect("a map of numbers");
        assert_eq!(text, r#"{"free":3}"#);
        assert_eq!(serde_json::from_str::<PathCounts>(&text).expect("what was written"), counts);
        assert!(serde_json::from_str::<PathCounts>(r#"{"fre":3}"#).is_err());
    }

    #[test]
    fn counts_add_up() {
        let (mut one, mut other) = (PathCounts::default(), PathCounts::default());
        one.add(Path::Carve, 2);
        other.add(Path::Carve, 5);
        assert_eq!((one.clone().plus(&other) - &one)[Path::Carve], 5);
    }
}
