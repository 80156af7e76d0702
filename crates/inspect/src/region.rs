//! Which mappings belong together.

use hksim_linux_probe::smaps::Mapping;
use serde::{Deserialize, Serialize};

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

/// Size and alignment of the heaps of glibc's arenas (`HEAP_MAX_SIZE` on 64-bit machines).
const ARENA_BYTES: u64 = 64 << 20;
/// The longest gap without access that counts as the guard of a thread's stack.
const GUARD_BYTES_MAX: u64 = 1 << 20;

/// The name of the region of each mapping. Mappings are in ascending order.
///
/// `heap` (brk), `stack` and `files` follow from the kernel's names. `thread stacks` and `glibc arenas` are recognised by
/// their shape: a stack by the guard before it and by its advice against huge pages, an arena's heap by its alignment and
/// by the reservation after it.
pub fn names(mappings: &[Mapping]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(mappings.len());
    for (index, mapping) in mappings.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &mappings[before]);
        let after = mappings.get(index + 1);
        let continues = before.is_some_and(|before| before.addresses.end == mapping.addresses.start);
        let is_rest_of_arena = continues
            && is_unnamed(mapping)
            && names.last().is_some_and(|name| name == ARENAS)
            && !mapping.addresses.start.is_multiple_of(ARENA_BYTES);
        names.push(match before {
            _ if is_rest_of_arena || begins_arena(mapping, after) => ARENAS.to_string(),
            Some(guard) if continues && is_stack(guard, mapping) => "thread stacks".to_string(),
            _ => kernel_name(mapping),
        });
    }
    names
}

const ARENAS: &str = "glibc arenas";

fn is_unnamed(mapping: &Mapping) -> bool {
    mapping.is_anonymous() && mapping.name.is_empty()
}

/// Whether a mapping is the used part of an arena's heap: aligned, and with the rest of its reservation after it.
fn begins_arena(mapping: &Mapping, after: Option<&Mapping>) -> bool {
    let end = mapping.addresses.start.saturating_add(ARENA_BYTES);
    let is_whole = mapping.addresses.end == end;
    let is_reserved = |after: &Mapping| {
        after.is_inaccessible()
            && is_unnamed(after)
            && after.addresses.start == mapping.addresses.end
            && after.addresses.end >= end
    };
    mapping.addresses.start.is_multiple_of(ARENA_BYTES)
        && is_unnamed(mapping)
        && mapping.is_writable()
        && (is_whole || after.is_some_and(is_reserved))
}

fn is_stack(guard: &Mapping, mapping: &Mapping) -> bool {
    let is_guard = guard.is_inaccessible() && is_unnamed(guard) && guard.bytes() <= GUARD_BYTES_MAX;
    is_guard && is_unnamed(mapping) && mapping.is_writable() && mapping.has(b"nh")
}

/// The name that follows from what the kernel says.
fn kernel_name(mapping: &Mapping) -> String {
    let is_shared = mapping.mode.ends_with('s');
    let in_brackets = mapping.name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match (in_brackets, mapping.name.as_str()) {
        _ if mapping.is_hugetlb() => "hugetlb".to_string(),
        (Some(name), _) => match name.split_once(':') {
            Some((kind @ ("anon" | "anon_shmem"), name)) => {
                format!("{}named {name}", if kind == "anon" { "" } else { "shared, " })
            }
            _ => name.to_string(),
        },
        (None, "") => if mapping.is_inaccessible() { "reserved" } else { "anonymous" }.to_string(),
        (None, path) if is_shared => format!("shared {path}"),
        (None, path) => format!("file {path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_linux_probe::smaps::parse;

    #[test]
    fn stacks_and_arenas_are_recognised_by_their_shape() {
        let text = "555000000000-555000021000 rw-p 0 00:00 0 [heap]\n\
                    7f1ff0000000-7f1ff0021000 rw-p 0 00:00 0 \n\
                    7f1ff0021000-7f1ff4000000 ---p 0 00:00 0 \n\
                    7f1ff4000000-7f1ff4021000 rw-p 0 00:00 0 \n\
                    7f1ff4021000-7f1ff8000000 ---p 0 00:00 0 \n\
                    7f1ff8800000-7f1ff8801000 ---p 0 00:00 0 \n\
                    7f1ff8801000-7f1ff9001000 rw-p 0 00:00 0 \nVmFlags: rd wr nh\n\
                    7f1ff9001000-7f1ff9101000 rw-p 0 00:00 0 \n\
                    7f1ff9200000-7f1ff9300000 rw-p 0 00:00 0 [anon:Go: heap]\n\
                    7f1ff9400000-7f1ff9500000 rw-s 0 00:01 7 /dev/shm/a\n\
                    7f1ff9600000-7f1ff9700000 r-xp 0 fe:01 8 /lib/libc.so.6\n\
                    7fff00000000-7fff00021000 rw-p 0 00:00 0 [stack]";
        let arenas = ["glibc arenas"; 4];
        let rest =
            ["thread stacks", "anonymous", "named Go: heap", "shared /dev/shm/a", "file /lib/libc.so.6", "stack"];
        let expected: Vec<&str> = ["heap"].into_iter().chain(arenas).chain(["reserved"]).chain(rest).collect();
        assert_eq!(names(&parse(text)), expected);
    }
}
