//! Reuse of cache lines: which accesses miss caches of which sizes.
//!
//! A cache of N lines with LRU replacement is modelled on a sample of the lines, as in SHARDS (Waldspurger et al., 2015):
//! a cache of N lines misses a sampled line when a cache of N/R lines misses it among the sampled lines alone, if one
//! line in R is sampled. The finest sample has every fourth line, each coarser one every eighth line of the one before.
//! A sample serves the sizes of which it has 512 to 3072 lines, the finest one also the smaller ones, down to 128: so
//! the error is 2 to 4 % of the size from 1 MiB on, and 2 to 9 % below. Memory is constant.
//!
//! Of adjacent lines, every Rth is sampled, starting at one that a hash of their chunk selects; coarser samples than one
//! line in a chunk have chunks selected by its hash. So a range of lines finds its samples without a look at the others,
//! and those of one chunk have one entry in a `Window`.
//!
//! Pages that are dropped keep their lines: the kernel zeroes a page that it installs, and mostly installs the physical
//! page that was freed last, so that its lines are the ones that caches still hold.

mod chunks;
mod counts;
mod footprint;
mod run;
mod sample;
mod sums;
mod window;

use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use crate::tlb::PageSize;
pub(crate) use chunks::hash_of;
pub use counts::{Accessor, AccessorLines, ByPattern, LineCounts, Misses, Reuse};
use footprint::Footprint;
pub(crate) use run::Lines;
use sample::{CHUNK_LINES, Sample, bits};
use window::{DISTANCE_MAX, Group, Window};

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;
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
#[derive(Clone, Default)]
struct AccessorCounters {
    accesses: ByPattern,
    /// By the largest cache, in ascending order, that misses these accesses although it is one of the accesses' sample.
    /// Not scaled.
    misses: [Counters; CACHES],
    /// The line after the one that it accessed last.
    next: u64,
}

/// The lines of the finest sample that an access covers in one chunk.
#[derive(Clone)]
struct ChunkLines {
    chunk: u64,
    /// Its first page. A huge page maps all pages of a chunk or none.
    page: u64,
    /// A hash of the chunk, without what selected the lines of the finest sample.
    hash: u64,
    /// By their numbers in the chunk.
    lines: Range<u32>,
    /// Whether the first of them is one that does not follow another.
    is_isolated: bool,
    accessor: Accessor,
}

/// A sample, and the caches that it serves.
#[derive(Clone)]
struct Served {
    window: Window,
    /// By their numbers among all.
    caches: Range<usize>,
    /// log2 of the sampled lines of the smallest cache.
    smallest_shift: u32,
    /// Chunks that together have more lines in the sample than the largest cache.
    reach_chunks: u64,
}

impl Served {
    /// All samples, the finest having one line in 2^`finest`.
    fn all(finest: u32) -> impl Iterator<Item = Served> {
        (finest..DOUBLINGS).step_by(SAMPLE_STEP as usize).map(move |rate_shift| {
            let first = if rate_shift == finest { 0 } else { rate_shift };
            let end = (rate_shift + SAMPLE_STEP).min(DOUBLINGS);
            let [first_cache, end_cache] = [first, end].map(|doublings| SMALLEST.len() * doublings as usize);
            let (sample, smallest_shift) = (Sample::new(rate_shift - finest), SMALLEST[0].ilog2() + first - rate_shift);
            Served {
                window: Window::new(sample, 1 << smallest_shift),
                caches: first_cache..end_cache,
                smallest_shift,
                reach_chunks: u64::from(DISTANCE_MAX / CHUNK_LINES + 1) << sample.coarser(),
            }
        })
    }
}

/// How many of a sample's caches, from the smallest on, miss a line at this distance.
#[inline(always)]
fn missing(caches: usize, smallest_shift: u32, distance: u32) -> usize {
    // A cache hits up to its size, so these are the caches of at most this many lines. Sizes are 2 and 3 times powers of
    // two.
    let lines = distance - 1;
    match (lines >> smallest_shift).checked_ilog2() {
        None => 0,
        Some(doublings) => {
            let half = lines >> (smallest_shift + doublings - 1) & 1;
            caches.min((2 * doublings + 1 + half) as usize)
        }
    }
}

