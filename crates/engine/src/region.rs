//! The range of addresses that an address space covers, and what is mapped in it. Simulation and replay place mappings
//! with this code, so they place them equally.

use std::ops::Range;

use hksim_policy::{Errno, HUGE_PAGE_BYTES, PAGE_BYTES};

use crate::space::{Growth, Mapping};

/// ENOMEM.
pub const NO_MEMORY: Errno = Errno(12);
/// EINVAL.
pub const INVALID: Errno = Errno(22);

/// The mapped ranges of a region of addresses: ascending, and not adjacent. Its memory is allocated once.
///
/// The region is far from what Linux on x86-64 places by itself (programs, libraries, stacks, mmaps without a hint), so
/// that it is free in every process.
#[derive(Debug)]
pub struct Region {
    ranges: Vec<Range<u64>>,
}

impl Default for Region {
    fn default() -> Region {
        Region::new()
    }
}

impl Region {
    /// The region's first address: 32 TiB.
    pub const START: u64 = 1 << 45;
    /// Its size: 1 TiB.
    pub const BYTES: u64 = 1 << 40;
    /// Maximum number of ranges. It exceeds the default of `vm.max_map_count`.
    pub const RANGES_MAX: usize = 1 << 16;

    /// An empty region.
    pub fn new() -> Region {
        Region { ranges: Vec::with_capacity(Region::RANGES_MAX) }
    }

    /// The memory that the ranges use, as (start, bytes). A replay makes it resident before it starts.
    pub fn extent(&self) -> (*const u8, usize) {
        (self.ranges.as_ptr().cast(), self.ranges.capacity() * size_of::<Range<u64>>())
    }

    /// The mapped ranges.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// The range of `bytes` bytes at an address.
    ///
    /// # Errors
    /// EINVAL: it is empty, or not whole pages of the region.
    pub fn range(&self, at: u64, bytes: u64) -> Result<Range<u64>, Errno> {
        let is_whole = at.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES) && bytes > 0;
        let end = at.checked_add(bytes).filter(|&end| is_whole && at >= Region::START && end <= END);
        end.map(|end| at..end).ok_or(INVALID)
    }

    /// Where a new mapping goes: the lowest free range of this size at a multiple of `align`.
    ///
    /// # Errors
    /// As of [`AddressSpace::map`](crate::AddressSpace::map).
    pub fn place(&self, bytes: u64, align: u64, mapping: Mapping) -> Result<Range<u64>, Errno> {
        let granule = match mapping {
            Mapping::Plain | Mapping::Populated => PAGE_BYTES,
            Mapping::Hugetlb | Mapping::HugetlbPopulated => HUGE_PAGE_BYTES,
        };
        if bytes == 0 || !bytes.is_multiple_of(granule) || !align.is_power_of_two() || align < granule {
            return Err(INVALID);
        }
        if self.ranges.len() == Region::RANGES_MAX {
            return Err(NO_MEMORY);
        }
        let mut start = Some(Region::START);
        for range in &self.ranges {
            let end = start.and_then(|start| start.checked_add(bytes)).ok_or(NO_MEMORY)?;
            if end <= range.start {
                break;
            }
            start = range.end.checked_next_multiple_of(align);
        }
        let start = start.ok_or(NO_MEMORY)?;
        start.checked_add(bytes).filter(|&end| end <= END).map(|end| start..end).ok_or(NO_MEMORY)
    }

    /// Where a remapped range goes: see [`AddressSpace::remap`](crate::AddressSpace::remap).
    ///
    /// # Errors
    /// ENOMEM: there is no room. EINVAL: not whole pages of the region.
    pub fn place_resized(&self, old: &Range<u64>, new_bytes: u64, growth: Growth) -> Result<Range<u64>, Errno> {
        let new = self.range(old.start, new_bytes);
        if new_bytes <= old.end - old.start {
            return new;
        }
        let has_room = |new: &Range<u64>| !self.overlaps(&(old.end..new.end));
        match (new, growth) {
            (Ok(new), _) if has_room(&new) => Ok(new),
            (_, Growth::InPlace) => Err(NO_MEMORY),
            (_, Growth::Move { align }) => self.place(new_bytes, align, Mapping::Plain),
        }
    }

    /// Whether any byte of a range is mapped.
    fn overlaps(&self, range: &Range<u64>) -> bool {
        let first = self.ranges.partition_point(|mapped| mapped.end <= range.start);
        self.ranges.get(first).is_some_and(|mapped| mapped.start < range.end)
    }

    /// Whether a range can be unmapped without exceeding [`Region::RANGES_MAX`].
    ///
    /// # Errors
    /// ENOMEM: it cannot.
    pub fn check_removable(&self, range: &Range<u64>) -> Result<(), Errno> {
        let splits = self.ranges.iter().any(|mapped| mapped.start < range.start && range.end < mapped.end);
        if splits && self.ranges.len() == Region::RANGES_MAX { Err(NO_MEMORY) } else { Ok(()) }
    }

    /// The range is mapped now.
    pub fn add(&mut self, range: Range<u64>) {
        let first = self.ranges.partition_point(|mapped| mapped.end < range.start);
        let after = self.ranges.partition_point(|mapped| mapped.start <= range.end);
        let mut joined = range;
        if first < after {
            joined = joined.start.min(self.ranges[first].start)..joined.end.max(self.ranges[after - 1].end);
        }
        self.ranges.splice(first..after, [joined]);
    }

    /// The range is not mapped any more.
    pub fn remove(&mut self, range: Range<u64>) {
        let first = self.ranges.partition_point(|mapped| mapped.end <= range.start);
        let after = self.ranges.partition_point(|mapped| mapped.start < range.end);
        if first >= after {
            return;
        }
        let left = [self.ranges[first].start..range.start, range.end..self.ranges[after - 1].end];
        self.ranges.splice(first..after, left.into_iter().filter(|part| !part.is_empty()));
    }

    /// The mapped ranges by name, as pages: a page's name is its number from the start of the region.
    pub fn named_pages(&self) -> impl Iterator<Item = (u64, Range<u64>)> + '_ {
        self.ranges.iter().map(|range| {
            let pages = range.start / PAGE_BYTES..range.end / PAGE_BYTES;
            (pages.start - Region::START / PAGE_BYTES, pages)
        })
    }
}

