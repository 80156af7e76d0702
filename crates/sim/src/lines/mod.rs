//! Reuse of cache lines: which accesses miss caches of which sizes.
//!
//! A cache of N lines with LRU replacement is modelled on a sample of the lines, as in SHARDS (Waldspurger et al., 2015):
//! a cache of N lines misses a sampled line when a cache of N/R lines misses it among the sampled lines alone, if one
//! line in R is sampled. The finest sample has every fourth line. From 2048 lines on, each doubling of the size halves
//! the sample, so every size has the same relative error, about 4 % of the size, from a `Window` of the same few hundred
//! lines; and all windows together cost about half an access per line. Memory is constant.
//!
//! Of adjacent lines, every Rth is sampled, starting at one that a hash of the page selects; above 64, every page has
//! at most one such line. So a range of lines finds its samples without a look at the others.
//!
//! Pages that are dropped keep their lines: the kernel zeroes a page that it installs, and mostly installs the physical
//! page that was freed last, so that its lines are the ones that caches still hold.

mod counts;
mod footprint;
mod pages;
mod run;
mod window;

use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use crate::tlb::PageSize;
pub use counts::{Accessor, AccessorLines, ByPattern, LineCounts, Misses, Reuse};
use footprint::Footprint;
use pages::{Pages, hash_of};
pub(crate) use run::Lines;
use window::{LINES_MAX, Window};

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;
/// Lines of a page.
const PAGE_LINES: u32 = (PAGE_BYTES / LINE_BYTES) as u32;
/// log2 of the lines of a page: coarser samples have at most one line of a page.
const PAGE_SHIFT: u32 = PAGE_LINES.ilog2();
/// The smallest caches, in lines. The others are larger by powers of two.
const SMALLEST: [u32; 2] = [512, 768];
/// Number of these powers of two. Sample number N has one line in 2^N.
const SAMPLES: u32 = 16;
/// The number of the finest sample that the simulator uses.
const FINEST: u32 = 2;
/// Pages of which the lines in sample number 0 are more than a window holds.
const WINDOW_PAGES: u64 = (LINES_MAX / PAGE_LINES) as u64 + 1;

/// A line that has no address, and no line after it has one.
const NO_LINE: u64 = u64::MAX - 1;

/// Misses by pattern, sequential first, and by page size, small first.
type Counters = [[u64; 2]; 2];

/// What is counted of an accessor.
#[derive(Default)]
struct AccessorCounters {
    accesses: ByPattern,
    /// By cache, in ascending order of their sizes. Not scaled.
    misses: [Counters; SMALLEST.len() * SAMPLES as usize],
    /// The line after the one that it accessed last.
    next: u64,
}

/// The lines that an access covers in one page.
struct PageLines {
    page: u64,
    /// Hash of the page.
    hash: u64,
    first: u32,
    last: u32,
    /// Whether the first line follows neither the line that was accessed last nor the accessor's own previous one.
    is_isolated: bool,
    accessor: Accessor,
}

impl PageLines {
    /// Those of them that a sample contains.
    #[inline(always)]
    fn sampled(&self, sample: u32) -> impl Iterator<Item = u32> + use<> {
        let shift = sample.min(PAGE_SHIFT);
        let step = 1 << shift;
        let mut next = self.first + ((self.hash as u32).wrapping_sub(self.first) & (step - 1));
        let is_sampled = shift == sample || (self.hash >> PAGE_SHIFT).trailing_zeros() >= sample - shift;
        let end = if is_sampled { self.last + 1 } else { 0 };
        // Less work than `step_by`, which divides to know its length.
        std::iter::from_fn(move || {
            let line = next;
            next += step;
            (line < end).then_some(line)
        })
    }

    /// As a set of bits.
    fn bits(&self) -> u64 {
        (u64::MAX >> (PAGE_LINES - 1 - self.last)) & (u64::MAX << self.first)
    }
}

/// Counts misses while accesses are reported, in their order.
pub struct LineModel {
    /// The finest sample.
    finest: u32,
    /// By sample, from the finest on.
    windows: Vec<Window>,
    pages: Pages,
    /// Pages for which the windows have room.
    room: u32,
    counters: [AccessorCounters; Accessor::ALL.len()],
    footprint: Footprint,
    /// The line that was accessed last by anybody.
    latest: u64,
}