/// Counts misses while accesses are reported, in their order.
#[derive(Clone)]
pub struct LineModel {
    /// The finest sample has one line in 2^`finest`.
    finest: u32,
    /// From the finest on.
    samples: Box<[Served]>,
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
    /// If `finest` is above 6, where the smallest cache would have fewer than 8 lines of the sample.
    pub fn new(finest: u32) -> LineModel {
        assert!(finest <= 6, "a sample of one line in 2^{finest} says nothing of small caches");
        LineModel {
            finest,
            samples: Served::all(finest).collect(),
            counters: std::array::from_fn(|_| AccessorCounters { next: NO_LINE, ..Default::default() }),
            footprint: Footprint::new(),
            latest: NO_LINE,
        }
    }

    /// An access to bytes, at least one. `page_size` tells the size of the page that maps a 4 KiB page; it is not asked
    /// for every page.
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
        let chunk = first >> self.chunk_shift();
        if chunk != last >> self.chunk_shift() {
            self.access_chunks(first, last, is_isolated, accessor, page_size);
        } else if first != last || (first ^ hash_of(chunk)) & ((1 << self.finest) - 1) == 0 {
            // Not for most accesses, which are to one line outside the sample.
            self.access_chunk(first, last, is_isolated, accessor, page_size);
        }
    }

    /// log2 of the lines of a chunk.
    #[inline(always)]
    fn chunk_shift(&self) -> u32 {
        CHUNK_LINES.ilog2() + self.finest
    }

    /// Those of the lines from `first` to `last`, all of one chunk, that are in the finest sample.
    #[inline(always)]
    fn sampled(&self, first: u64, last: u64, is_isolated: bool, accessor: Accessor) -> Option<ChunkLines> {
        let (chunk, finest) = (first >> self.chunk_shift(), self.finest);
        let hash = hash_of(chunk);
        let in_chunk = |line: u64| line as u32 & ((CHUNK_LINES << finest) - 1);
        let (rate, first, last) = (1 << finest, in_chunk(first), in_chunk(last));
        let offset = hash as u32 & (rate - 1);
        let lines = (first + rate - 1 - offset) >> finest..(last + rate - offset) >> finest;
        let is_isolated = is_isolated && first == lines.start << finest | offset;
        let (hash, page) = (hash >> finest, (chunk << self.chunk_shift()) / (PAGE_BYTES / LINE_BYTES));
        (lines.start < lines.end).then_some(ChunkLines { chunk, page, hash, lines, is_isolated, accessor })
    }

    /// Accesses lines of one chunk.
    #[inline(never)]
    fn access_chunk(
        &mut self,
        first: u64,
        last: u64,
        is_isolated: bool,
        accessor: Accessor,
        page_size: &impl Fn(u64) -> PageSize,
    ) {
        if let Some(lines) = self.sampled(first, last, is_isolated, accessor) {
            self.access_samples(&lines, 0, page_size);
        }
    }

    /// Accesses lines of several chunks. A range of more lines than a cache holds replaces all that the cache held. So only
    /// its ends matter: the first lines may hit, and the last ones stay.
    #[inline(never)]
    fn access_chunks(
        &mut self,
        first: u64,
        last: u64,
        is_isolated: bool,
        accessor: Accessor,
        page_size: &impl Fn(u64) -> PageSize,
    ) {
        let (first_chunk, last_chunk) = (first >> self.chunk_shift(), last >> self.chunk_shift());
        for chunk in first_chunk..=last_chunk {
            let (start, end) = (chunk << self.chunk_shift(), (chunk + 1) << self.chunk_shift());
            let is_isolated = is_isolated && chunk == first_chunk;
            let sampled = self.sampled(first.max(start), last.min(end - 1), is_isolated, accessor);
            let Some(lines) = sampled else { continue };
            let to_end = (chunk - first_chunk).min(last_chunk - chunk);
            let passed = self.samples.iter().take_while(|served| to_end > served.reach_chunks).count();
            if passed > 0 {
                self.pass_by(&lines, passed, page_size(lines.page));
            }
            self.access_samples(&lines, passed, page_size);
        }
    }

    /// Counts lines as missed in the first `passed` samples.
    fn pass_by(&mut self, lines: &ChunkLines, passed: usize, size: PageSize) {
        for Served { window, caches, .. } in &self.samples[..passed] {
            let sampled = window.sample().among(&lines.lines, lines.hash);
            let counters = &mut self.counters[lines.accessor as usize].misses[caches.end - 1];
            counters[0][usize::from(size == PageSize::Huge)] += u64::from(sampled.end - sampled.start);
        }
        if lines.accessor != Accessor::Kernel {
            self.footprint.add(lines.chunk, lines.hash, bits(&lines.lines));
        }
    }

    /// Accesses lines in the samples after the first `passed` ones.
    #[inline(always)]
    fn access_samples(&mut self, lines: &ChunkLines, passed: usize, page_size: &impl Fn(u64) -> PageSize) {
        let mut size = None;
        let counters = &mut self.counters[lines.accessor as usize].misses;
        for (number, served) in self.samples.iter_mut().enumerate().skip(passed) {
            let Served { window, caches, smallest_shift, .. } = served;
            let sample = window.sample();
            let sampled = sample.among(&lines.lines, lines.hash);
            // The next sample is a part of this one.
            if sampled.is_empty() {
                break;
            }
            let first = sampled.start;
            let is_isolated = lines.is_isolated && sample.in_finest(first, lines.hash) == lines.lines.start;
            let chunk = window.access(lines.chunk, sampled, |group: Group| {
                let missing = missing(caches.len(), *smallest_shift, group.distance);
                if missing > 0 {
                    let size = usize::from(*size.get_or_insert_with(|| page_size(lines.page)) == PageSize::Huge);
                    let isolated = u64::from(group.first == first && is_isolated);
                    let counters = &mut counters[caches.start + missing - 1];
                    counters[0][size] += u64::from(group.lines) - isolated;
                    counters[1][size] += isolated;
                }
            });
            if number == 0 && lines.accessor != Accessor::Kernel {
                let new = bits(&lines.lines) & !chunk.touched;
                chunk.touched |= new;
                if new != 0 {
                    self.footprint.add(lines.chunk, lines.hash, new);
                }
            }
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> LineCounts {
        LineCounts {
            cache_lines: (0..DOUBLINGS).flat_map(|shift| SMALLEST.map(|lines| u64::from(lines) << shift)).collect(),
            accessors: Accessor::ALL.map(|accessor| self.lines_of(accessor)).to_vec(),
            footprint_lines: self.footprint.lines() << self.finest,
        }
    }

    fn lines_of(&self, accessor: Accessor) -> AccessorLines {
        let counters = &self.counters[accessor as usize];
        let mut least = [[u64::MAX; 2]; 2];
        let mut misses = Vec::new();
        let mut evicts = true;
        for Served { window, caches, .. } in &self.samples {
            let rate_shift = self.finest + window.sample().coarser();
            for cache in caches.clone() {
                // If a cache evicts nothing, neither does a larger one: its coarser sample would only add an error.
                if evicts {
                    let missed = counters.misses[cache..caches.end].iter().map(|counters| counters.as_flattened());
                    let mut sampled = [0; 4];
                    missed.for_each(|missed| sampled.iter_mut().zip(missed).for_each(|(sum, count)| *sum += count));
                    // A larger cache misses no more; a coarser sample may miss a few more.
                    for (least, sampled) in least.as_flattened_mut().iter_mut().zip(sampled) {
                        *least = (*least).min(sampled << rate_shift);
                    }
                }
                let lines = u64::from(SMALLEST[cache % 2]) << (cache / 2) >> rate_shift;
                evicts &= window.has(lines);
                let of_size = |size: usize| ByPattern { sequential: least[0][size], isolated: least[1][size] };
                misses.push(Misses { small_pages: of_size(0), huge_pages: of_size(1) });
            }
        }
        AccessorLines { accessor, accesses: counters.accesses, misses }
    }
}
