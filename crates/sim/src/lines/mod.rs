//! Reuse of cache lines: which accesses miss caches of which sizes.
//!
//! A cache of N lines with LRU replacement is modelled on a sample of the lines, as in SHARDS (Waldspurger et al., 2015):
//! a cache of N lines misses a sampled line when a cache of N/R lines misses it among the sampled lines alone, if one
//! line in R is sampled. The finest sample has every fourth line, each coarser one every eighth line of the one before.
//! A sample serves the sizes of which it has 512 to 3072 lines, the finest one also the smaller ones, down to 128: so
//! the error is 2 to 4 % of the size from 1 MiB on, and 2 to 9 % below. Memory is constant.
//!
//! Of adjacent lines, every Rth is sampled, starting at one that a hash of the page selects; above 64, every page has
//! at most one such line. So a range of lines finds its samples without a look at the others, and those of one page have
//! one entry in a `Window`.
//!
//! Pages that are dropped keep their lines: the kernel zeroes a page that it installs, and mostly installs the physical
//! page that was freed last, so that its lines are the ones that caches still hold.

mod counts;
mod footprint;
mod pages;
mod run;
mod sums;
mod window;

use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use crate::tlb::PageSize;
pub use counts::{Accessor, AccessorLines, ByPattern, LineCounts, Misses, Reuse};
use footprint::Footprint;
use pages::hash_of;
pub use run::simulate_lines;
use window::{Group, Window, bits};

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;
/// Lines of a page.
const PAGE_LINES: u32 = (PAGE_BYTES / LINE_BYTES) as u32;
/// log2 of the lines of a page: coarser samples have at most one line of a page.
const PAGE_SHIFT: u32 = PAGE_LINES.ilog2();
/// The smallest caches, in lines. The others are larger by powers of two.
const SMALLEST: [u32; 2] = [512, 768];
/// Number of these powers of two.
const DOUBLINGS: u32 = 16;
/// Number of caches.
const CACHES: usize = SMALLEST.len() * DOUBLINGS as usize;
/// The number of the finest sample that the simulator uses. Sample number N has one line in 2^N.
const FINEST: u32 = 2;
/// From one sample to the next.
const SAMPLE_STEP: u32 = 3;

/// A line that has no address, and no line after it has one.
const NO_LINE: u64 = u64::MAX - 1;

/// Misses by pattern, sequential first, and by page size, small first.
type Counters = [[u64; 2]; 2];

/// What is counted of an accessor.
#[derive(Default)]
struct AccessorCounters {
    accesses: ByPattern,
    /// By the largest cache, in ascending order, that misses these accesses although it is one of the accesses' sample.
    /// Not scaled.
    misses: [Counters; CACHES],
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
    /// Those of them that a sample contains, by their numbers among the page's lines in the sample.
    #[inline(always)]
    fn sampled(&self, sample: u32) -> Range<u32> {
        let shift = sample.min(PAGE_SHIFT);
        if shift < sample && (self.hash >> PAGE_SHIFT).trailing_zeros() < sample - shift {
            return 0..0;
        }
        let to_next = (1 << shift) - self.offset(sample);
        (self.first + to_next - 1) >> shift..(self.last + to_next) >> shift
    }

    /// The first line of the page in a sample, if the page has any.
    #[inline(always)]
    fn offset(&self, sample: u32) -> u32 {
        self.hash as u32 & ((1 << sample.min(PAGE_SHIFT)) - 1)
    }

    /// Whether a line of a sample is one that does not follow another.
    #[inline(always)]
    fn is_isolated(&self, sample: u32, line: u32) -> bool {
        self.is_isolated && self.first == line << sample.min(PAGE_SHIFT) | self.offset(sample)
    }

    /// As a set of bits.
    fn bits(&self) -> u64 {
        (u64::MAX >> (PAGE_LINES - 1 - self.last)) & (u64::MAX << self.first)
    }
}

/// The caches that a sample serves.
struct Served {
    /// By their numbers among all.
    caches: Range<usize>,
    /// log2 of the lines of the smallest, at the scale of the sample.
    smallest_shift: u32,
}

impl Served {
    /// The caches of each sample, from number `finest` on.
    fn all(finest: u32) -> impl Iterator<Item = Served> {
        (finest..DOUBLINGS).step_by(SAMPLE_STEP as usize).map(move |sample| {
            let first = if sample == finest { 0 } else { sample };
            let end = (sample + SAMPLE_STEP).min(DOUBLINGS);
            let [first_cache, end_cache] = [first, end].map(|doublings| SMALLEST.len() * doublings as usize);
            Served { caches: first_cache..end_cache, smallest_shift: SMALLEST[0].ilog2() + first - sample }
        })
    }

    /// How many of them, from the smallest on, miss a line at this distance.
    #[inline(always)]
    fn missing(&self, distance: u32) -> usize {
        // A cache hits up to its size, so these are the caches of at most this many lines. Sizes are 2 and 3 times
        // powers of two.
        let lines = distance - 1;
        match (lines >> self.smallest_shift).checked_ilog2() {
            None => 0,
            Some(doublings) => {
                let half = lines >> (self.smallest_shift + doublings - 1) & 1;
                self.caches.len().min((2 * doublings + 1 + half) as usize)
            }
        }
    }
}