impl Default for LineModel {
    fn default() -> LineModel {
        LineModel::new(FINEST)
    }
}

impl LineModel {
    /// A model whose finest sample has one line in 2^`finest`. From 2^`finest` times the smallest sizes on, accuracy does not
    /// depend on it; with 0, the smallest sizes are exact.
    ///
    /// # Panics
    /// If `finest` is above 6: a sample without any line of some pages.
    pub fn new(finest: u32) -> LineModel {
        assert!(finest <= PAGE_SHIFT, "the finest sample has lines of every page");
        // The finest sample serves all sizes that no finer one serves.
        let small = (0..=finest).flat_map(|shift| SMALLEST.map(|lines| lines << shift >> finest));
        let windows = std::iter::once(Window::new(small)).chain((finest + 1..SAMPLES).map(|_| Window::new(SMALLEST)));
        LineModel {
            finest,
            windows: windows.collect(),
            pages: Pages::new(),
            room: 0,
            counters: std::array::from_fn(|_| AccessorCounters { next: NO_LINE, ..Default::default() }),
            footprint: Footprint::new(finest),
            latest: NO_LINE,
        }
    }

    /// An access to bytes, at least one. `page_size` tells the size of the page that maps a 4 KiB page.
    #[inline(always)]
    pub fn access(&mut self, bytes: Range<u64>, accessor: Accessor, page_size: impl Fn(u64) -> PageSize) {
        let (first, last) = (bytes.start / LINE_BYTES, (bytes.end - 1) / LINE_BYTES);
        // The first line may be that of the access before.
        let first = first + u64::from(first == self.latest);
        if first <= last {
            self.access_lines(first, last, accessor, &page_size);
        }
    }

    #[inline(never)]
    fn access_lines(&mut self, first: u64, last: u64, accessor: Accessor, page_size: &impl Fn(u64) -> PageSize) {
        let counters = &mut self.counters[accessor as usize];
        let is_isolated = first != counters.next && first != self.latest + 1;
        counters.next = last + 1;
        counters.accesses.isolated += u64::from(is_isolated);
        counters.accesses.sequential += last - first + u64::from(!is_isolated);
        self.latest = last;
        let (page, in_page) = (first >> PAGE_SHIFT, |line: u64| line as u32 % PAGE_LINES);
        let (first_in_page, hash) = (in_page(first), hash_of(page));
        if page == last >> PAGE_SHIFT {
            let lines = PageLines { page, hash, first: first_in_page, last: in_page(last), is_isolated, accessor };
            self.access_samples(&lines, self.finest, page_size);
        } else {
            let lines = PageLines { page, hash, first: first_in_page, last: PAGE_LINES - 1, is_isolated, accessor };
            self.access_pages(lines, last, page_size);
        }
    }

    /// Accesses lines of several pages: those of the first page, and all others up to `last`. A range of more lines than a
    /// cache holds replaces all that the cache held. So only its ends matter: the first lines may hit, and the last ones
    /// stay.
    #[inline(never)]
    fn access_pages(&mut self, mut lines: PageLines, last: u64, page_size: &impl Fn(u64) -> PageSize) {
        let (first_page, last_page) = (lines.page, last >> PAGE_SHIFT);
        for page in first_page..=last_page {
            let pages_to_end = (page - first_page).min(last_page - page);
            let sample = (pages_to_end / WINDOW_PAGES).checked_ilog2().map_or(0, |shift| shift + 1).max(self.finest);
            if sample > self.finest {
                self.pass_by(&lines, sample.min(SAMPLES), page_size(page));
            }
            self.access_samples(&lines, sample, page_size);
            let next_last = if page + 1 == last_page { last as u32 % PAGE_LINES } else { PAGE_LINES - 1 };
            let hash = hash_of(page + 1);
            lines = PageLines { page: page + 1, hash, first: 0, last: next_last, is_isolated: false, ..lines };
        }
    }

    /// Counts lines as missed in the samples before `end`.
    #[inline(never)]
    fn pass_by(&mut self, lines: &PageLines, end: u32, size: PageSize) {
        for sample in self.finest..end {
            let caches = self.caches(sample, self.windows[(sample - self.finest) as usize].caches());
            for line in lines.sampled(sample) {
                self.count(lines, line, caches.clone(), size);
            }
        }
        if lines.accessor != Accessor::Kernel {
            self.footprint.add(lines.page, lines.hash, lines.bits());
        }
    }

