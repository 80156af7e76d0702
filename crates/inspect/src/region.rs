//! Which mappings belong together.

use hksim_linux_probe::smaps::Mapping;
use serde::{Deserialize, Serialize};

use crate::naming::ANONYMOUS;
use crate::verdict::{Obstacle, Way};

/// Mappings that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// What they are.
    pub name: String,
    /// Their number.
    pub mappings: u64,
    /// The size of their address ranges.
    pub bytes: u64,
    /// Resident memory, without hugetlb pages.
    pub rss_bytes: u64,
    /// Anonymous memory in huge pages.
    pub huge_bytes: u64,
    /// Given up with `MADV_FREE`, and not reclaimed yet.
    pub lazy_free_bytes: u64,
    /// In swap; not resident.
    pub swap_bytes: u64,
    /// In pages of the hugetlb pool; not part of `rss_bytes`.
    pub hugetlb_bytes: u64,
    /// Aligned 2 MiB ranges by what they can become: private anonymous memory only.
    pub ranges: Vec<WayRanges>,
    /// What keeps resident memory out of huge pages, most bytes first. With `huge_bytes` they add up to `rss_bytes`,
    /// if the process did not change its memory meanwhile.
    pub obstacles: Vec<Hindered>,
}

/// The number of ranges that can become huge pages by one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayRanges {
    /// The way.
    pub way: Way,
    /// The number.
    pub ranges: u64,
}

/// Memory that one obstacle keeps out of huge pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hindered {
    /// The obstacle in words.
    pub reason: String,
    /// The obstacle.
    pub obstacle: Obstacle,
    /// Resident bytes.
    pub bytes: u64,
}

impl Region {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_string(),
            mappings: 0,
            bytes: 0,
            rss_bytes: 0,
            huge_bytes: 0,
            lazy_free_bytes: 0,
            swap_bytes: 0,
            hugetlb_bytes: 0,
            ranges: Vec::new(),
            obstacles: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, mapping: &Mapping) {
        self.mappings += 1;
        self.bytes += mapping.bytes();
        self.rss_bytes += mapping.rss_bytes;
        self.huge_bytes += mapping.huge_bytes;
        self.lazy_free_bytes += mapping.lazy_free_bytes;
        self.swap_bytes += mapping.swap_bytes;
        self.hugetlb_bytes += mapping.hugetlb_bytes;
    }

    /// Adds another region to this one.
    pub fn merge(&mut self, other: &Region) {
        self.mappings += other.mappings;
        self.bytes += other.bytes;
        self.rss_bytes += other.rss_bytes;
        self.huge_bytes += other.huge_bytes;
        self.lazy_free_bytes += other.lazy_free_bytes;
        self.swap_bytes += other.swap_bytes;
        self.hugetlb_bytes += other.hugetlb_bytes;
        other.ranges.iter().for_each(|ranges| self.count(ranges.way, ranges.ranges));
        other.obstacles.iter().for_each(|hindered| self.hinder(hindered.obstacle, hindered.bytes));
    }

    /// Counts ranges.
    pub(crate) fn count(&mut self, way: Way, ranges: u64) {
        match self.ranges.iter_mut().find(|known| known.way == way) {
            Some(known) => known.ranges += ranges,
            None => self.ranges.push(WayRanges { way, ranges }),
        }
    }

    /// Counts memory that an obstacle keeps out of huge pages.
    pub(crate) fn hinder(&mut self, obstacle: Obstacle, bytes: u64) {
        match self.obstacles.iter_mut().find(|known| known.obstacle == obstacle) {
            Some(known) => known.bytes += bytes,
            None => self.obstacles.push(Hindered { reason: obstacle.words().to_string(), obstacle, bytes }),
        }
    }

    pub(crate) fn sorted(mut self) -> Self {
        self.ranges.sort_by_key(|ranges| ranges.way);
        self.obstacles.sort_by_key(|hindered| (std::cmp::Reverse(hindered.bytes), hindered.obstacle));
        self
    }
}

/// One mapping of unnamed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargeMapping {
    /// Its first address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Memory in huge pages.
    pub huge_bytes: u64,
}

/// Mappings of the region `anonymous` that are listed.
const LISTED_MAX: usize = 8;

/// The mappings of the region `anonymous` with most memory, in descending order.
pub(crate) fn largest_anonymous(mappings: &[Mapping], names: &[String]) -> Vec<LargeMapping> {
    let anonymous = mappings.iter().zip(names).filter(|(mapping, name)| *name == ANONYMOUS && mapping.rss_bytes > 0);
    let mut listed: Vec<LargeMapping> = anonymous
        .map(|(mapping, _)| LargeMapping {
            address: mapping.addresses.start,
            bytes: mapping.bytes(),
            rss_bytes: mapping.rss_bytes,
            huge_bytes: mapping.huge_bytes,
        })
        .collect();
    listed.sort_by_key(|mapping| (std::cmp::Reverse(mapping.rss_bytes), mapping.address));
    listed.truncate(LISTED_MAX);
    listed
}