/// Counts misses while accesses are reported, in their order.
pub struct LineModel {
    /// By sample, from the finest on.
    samples: Box<[(Window, Served)]>,
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
    /// A model whose finest sample has one line in 2^`finest`. With 0, the sizes that the finest sample serves are exact:
    /// those below 8 times the smallest.
    ///
    /// # Panics
    /// If `finest` is above 6: a sample without any line of some pages.
    pub fn new(finest: u32) -> LineModel {
        assert!(finest <= PAGE_SHIFT, "the finest sample has lines of every page");
        let samples = (finest..).step_by(SAMPLE_STEP as usize).zip(Served::all(finest));
        LineModel {
            samples: samples.map(|(sample, served)| (Window::new(sample), served)).collect(),
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
            self.access_samples(&lines, 0, page_size);
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
            let passed = self.samples.iter().take_while(|(window, _)| pages_to_end > window.reach_pages()).count();
            if passed > 0 {
                self.pass_by(&lines, passed, page_size(page));
            }
            self.access_samples(&lines, passed, page_size);
            let next_last = if page + 1 == last_page { last as u32 % PAGE_LINES } else { PAGE_LINES - 1 };
            let hash = hash_of(page + 1);
            lines = PageLines { page: page + 1, hash, first: 0, last: next_last, is_isolated: false, ..lines };
        }
    }

    /// Counts lines as missed in the first `passed` samples.
    #[inline(never)]
    fn pass_by(&mut self, lines: &PageLines, passed: usize, size: PageSize) {
        for (window, served) in &self.samples[..passed] {
            let sampled = lines.sampled(window.sample());
            let counters = &mut self.counters[lines.accessor as usize].misses[served.caches.end - 1];
            counters[0][usize::from(size == PageSize::Huge)] += u64::from(sampled.end - sampled.start);
        }
        if lines.accessor != Accessor::Kernel {
            self.footprint.add(lines.page, lines.bits());
        }
    }

    /// Accesses lines in the samples after the first `passed` ones.
    #[inline(always)]
    fn access_samples(&mut self, lines: &PageLines, passed: usize, page_size: &impl Fn(u64) -> PageSize) {
        let mut size = None;
        let counters = &mut self.counters[lines.accessor as usize].misses;
        for (number, (window, served)) in self.samples.iter_mut().enumerate().skip(passed) {
            let sample = window.sample();
            let sampled = lines.sampled(sample);
            // The next sample is a part of this one.
            if sampled.is_empty() {
                break;
            }
            let first = sampled.start;
            let page = window.access(lines.page, lines.hash, sampled.clone(), |group: Group| {
                let missing = served.missing(group.distance);
                if missing > 0 {
                    let size = *size.get_or_insert_with(|| page_size(lines.page));
                    let isolated = u64::from(group.first == first && lines.is_isolated(sample, first));
                    let counters = &mut counters[served.caches.start + missing - 1];
                    counters[0][usize::from(size == PageSize::Huge)] += u64::from(group.lines) - isolated;
                    counters[1][usize::from(size == PageSize::Huge)] += isolated;
                }
            });
            if number == 0 && lines.accessor != Accessor::Kernel {
                let new = bits(&sampled) & !page.touched;
                page.touched |= new;
                if new != 0 {
                    self.footprint.add(lines.page, lines.bits());
                }
            }
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> LineCounts {
        LineCounts {
            cache_lines: (0..DOUBLINGS).flat_map(|shift| SMALLEST.map(|lines| u64::from(lines) << shift)).collect(),
            accessors: Accessor::ALL.map(|accessor| self.lines_of(accessor)).to_vec(),
            footprint_lines: self.footprint.lines(),
        }
    }

    fn lines_of(&self, accessor: Accessor) -> AccessorLines {
        let counters = &self.counters[accessor as usize];
        let mut least = [[u64::MAX; 2]; 2];
        let mut misses = Vec::new();
        let mut evicts = true;
        for (window, served) in &self.samples {
            for cache in served.caches.clone() {
                // If a cache evicts nothing, neither does a larger one: its coarser sample would only add an error.
                if evicts {
                    let missed =
                        counters.misses[cache..served.caches.end].iter().map(|counters| counters.as_flattened());
                    let mut sampled = [0; 4];
                    missed.for_each(|missed| sampled.iter_mut().zip(missed).for_each(|(sum, count)| *sum += count));
                    // A larger cache misses no more; a coarser sample may miss a few more.
                    for (least, sampled) in least.as_flattened_mut().iter_mut().zip(sampled) {
                        *least = (*least).min(sampled << window.sample());
                    }
                }
                let lines = u64::from(SMALLEST[cache % 2]) << (cache / 2) >> window.sample();
                evicts &= window.has(lines);
                let of_size = |size: usize| ByPattern { sequential: least[0][size], isolated: least[1][size] };
                misses.push(Misses { small_pages: of_size(0), huge_pages: of_size(1) });
            }
        }
        AccessorLines { accessor, accesses: counters.accesses, misses }
    }
}