/// The end of the region.
const END: u64 = Region::START + Region::BYTES;

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_trace::splitmix::Splitmix64;

    const PAGES: u64 = 64;

    fn at(page: u64) -> u64 {
        Region::START + page * PAGE_BYTES
    }

    /// The lowest free run, found page by page.
    fn lowest(mapped: &[bool], pages: u64, align: u64) -> u64 {
        let is_free = |page: u64| mapped.get(page as usize).is_none_or(|&mapped| !mapped);
        (0..).step_by(align as usize).find(|&first| (first..first + pages).all(is_free)).unwrap_or_default()
    }

    #[test]
    fn ranges_and_places_agree_with_a_table_of_pages() {
        let mut random = Splitmix64::new(0x2545_F491_4F6C_DD1D);
        let mut draw = |below: u64| random.below(below);
        let (mut region, mut mapped) = (Region::new(), vec![false; PAGES as usize]);
        for round in 0..20_000 {
            let (first, pages) = (draw(PAGES - 8), 1 + draw(8));
            let is_added = draw(2) == 0;
            let range = region.range(at(first), pages * PAGE_BYTES).unwrap();
            mapped[first as usize..(first + pages) as usize].fill(is_added);
            if is_added {
                region.add(range)
            } else {
                region.remove(range)
            }
            let runs = mapped.chunk_by(|one, next| one == next).filter(|run| run[0]).count();
            assert_eq!(region.ranges().len(), runs, "round {round}: ranges are maximal");
            for page in 0..PAGES {
                assert_eq!(region.overlaps(&(at(page)..at(page + 1))), mapped[page as usize], "round {round}");
            }
            let (pages, align) = (1 + draw(9), 1 << draw(4));
            let placed = region.place(pages * PAGE_BYTES, align * PAGE_BYTES, Mapping::Plain).unwrap();
            assert_eq!(placed.start, at(lowest(&mapped, pages, align)), "round {round}: {pages} pages, {align}");
        }
    }

    #[test]
    fn a_range_grows_in_place_or_moves() {
        let mut region = Region::new();
        let pages = |range: Range<u64>| at(range.start)..at(range.end);
        region.add(pages(0..2));
        region.add(pages(6..8));
        let grown = |old: Range<u64>, to: u64, growth| region.place_resized(&pages(old), to * PAGE_BYTES, growth);
        let moving = Growth::Move { align: 2 * PAGE_BYTES };
        assert_eq!(grown(0..2, 6, Growth::InPlace), Ok(pages(0..6)));
        assert_eq!(grown(0..2, 7, Growth::InPlace), Err(NO_MEMORY));
        assert_eq!(grown(0..2, 7, moving), Ok(pages(8..15)));
        assert_eq!(grown(6..8, 1, moving), Ok(pages(6..7)), "shrinks");
        assert_eq!(grown(6..8, 0, moving), Err(INVALID));
    }

    #[test]
    fn bad_ranges_and_a_full_region_are_errors() {
        let mut region = Region::new();
        for (start, bytes) in [(Region::START + 1, 4096), (Region::START, 0), (Region::START, 4095), (0, 4096)] {
            assert_eq!(region.range(start, bytes), Err(INVALID));
        }
        assert_eq!(region.range(u64::MAX - 4095, 8192), Err(INVALID));
        for (bytes, align) in [(0, 4096), (4096, 0), (4096, 2048), (4096, 12288), (1, 4096)] {
            assert_eq!(region.place(bytes, align, Mapping::Plain), Err(INVALID));
        }
        assert_eq!(region.place(4096, 4096, Mapping::Hugetlb), Err(INVALID));
        assert_eq!(region.place(Region::BYTES + 4096, 4096, Mapping::Plain), Err(NO_MEMORY));
        region.add(Region::START..Region::START + Region::BYTES);
        assert_eq!(region.place(4096, 4096, Mapping::Plain), Err(NO_MEMORY));
    }
}
