//! The pages of the address space that belong to the allocator. Scans and traps are limited to them.

use std::io;
use std::ops::Range;

use hksim_engine::Region;
use hksim_linux_probe::resident::Resident;
use hksim_policy::layout::Layout;
use hksim_policy::vocabulary::Align;

/// Where an allocator's memory is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent {
    /// In a reservation of this many bytes.
    Reservation(u64),
    /// In a reservation of this many bytes, and in mappings elsewhere.
    WithMappings(u64),
    /// In mappings of the region of allocator designs.
    Region,
}

impl Extent {
    /// Of the SuperSlab allocator.
    pub(crate) fn of(layout: &Layout) -> Extent {
        match layout.align {
            Align::Arena => Extent::Reservation(layout.bytes()),
            Align::Trim | Align::Kernel => Extent::WithMappings(layout.bytes()),
        }
    }

    /// Bytes of the reservation or region.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Extent::Reservation(bytes) | Extent::WithMappings(bytes) => bytes,
            Extent::Region => Region::BYTES,
        }
    }
}

/// Ranges of pages, ascending and not adjacent. The memory is allocated and made present once, so adding ranges takes
/// no page faults.
pub(crate) struct Extents {
    starts: Resident<u64>,
    ends: Resident<u64>,
    len: usize,
    left_out: u64,
}

impl Extents {
    /// Extents with capacity for this many ranges.
    pub(crate) fn new(capacity: usize) -> io::Result<Extents> {
        Ok(Extents { starts: Resident::zeroed(capacity)?, ends: Resident::zeroed(capacity)?, len: 0, left_out: 0 })
    }

    /// Number of ranges that did not fit.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A range by its index.
    pub(crate) fn get(&self, at: usize) -> Range<u64> {
        self.starts[at]..self.ends[at]
    }

    /// The index of the first range that ends after `page`.
    fn behind(&self, page: u64) -> usize {
        self.ends[..self.len].partition_point(|&end| end <= page)
    }

    /// Whether a page belongs to the extents.
    pub(crate) fn contains(&self, page: u64) -> bool {
        self.overlaps(&(page..page + 1))
    }

    /// Whether any page of a range belongs to the extents.
    pub(crate) fn overlaps(&self, pages: &Range<u64>) -> bool {
        let at = self.behind(pages.start);
        at < self.len && self.starts[at] < pages.end
    }

    /// The parts of a range that belong to the extents, in ascending order.
    pub(crate) fn within(&self, pages: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let ranges = (self.behind(pages.start)..self.len).map(|at| self.get(at));
        let end = pages.end;
        ranges
            .take_while(move |range| range.start < end)
            .map(move |range| range.start.max(pages.start)..range.end.min(end))
    }

    /// Adds pages. Some of them may already be in the set.
    pub(crate) fn add(&mut self, pages: Range<u64>) {
        let (mut start, mut end) = (pages.start, pages.end);
        // Merge with all adjacent and overlapping ranges.
        let first = self.ends[..self.len].partition_point(|&end| end < start);
        let behind = self.starts[..self.len].partition_point(|&start| start <= end);
        if first < behind {
            (start, end) = (start.min(self.starts[first]), end.max(self.ends[behind - 1]));
        }
        self.replace(first, behind, std::iter::once(start..end));
    }

    /// Removes pages. Some of them may not be in the set.
    pub(crate) fn remove(&mut self, pages: Range<u64>) {
        let first = self.behind(pages.start);
        let behind = self.starts[..self.len].partition_point(|&start| start < pages.end);
        if first >= behind {
            return;
        }
        let left = [self.starts[first]..pages.start, pages.end..self.ends[behind - 1]];
        self.replace(first, behind, left.into_iter().filter(|range| !range.is_empty()));
    }

    fn replace(&mut self, first: usize, behind: usize, with: impl Iterator<Item = Range<u64>> + Clone) {
        let count = with.clone().count();
        let len = self.len - (behind - first) + count;
        if len > self.starts.len() {
            self.left_out += 1;
            return;
        }
        for array in [&mut self.starts, &mut self.ends] {
            array.copy_within(behind..self.len, first + count);
        }
        for (at, range) in with.enumerate() {
            (self.starts[first + at], self.ends[first + at]) = (range.start, range.end);
        }
        self.len = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_a_set_of_single_pages() {
        const PAGES: u64 = 64;
        let mut extents = Extents::new(PAGES as usize).unwrap();
        let mut plain = [false; PAGES as usize];
        let mut seed = 0x9E37_79B9_7F4A_7C15u64;
        let mut draw = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for round in 0..5000 {
            let start = draw(PAGES);
            let pages = start..start + 1 + draw(PAGES - start).min(9);
            let is_added = draw(2) == 0;
            plain[pages.start as usize..pages.end.min(PAGES) as usize].fill(is_added);
            let pages = pages.start..pages.end.min(PAGES);
            if is_added {
                extents.add(pages)
            } else {
                extents.remove(pages)
            }
            for page in 0..PAGES {
                assert_eq!(extents.contains(page), plain[page as usize], "round {round}, page {page}");
            }
            let runs = plain.chunk_by(|one, next| one == next).filter(|run| run[0]).count();
            assert_eq!(extents.len(), runs, "round {round}: ranges are maximal");
            let window = 10..10 + draw(40);
            let found: u64 = extents.within(window.clone()).map(|range| range.end - range.start).sum();
            let expected = plain[window.start as usize..window.end as usize].iter().filter(|&&is| is).count();
            assert_eq!(found, expected as u64, "round {round}");
        }
        assert_eq!(extents.left_out(), 0);
    }

    #[test]
    fn ranges_that_do_not_fit_are_counted() {
        let mut extents = Extents::new(2).unwrap();
        [1, 3, 5].into_iter().for_each(|page| extents.add(page..page + 1));
        assert_eq!((extents.len(), extents.left_out(), extents.contains(5)), (2, 1, false));
    }
}
