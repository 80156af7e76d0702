//! What the aligned 2 MiB ranges of a mapping hold.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use hksim_linux_mm::PMD_PAGES;
use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::page_flags::PageFlags;
use hksim_linux_probe::page_states::{Entry as PageEntry, PageState, PageStates};
use hksim_linux_probe::smaps::Mapping;

/// The part of a mapping in one aligned 2 MiB range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmdRange {
    /// Number of the range: its address divided by 2 MiB.
    pub number: u64,
    /// Whether the mapping covers all of it.
    pub is_whole: bool,
    /// What maps it.
    pub entry: Entry,
    /// Pages in memory that were written, mapped one by one.
    pub written_pages: u64,
    /// Of these, pages that another process maps, too.
    pub shared_pages: u64,
    /// Of the written ones, pages given up with `MADV_FREE`: known to root only, else 0.
    pub lazily_freed_pages: u64,
    /// Zero pages: read, and never written.
    pub zero_pages: u64,
    /// Pages in swap.
    pub swapped_pages: u64,
    /// Guard pages.
    pub guard_pages: u64,
}

/// What maps a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Entry {
    /// Pages of 4 KiB, or nothing.
    #[default]
    Pages,
    /// A huge page.
    Huge,
    /// The shared huge zero page.
    HugeZero,
}

impl PmdRange {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        let pages = self.written_pages + self.zero_pages + self.swapped_pages + self.guard_pages;
        self.entry == Entry::Pages && pages == 0
    }

    /// Pages that are neither in memory nor in swap; zero pages are absent, too.
    pub fn absent_pages(&self) -> u64 {
        PMD_PAGES.saturating_sub(self.written_pages + self.swapped_pages)
    }

    /// Bytes of memory in pages of 4 KiB.
    pub fn small_bytes(&self) -> u64 {
        self.written_pages * PAGE_BYTES
    }

    /// Counts the pages that are shared, and those that are given up.
    fn add_entries(&mut self, entries: &[PageEntry], flags: Option<&PageFlags>) {
        let present = || entries.iter().filter(|entry| entry.is_present());
        let shared = present().filter(|entry| !entry.is_exclusive()).count() as u64;
        self.shared_pages = shared.saturating_sub(self.zero_pages);
        let frames: Vec<u64> = present().filter_map(|entry| entry.frame_number()).collect();
        let given_up = flags.and_then(|flags| flags.lazily_freed(&frames).ok()).unwrap_or_default();
        self.lazily_freed_pages = given_up.iter().filter(|&&is_given_up| is_given_up).count() as u64;
    }

    fn add(&mut self, state: PageState, pages: u64) {
        match state {
            PageState::Small => self.written_pages += pages,
            PageState::Zero => self.zero_pages += pages,
            PageState::Swapped => self.swapped_pages += pages,
            PageState::Guard => self.guard_pages += pages,
            PageState::Huge => self.entry = Entry::Huge,
            PageState::HugeZero => self.entry = Entry::HugeZero,
        }
    }
}

/// The ranges of one mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Those that hold something, in ascending order.
    pub used: Vec<PmdRange>,
    /// The numbers of whole ranges that hold nothing, in ascending order.
    pub empty: Vec<Range<u64>>,
}

impl Ranges {
    /// Reads the ranges of an anonymous mapping; with the flags of page frames also which pages were given up.
    ///
    /// # Errors
    /// The process ended.
    pub fn read(mapping: &Mapping, states: &PageStates, flags: Option<&PageFlags>) -> io::Result<Self> {
        // Each page is looked up, so only where there are such pages.
        let flags = flags.filter(|_| mapping.lazy_free_bytes > 0);
        let pages = mapping.addresses.start / PAGE_BYTES..mapping.addresses.end / PAGE_BYTES;
        let whole = pages.start.div_ceil(PMD_PAGES)..pages.end / PMD_PAGES;
        let mut used: BTreeMap<u64, PmdRange> = BTreeMap::new();
        for run in states.in_range(pages.clone())? {
            for (number, part) in by_range(run.pages) {
                let range = used.entry(number).or_insert_with(|| PmdRange {
                    number,
                    is_whole: whole.contains(&number),
                    ..PmdRange::default()
                });
                range.add(run.state, part);
            }
        }
        let mut used: Vec<PmdRange> = used.into_values().collect();
        for range in used.iter_mut().filter(|range| range.written_pages > 0) {
            let part = range.number * PMD_PAGES..(range.number + 1) * PMD_PAGES;
            let entries = states.entries(part.start.max(pages.start)..part.end.min(pages.end))?;
            range.add_entries(&entries, flags);
        }
        let empty = gaps(whole, used.iter().filter(|range| range.is_whole).map(|range| range.number));
        Ok(Self { used, empty })
    }
}

/// The numbers of a range that are not among `used`, which ascend.
fn gaps(whole: Range<u64>, used: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut at = whole.start;
    let mut gaps = Vec::new();
    for number in used.chain([whole.end]) {
        if at < number {
            gaps.push(at..number);
        }
        at = number + 1;
    }
    gaps
}

/// Cuts pages at multiples of 2 MiB: the number of each range and the pages in it.
fn by_range(pages: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    let numbers = pages.start / PMD_PAGES..pages.end.div_ceil(PMD_PAGES);
    numbers.map(move |number| {
        let part = (number * PMD_PAGES).max(pages.start)..((number + 1) * PMD_PAGES).min(pages.end);
        (number, part.end - part.start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_cut_at_multiples_of_2_mib() {
        assert_eq!(by_range(510..1030).collect::<Vec<_>>(), [(0, 2), (1, 512), (2, 6)]);
        assert_eq!(by_range(512..1024).collect::<Vec<_>>(), [(1, 512)]);
        assert_eq!(by_range(7..8).collect::<Vec<_>>(), [(0, 1)]);
    }

    #[test]
    fn gaps_are_between_used_numbers() {
        let gaps = |(start, end), used: &[u64]| -> Vec<(u64, u64)> {
            super::gaps(start..end, used.iter().copied()).into_iter().map(|gap| (gap.start, gap.end)).collect()
        };
        assert_eq!(gaps((3, 8), &[]), [(3, 8)]);
        assert_eq!(gaps((3, 8), &[3, 5, 6]), [(4, 5), (7, 8)]);
        assert_eq!(gaps((3, 8), &[3, 4, 5, 6, 7]), []);
        // A mapping without a whole range.
        assert_eq!(gaps((4, 3), &[]), []);
    }
}
