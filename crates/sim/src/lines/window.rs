//! Stack distances of the lines of one sample: how many distinct lines were accessed since a line's last access.
//!
//! A log has an entry for each access to lines of a page, in the order of the accesses. A line belongs to its last entry
//! only. So the distance of a line is the number of lines in the entries after its own, and sums over blocks of entries
//! make that a short addition. Lines that are accessed together move together: the cost of an access depends on the
//! entries that it meets, not on its lines. Lines further down than the largest cache are forgotten when the log is full.

use std::ops::Range;

use super::pages::{Page, Pages};
use super::sums::Sums;
use super::{PAGE_LINES, PAGE_SHIFT};

/// Entries of the log: more than twice [`DISTANCE_MAX`], so that it rarely has to be compacted.
const LOG: usize = 8192;

/// Lines that are remembered: those of the largest cache of a window.
pub(super) const DISTANCE_MAX: u32 = 3072;

/// An access, and which of its lines have not been accessed since.
#[derive(Clone, Copy)]
struct Entry {
    page: u32,
    lines: u64,
}

/// Neighbouring lines with the same distance.
pub(super) struct Group {
    /// The first one's number in its page, among the lines of the sample.
    pub(super) first: u32,
    /// Number of lines.
    pub(super) lines: u32,
    /// Their distance: 1 for the line that was accessed last, [`u32::MAX`] for lines that are not remembered.
    pub(super) distance: u32,
}

/// See the module.
pub(super) struct Window {
    /// The number of the sample: it has one line in 2^`sample`.
    sample: u32,
    pages: Pages,
    log: Vec<Entry>,
    /// Lines of the log's entries.
    sums: Sums<LOG>,
    /// By page, then by the line's number in it: the line's entry, if it is remembered.
    entry_of: Vec<u16>,
    /// Lines that are remembered.
    lines: u32,
}

impl Window {
    /// A window over a sample.
    pub(super) fn new(sample: u32) -> Window {
        Window {
            sample,
            pages: Pages::new(2 * LOG),
            log: Vec::with_capacity(LOG),
            sums: Sums::new(),
            entry_of: Vec::new(),
            lines: 0,
        }
    }

    /// The number of the sample.
    pub(super) fn sample(&self) -> u32 {
        self.sample
    }

    /// The pages from which on a range has as many sampled lines as are remembered.
    pub(super) fn reach_pages(&self) -> u64 {
        (u64::from(DISTANCE_MAX) << self.sample).div_ceil(PAGE_LINES.into())
    }

    /// Whether at least so many distinct lines of the sample were accessed, if so many are remembered.
    pub(super) fn has(&self, lines: u64) -> bool {
        u64::from(self.lines) >= lines
    }

    /// log2 of the sampled lines of a page.
    #[inline(always)]
    fn page_shift(&self) -> u32 {
        PAGE_SHIFT.saturating_sub(self.sample)
    }

    /// Accesses lines of a page, at least one: given by their numbers among its sampled lines, in ascending order. Passes
    /// on their distances. Returns the page, as it was before.
    #[inline(always)]
    pub(super) fn access(&mut self, page: u64, hash: u64, lines: Range<u32>, mut each: impl FnMut(Group)) -> &mut Page {
        if self.log.len() == LOG {
            self.compact();
        }
        let number = self.pages.number(page, hash);
        let (count, accessed) = (lines.end - lines.start, bits(&lines));
        if self.log.last().is_some_and(|newest| newest.page == number && newest.lines == accessed) {
            each(Group { first: lines.start, lines: count, distance: count });
        } else {
            self.move_lines(number, lines.clone(), each);
            self.append(number, lines);
        }
        self.pages.page(number)
    }

    /// Takes lines out of their entries.
    #[inline(always)]
    fn move_lines(&mut self, number: u32, lines: Range<u32>, mut each: impl FnMut(Group)) {
        let known = self.pages.page(number).known;
        let first_of_page = (number as usize) << self.page_shift();
        let (mut first, newest) = (lines.start, self.log.len());
        while first < lines.end {
            let (run, distance) = if known >> first & 1 == 0 {
                ((known >> first).trailing_zeros().min(lines.end - first), u32::MAX)
            } else {
                let at = usize::from(self.entry_of[first_of_page + first as usize]);
                let entry = &mut self.log[at];
                let from_first = entry.lines >> first;
                let run = (!from_first).trailing_zeros().min(lines.end - first);
                // The lines before these are newer by now.
                let newer = self.sums.between(at, newest) + (first - lines.start);
                let distance = newer + from_first.count_ones();
                entry.lines &= !bits(&(first..first + run));
                self.sums.subtract(at, run);
                (run, distance)
            };
            each(Group { first, lines: run, distance });
            first += run;
        }
    }

    /// Adds an entry for lines that are in no entry.
    #[inline(always)]
    fn append(&mut self, number: u32, lines: Range<u32>) {
        let (at, count, accessed) = (self.log.len(), lines.end - lines.start, bits(&lines));
        let first_of_page = (number as usize) << self.page_shift();
        let end_of_page = first_of_page + (1 << self.page_shift());
        if self.entry_of.len() < end_of_page {
            self.entry_of.resize(end_of_page.next_power_of_two(), 0);
        }
        self.entry_of[first_of_page..end_of_page][lines.start as usize..lines.end as usize].fill(at as u16);
        let page = self.pages.page(number);
        self.lines += (accessed & !page.known).count_ones();
        page.known |= accessed;
        self.log.push(Entry { page: number, lines: accessed });
        self.sums.add(at, count);
    }

    /// Removes entries without lines, and those whose lines no cache of the window holds.
    #[cold]
    #[inline(never)]
    fn compact(&mut self) {
        let log = std::mem::replace(&mut self.log, Vec::with_capacity(LOG));
        self.sums.clear();
        let mut oldest = log.len();
        self.lines = 0;
        while oldest > 0 && self.lines < DISTANCE_MAX {
            oldest -= 1;
            self.lines += log[oldest].lines.count_ones();
        }
        for entry in &log[..oldest] {
            self.pages.forget(entry.page, entry.lines);
        }
        for entry in log[oldest..].iter().filter(|entry| entry.lines != 0) {
            let at = self.log.len();
            self.log.push(*entry);
            self.sums.add(at, entry.lines.count_ones());
            let first_of_page = (entry.page as usize) << self.page_shift();
            let mut left = entry.lines;
            while left != 0 {
                self.entry_of[first_of_page + left.trailing_zeros() as usize] = at as u16;
                left &= left - 1;
            }
        }
    }
}

/// Lines as a set of bits.
#[inline(always)]
pub(super) fn bits(lines: &Range<u32>) -> u64 {
    (u64::MAX >> (PAGE_LINES - (lines.end - lines.start))) << lines.start
}
