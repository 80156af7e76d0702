//! Refaults: installs of memory that the process had before and returned to the kernel.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::outcome::{Install, InstallKind};

/// Histogram of refaults: installs of memory that the process had before. The kernel hands out the memory first that it got
/// last. So each refault is classified by how much memory was returned after the memory that it takes, and taken again
/// since: it passed through the caches in between. The classes are less than 8 MiB, 8 to 16 MiB, and so on by doubling,
/// up to 128 MiB and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refaults([u64; Refaults::NUMBER]);

/// One bucket of [`Refaults`] in JSON. Empty buckets are omitted.
#[derive(Serialize, Deserialize)]
struct RefaultBucket {
    /// Lower bound of the returned memory.
    returned_bytes_min: u64,
    /// Number of refaults.
    installs: u64,
}

impl Serialize for Refaults {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let filled = self.0.iter().enumerate().filter(|&(_, &installs)| installs > 0);
        let bucket = |(class, &installs)| RefaultBucket { returned_bytes_min: Refaults::bytes_min(class), installs };
        serializer.collect_seq(filled.map(bucket))
    }
}

impl<'de> Deserialize<'de> for Refaults {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut refaults = Refaults::default();
        for RefaultBucket { returned_bytes_min, installs } in Vec::deserialize(deserializer)? {
            let class = (0..Refaults::NUMBER).find(|&class| Refaults::bytes_min(class) == returned_bytes_min);
            let class =
                class.ok_or_else(|| D::Error::custom(format!("{returned_bytes_min} is not a bound of refaults")))?;
            refaults.0[class] = installs;
        }
        Ok(refaults)
    }
}

impl Refaults {
    const NUMBER: usize = 6;
    /// Upper bound of the first class.
    const FIRST_BYTES: u64 = 8 << 20;

    fn add(&mut self, given_back_bytes: u64) {
        let class = (given_back_bytes / Refaults::FIRST_BYTES).checked_ilog2().map_or(0, |log| log as usize + 1);
        if let Some(installs) = self.0.get_mut(class.min(Refaults::NUMBER - 1)) {
            *installs += 1;
        }
    }

    /// Lower bound of a class.
    fn bytes_min(class: usize) -> u64 {
        if class == 0 { 0 } else { Refaults::FIRST_BYTES << (class - 1) }
    }

    /// For each class, the middle of its range of returned bytes (for the last class, as if it ended at double its
    /// start), and the number of installs.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let middle = |class| (Refaults::bytes_min(class) + (Refaults::FIRST_BYTES << class)) / 2;
        self.0.iter().enumerate().map(move |(class, &installs)| (middle(class), installs))
    }

    /// The number of refaults.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Refaults by kind of install.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefaultsByKind {
    /// Single pages, by accesses.
    pub base_4k: Refaults,
    /// Single pages, by populating calls.
    pub base_4k_populated: Refaults,
    /// Folios larger than a page and smaller than a huge page.
    pub mthp: Refaults,
    /// Huge pages.
    pub thp: Refaults,
    /// Pages of the hugetlb pool.
    pub hugetlb: Refaults,
}

impl RefaultsByKind {
    /// Adds an install of memory that was returned before `returned_bytes`, itself included.
    pub(super) fn add(&mut self, install: Install, by_call: bool, returned_bytes: u64) {
        let refaults = match install.kind {
            InstallKind::Base4k if by_call => &mut self.base_4k_populated,
            InstallKind::Base4k => &mut self.base_4k,
            InstallKind::Mthp => &mut self.mthp,
            InstallKind::Thp => &mut self.thp,
            InstallKind::Hugetlb => &mut self.hugetlb,
            InstallKind::Zero | InstallKind::Cow => return,
        };
        refaults.add(returned_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PMD_PAGES;

    const MIB: u64 = 1 << 20;

    #[test]
    fn refaults_are_classified_by_the_returned_amount() {
        let mut refaults = Refaults::default();
        [1, 7 * MIB, 8 * MIB, 15 * MIB, 16 * MIB, 127 * MIB, 128 * MIB, 1 << 50]
            .into_iter()
            .for_each(|bytes| refaults.add(bytes));
        let classes = [(4 * MIB, 2), (12 * MIB, 2), (24 * MIB, 1), (48 * MIB, 0), (96 * MIB, 1), (192 * MIB, 2)];
        assert!(refaults.iter().eq(classes), "{refaults:?}");
        assert_eq!(refaults.total(), 8);
    }

    #[test]
    fn refaults_are_counted_by_kind() {
        let huge = Install { kind: InstallKind::Thp, first_page: 0, pages: PMD_PAGES };
        let small = Install { kind: InstallKind::Base4k, first_page: 0, pages: 1 };
        let mut refaults = RefaultsByKind::default();
        [2, 4, 6].into_iter().for_each(|mib| refaults.add(huge, true, mib * MIB));
        assert_eq!(refaults.thp.total(), 3);
        refaults.add(small, false, 4096);
        refaults.add(small, true, 17 * MIB);
        refaults.add(Install { kind: InstallKind::Zero, ..small }, false, 20 * MIB);
        assert_eq!([refaults.base_4k.total(), refaults.base_4k_populated.total(), refaults.mthp.total()], [1, 1, 0]);
        assert!(refaults.base_4k_populated.iter().any(|class| class == (24 * MIB, 1)), "{refaults:?}");
    }
}