    /// Accesses lines in the samples from `sample` on.
    #[inline(always)]
    fn access_samples(&mut self, lines: &PageLines, sample: u32, page_size: &impl Fn(u64) -> PageSize) {
        if sample >= SAMPLES || lines.sampled(sample).next().is_none() {
            return;
        }
        let number = self.pages.number(lines.page, lines.hash);
        if number >= self.room {
            self.grow(number);
        }
        if lines.accessor != Accessor::Kernel {
            let new = self.pages.add_touched(number, lines.bits());
            if new != 0 {
                self.footprint.add(lines.page, lines.hash, new);
            }
        }
        let mut size = None;
        for sample in sample..SAMPLES {
            let shift = sample.min(PAGE_SHIFT);
            let mut is_empty = true;
            for line in lines.sampled(sample) {
                is_empty = false;
                let window = &mut self.windows[(sample - self.finest) as usize];
                let missing = window.access(number << (PAGE_SHIFT - shift) | line >> shift);
                if missing > 0 {
                    self.admit(number, sample, missing);
                    let size = *size.get_or_insert_with(|| page_size(lines.page));
                    self.count(lines, line, self.caches(sample, missing), size);
                }
            }
            // The next sample is a part of this one.
            if is_empty {
                break;
            }
        }
    }

    /// Lets the first `missing` caches of a sample hold the line of page `number` that was accessed last.
    #[inline(never)]
    fn admit(&mut self, number: u32, sample: u32, missing: usize) {
        let window = &mut self.windows[(sample - self.finest) as usize];
        let evicted = (0..missing).map(|cache| window.admit(cache)).last().flatten();
        if missing == window.caches() {
            self.pages.admitted(number);
            if let Some(line) = evicted {
                self.pages.evicted(line >> (PAGE_SHIFT - sample.min(PAGE_SHIFT)));
            }
        }
    }

    /// The numbers, among all, of the first `count` caches of a sample.
    #[inline(always)]
    fn caches(&self, sample: u32, count: usize) -> Range<usize> {
        let first = if sample == self.finest { 0 } else { SMALLEST.len() * sample as usize };
        first..first + count
    }

    /// Counts a miss in caches.
    #[inline(always)]
    fn count(&mut self, lines: &PageLines, line: u32, caches: Range<usize>, size: PageSize) {
        let pattern = usize::from(lines.is_isolated && line == lines.first);
        for counters in &mut self.counters[lines.accessor as usize].misses[caches] {
            counters[pattern][usize::from(size == PageSize::Huge)] += 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, number: u32) {
        self.room = (number + 1).next_power_of_two();
        for (sample, window) in (self.finest..).zip(&mut self.windows) {
            window.grow((self.room as usize) << (PAGE_SHIFT - sample.min(PAGE_SHIFT)));
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> LineCounts {
        LineCounts {
            cache_lines: (0..SAMPLES).flat_map(|shift| SMALLEST.map(|lines| u64::from(lines) << shift)).collect(),
            accessors: Accessor::ALL.map(|accessor| self.lines_of(accessor)).to_vec(),
            footprint_lines: self.footprint.lines(),
        }
    }

    fn lines_of(&self, accessor: Accessor) -> AccessorLines {
        let counters = &self.counters[accessor as usize];
        let mut least = [[u64::MAX; 2]; 2];
        let mut misses = Vec::new();
        let mut evicts = true;
        for (sample, window) in (self.finest..).zip(&self.windows) {
            let caches = self.caches(sample, window.caches());
            for (cache, sampled) in counters.misses[caches].iter().enumerate() {
                // If a cache evicts nothing, neither does a larger one: its coarser sample would only add an error.
                if evicts {
                    // A larger cache misses no more; a coarser sample may miss a few more.
                    for (least, &sampled) in least.as_flattened_mut().iter_mut().zip(sampled.as_flattened()) {
                        *least = (*least).min(sampled << sample);
                    }
                }
                evicts &= window.is_full(cache);
                let of_size = |size: usize| ByPattern { sequential: least[0][size], isolated: least[1][size] };
                misses.push(Misses { small_pages: of_size(0), huge_pages: of_size(1) });
            }
        }
        AccessorLines { accessor, accesses: counters.accesses, misses }
    }
}
