//! Misses of fully associative LRU TLBs of many sizes, in one pass.
//!
//! The entries that such a TLB of N entries holds are the first N of one list, the stack: so the place of an entry before
//! its access tells which sizes miss (Mattson et al., 1970).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use hksim_linux_mm::PMD_PAGES;

use super::PageSize;
use super::lru_stack::LruStack;
use crate::number_hasher::NumberHasher;

/// Entries of a range of 2 MiB: one for each page of 4 KiB, then one for a huge page.
const RANGE_ENTRIES: usize = HUGE_ENTRY + 1;
const HUGE_ENTRY: usize = PMD_PAGES as usize;

/// Numbers of the ranges of 2 MiB that were accessed, from 0 on.
#[derive(Clone, Debug, Default)]
struct Ranges {
    numbers: HashMap<u64, usize, BuildHasherDefault<NumberHasher>>,
    /// The range that was accessed last, and its number.
    last: Option<(u64, usize)>,
}

impl Ranges {
    /// The known ranges that contain any of these pages: their numbers, and the pages by their places in the range.
    fn parts(&self, pages: &Range<u64>) -> Vec<(usize, Range<usize>)> {
        let ranges = pages.start / PMD_PAGES..pages.end.div_ceil(PMD_PAGES);
        let part = |(&range, &number): (&u64, &usize)| {
            let place =
                |page: u64| (page.clamp(range * PMD_PAGES, (range + 1) * PMD_PAGES) - range * PMD_PAGES) as usize;
            (number, place(pages.start)..place(pages.end))
        };
        if ranges.end - ranges.start > self.numbers.len() as u64 {
            return self.numbers.iter().filter(|(range, _)| ranges.contains(range)).map(part).collect();
        }
        ranges.filter_map(|range| self.numbers.get_key_value(&range)).map(part).collect()
    }
}

/// Three stacks for one stream of accesses: with the pages that it has, and with pages of a single size.
#[derive(Clone, Debug)]
pub struct MissStacks {
    ranges: Ranges,
    /// `None` before the first huge page: it would equal `all_4k`.
    as_mapped: Option<LruStack>,
    all_4k: LruStack,
    all_2m: LruStack,
}

impl MissStacks {
    /// For TLBs of these numbers of entries, in ascending order, and of 1 to 8 entries.
    pub fn new(sizes: &[usize]) -> MissStacks {
        let empty = LruStack::new(sizes);
        MissStacks { ranges: Ranges::default(), as_mapped: None, all_4k: empty.clone(), all_2m: empty }
    }

    /// Accesses a page of 4 KiB that is mapped with this size. Returns the least of the numbers of entries with which a TLB
    /// hits; `None` if none does.
    #[inline(always)]
    pub fn access(&mut self, page: u64, mapped: PageSize) -> Option<usize> {
        let range = page / PMD_PAGES;
        let number = match self.ranges.last {
            Some((last, number)) if last == range => number,
            _ => self.enter(range),
        };
        if mapped == PageSize::Huge && self.as_mapped.is_none() {
            self.as_mapped = Some(self.all_4k.clone());
        }
        let (first, place) = (number * RANGE_ENTRIES, (page % PMD_PAGES) as usize);
        self.all_2m.access(number);
        let least_4k = self.all_4k.access(first + place);
        match (&mut self.as_mapped, mapped) {
            (None, _) => least_4k,
            (Some(as_mapped), PageSize::Base) => as_mapped.access(first + place),
            (Some(as_mapped), PageSize::Huge) => as_mapped.access(first + HUGE_ENTRY),
        }
    }

    /// The number of a range, which is accessed.
    #[inline(never)]
    fn enter(&mut self, range: u64) -> usize {
        let new = self.ranges.numbers.len();
        let number = *self.ranges.numbers.entry(range).or_insert(new);
        if number == new {
            self.all_2m.reserve(new + 1);
            for stack in self.as_mapped.iter_mut().chain([&mut self.all_4k]) {
                stack.reserve((new + 1) * RANGE_ENTRIES);
            }
        }
        self.ranges.last = Some((range, number));
        number
    }

    /// Removes the entries that map any of these 4 KiB pages.
    pub fn invalidate(&mut self, pages: &Range<u64>) {
        if pages.is_empty() {
            return;
        }
        for (number, places) in self.ranges.parts(pages) {
            let first = number * RANGE_ENTRIES;
            for stack in self.as_mapped.iter_mut().chain([&mut self.all_4k]) {
                places.clone().for_each(|place| stack.remove(first + place));
                stack.remove(first + HUGE_ENTRY);
            }
            self.all_2m.remove(number);
        }
    }

    /// Misses by number of entries, with every page as it was mapped at the time of its access. The last number,
    /// `usize::MAX`, is for a TLB that never evicts.
    pub fn as_mapped(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.as_mapped.as_ref().unwrap_or(&self.all_4k).misses()
    }

    /// As if all pages were 4 KiB.
    pub fn all_4k(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.all_4k.misses()
    }

    /// As if all pages were 2 MiB.
    pub fn all_2m(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.all_2m.misses()
    }
}
