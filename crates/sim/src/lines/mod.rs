//! Reuse of cache lines: which accesses miss caches of which sizes.
//!
//! A cache of N lines with LRU replacement is modelled on a sample of the lines, as in SHARDS (Waldspurger et al., 2015):
//! a cache of N lines misses a sampled line when a cache of N/R lines misses it among the sampled lines alone, if one
//! line in R is sampled. The finest sample has every eighth line, each coarser one every eighth line of the one before.
//! A sample serves the sizes of which it has 512 to 3072 lines, the finest one also the smaller ones, down to 64: so
//! the error is 2 to 4 % of the size from 256 KiB on, and up to 12 % below. Memory is constant.
//!
//! Most accesses are to one line, which in seven of eight cases is not in the finest sample: such an access costs little
//! more than its count. Lines of a range have an entry for each chunk of the sample, whatever their number.
//!
//! Pages that are dropped keep their lines: the kernel zeroes a page that it installs, and mostly installs the physical
//! page that was freed last, so that its lines are the ones that caches still hold.

mod chunks;
mod counts;
mod footprint;
mod log;
mod run;
mod sample;
mod window;

use std::ops::Range;

use hksim_linux_mm::PMD_PAGES;
use hksim_policy::PAGE_BYTES;

use crate::tlb::PageSize;
pub(crate) use chunks::hash_of;
use counts::Pattern;
pub use counts::{Accessor, AccessorLines, BetweenFaults, ByPattern, LineCounts, Misses, Reuse};
use footprint::Footprint;
pub(crate) use run::Lines;
use sample::{CHUNK_LINES, CHUNK_SHIFT, HASHED_BITS, among, bits, is_sampled};
use window::{Group, Window};

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;
/// The smallest caches, in lines. The others are larger by powers of two.
const SMALLEST: [u32; 2] = [512, 768];
/// Number of these powers of two.
const DOUBLINGS: u32 = 16;
/// Number of caches.
const CACHES: usize = SMALLEST.len() * DOUBLINGS as usize;
/// The number of the finest sample that the simulator uses. Sample number N has one line in 2^N.
const FINEST: u32 = 3;
/// From one sample to the next.
const SAMPLE_STEP: u32 = 3;
/// Lines of a page, and of the largest huge page.
const PAGE_LINES: u64 = PAGE_BYTES / LINE_BYTES;
const HUGE_LINES: u64 = PMD_PAGES * PAGE_LINES;

/// A line that has no address, and no line after it has one.
const NO_LINE: u64 = u64::MAX - 1;

/// A line that stands for what the kernel accesses in every fault. No program has it, and every sample does.
const FAULT_LINE: u64 = 1 << 57;

/// The most lines of a short run: 8 KiB. Such runs in scattered order take four times as long beyond the last cache as the same
/// lines in order, runs of 16 KiB twice as long, and runs of 64 KiB as long (docs/lab/time-terms.md).
const SHORT_LINES: u64 = 128;

/// By pattern.
type Counted = [u64; Pattern::COUNT];
/// Misses of small pages, then of huge ones.
type Counters = [Counted; 2];

/// Who accesses, and how.
#[derive(Clone, Copy)]
struct Access {
    accessor: Accessor,
    /// The pattern of the first line.
    first: Pattern,
    /// That of the others.
    rest: Pattern,
}

/// A sample, and the caches that it serves.
#[derive(Clone)]
struct Served {
    window: Window,
    /// The sample has one line in 2^`shift`.
    shift: u32,
    /// By their numbers among all. The finest sample serves the first one, and sees to the footprint.
    caches: Range<usize>,
    /// Chunks that together have more lines in the sample than the largest cache.
    reach_chunks: u64,
}

impl Served {
    /// All samples, the finest having one line in 2^`finest`.
    fn all(finest: u32) -> impl Iterator<Item = Served> {
        (finest..DOUBLINGS).step_by(SAMPLE_STEP as usize).map(move |shift| {
            let first = if shift == finest { 0 } else { shift };
            let end = (shift + SAMPLE_STEP).min(DOUBLINGS);
            let [first, end] = [first, end].map(|doublings| SMALLEST.len() * doublings as usize);
            let sizes = (first..end).map(move |cache| (lines_of(cache) >> shift) as u32);
            let largest = lines_of(end - 1) >> shift;
            let reach_chunks = largest / u64::from(CHUNK_LINES) + 1;
            Served { window: Window::new(sizes), shift, caches: first..end, reach_chunks }
        })
    }

    /// Accesses a line of the sample.
    #[inline(always)]
    fn access_sampled(
        &mut self,
        sampled: u64,
        access: Access,
        found: &mut Found,
        page_size: &impl Fn(u64) -> PageSize,
    ) {
        let (chunk, number) = (sampled >> CHUNK_SHIFT, sampled as u32 % CHUNK_LINES);
        let Served { window, shift, caches, .. } = self;
        let (missing, known) = window.access_line(chunk, number);
        if caches.start == 0 && access.accessor != Accessor::Kernel && known.touched >> number & 1 == 0 {
            known.touched |= 1 << number;
            found.footprint.add(chunk, 1 << number);
        }
        if missing > 0 {
            let size = page_size((sampled << *shift) / PAGE_LINES);
            found.add(access.accessor, caches.start + missing - 1, size, access.first, 1);
        }
    }

    /// Accesses lines of the sample. A range of more lines than a cache holds replaces all that the cache held. So only its
    /// ends matter: the first lines may hit, and the last ones stay.
    fn access_range(
        &mut self,
        sampled: Range<u64>,
        mut access: Access,
        found: &mut Found,
        page_size: &impl Fn(u64) -> PageSize,
    ) {
        let last = sampled.end - 1;
        if sampled.start == last {
            return self.access_sampled(last, access, found, page_size);
        }
        let (first_chunk, last_chunk) = (sampled.start >> CHUNK_SHIFT, last >> CHUNK_SHIFT);
        let mut chunk = first_chunk;
        while chunk <= last_chunk {
            if chunk == first_chunk + self.reach_chunks + 1 && chunk + self.reach_chunks < last_chunk {
                self.pass_by(chunk..last_chunk - self.reach_chunks, access.accessor, found, page_size);
                chunk = last_chunk - self.reach_chunks;
            }
            let start = if chunk == first_chunk { sampled.start as u32 % CHUNK_LINES } else { 0 };
            let end = if chunk == last_chunk { last as u32 % CHUNK_LINES + 1 } else { CHUNK_LINES };
            self.access_chunk(chunk, start..end, access, found, page_size);
            access.first = access.rest;
            chunk += 1;
        }
    }

    /// Accesses lines of a chunk.
    #[inline(always)]
    fn access_chunk(
        &mut self,
        chunk: u64,
        lines: Range<u32>,
        access: Access,
        found: &mut Found,
        page_size: &impl Fn(u64) -> PageSize,
    ) {
        let Served { window, shift, caches, .. } = self;
        let (first, accessed) = (lines.start, bits(&lines));
        let known = window.access(chunk, lines, |group: Group| {
            // A huge page maps all lines of a chunk or none, but for the coarsest samples.
            let line = (chunk << CHUNK_SHIFT | u64::from(group.first)) << *shift;
            let size = page_size(line / PAGE_LINES);
            let firsts = u64::from(group.first == first);
            let largest = caches.start + group.missing - 1;
            found.add(access.accessor, largest, size, access.rest, u64::from(group.lines) - firsts);
            found.add(access.accessor, largest, size, access.first, firsts);
        });
        let new = accessed & !known.touched;
        if new != 0 && caches.start == 0 && access.accessor != Accessor::Kernel {
            known.touched |= new;
            found.footprint.add(chunk, new);
        }
    }

    /// Counts all lines of chunks as missed.
    #[cold]
    fn pass_by(&self, chunks: Range<u64>, accessor: Accessor, found: &mut Found, page_size: &impl Fn(u64) -> PageSize) {
        let huge_chunks = (HUGE_LINES >> (self.shift + CHUNK_SHIFT)).max(1);
        let mut chunk = chunks.start;
        while chunk < chunks.end {
            let end = (chunk / huge_chunks * huge_chunks + huge_chunks).min(chunks.end);
            let size = page_size((chunk << (CHUNK_SHIFT + self.shift)) / PAGE_LINES);
            let lines = u64::from(CHUNK_LINES) * (end - chunk);
            found.add(accessor, self.caches.end - 1, size, Pattern::Sequential, lines);
            chunk = end;
        }
        if self.caches.start == 0 && accessor != Accessor::Kernel {
            chunks.for_each(|chunk| found.footprint.add(chunk, u64::MAX));
        }
    }
}

/// The lines of a cache, by its number.
fn lines_of(cache: usize) -> u64 {
    u64::from(SMALLEST[cache % SMALLEST.len()]) << (cache / SMALLEST.len())
}

/// Counts misses while accesses are reported, in their order.
#[derive(Clone)]
pub struct LineModel {
    /// The lowest bits of a line's number that tell whether it is in the finest sample.
    finest_mask: u64,
    /// From the finest on.
    samples: Box<[Served]>,
    found: Found,
    /// Accesses of each accessor.
    accesses: [Counted; Accessor::ALL.len()],
    /// For each accessor, the line after the one that it accessed last.
    next: [u64; Accessor::ALL.len()],
    /// For each accessor, the lines of the run that this line would continue.
    run_lines: [u64; Accessor::ALL.len()],
    /// The line that was accessed last by anybody, and the lines of its run.
    latest: u64,
    latest_run_lines: u64,
}

/// What is found in the samples.
#[derive(Clone)]
struct Found {
    /// For each accessor, by the largest cache, in ascending order, that misses these accesses although it is one of the
    /// accesses' sample. Not scaled.
    misses: Box<[[Counters; CACHES]; Accessor::ALL.len()]>,
    footprint: Footprint,
    /// Faults that came later than in the event of the one before.
    faults: u64,
    /// Those by the largest cache that misses [`FAULT_LINE`] although it is one of a sample's.
    fault_misses: [u64; CACHES],
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
    /// If `finest` is above 3, where the smallest cache would have fewer lines of the sample than a chunk.
    pub fn new(finest: u32) -> LineModel {
        assert!(finest <= FINEST, "a sample of one line in 2^{finest} says too little of small caches");
        LineModel {
            finest_mask: (1 << finest) - 1,
            samples: Served::all(finest).collect(),
            found: Found {
                misses: Box::default(),
                footprint: Footprint::new(finest),
                faults: 0,
                fault_misses: [0; CACHES],
            },
            accesses: Default::default(),
            next: [NO_LINE; Accessor::ALL.len()],
            run_lines: Default::default(),
            latest: NO_LINE,
            latest_run_lines: 0,
        }
    }

    /// An access to bytes, at least one. `page_size` tells the size of the page that maps a 4 KiB page; it is not asked
    /// for every page.
    #[inline(always)]
    pub fn access(&mut self, bytes: Range<u64>, accessor: Accessor, page_size: impl Fn(u64) -> PageSize) {
        let (first, last) = (bytes.start / LINE_BYTES, (bytes.end - 1) / LINE_BYTES);
        // The first line may be that of the access before.
        let first = first + u64::from(first == self.latest);
        if first == last {
            self.access_line(first, accessor, &page_size);
        } else if first < last {
            self.access_range(first, last, accessor, &page_size);
        }
    }

    /// A fault outside huge pages. It counts if it `is_later` than in the event of the fault before.
    pub fn fault(&mut self, is_later: bool) {
        self.found.faults += u64::from(is_later);
        for Served { window, shift, caches, .. } in &mut self.samples {
            let sampled = FAULT_LINE >> *shift;
            let (missing, _) = window.access_line(sampled >> CHUNK_SHIFT, sampled as u32 % CHUNK_LINES);
            if is_later && missing > 0 {
                self.found.fault_misses[caches.start + missing - 1] += 1;
            }
        }
    }

    /// Counts an access to the lines from `first` to `last`, and tells how the processor finds them.
    #[inline(always)]
    fn count(&mut self, first: u64, last: u64, accessor: Accessor) -> Access {
        let by = accessor as usize;
        let (mut run, mut pattern) = (last + 1 - first, None);
        if first == self.next[by] {
            run += self.run_lines[by];
        } else if first == self.latest + 1 {
            run += self.latest_run_lines;
        } else {
            pattern = Some(Pattern::Isolated);
        }
        let rest = if run <= SHORT_LINES { Pattern::Short } else { Pattern::Sequential };
        let pattern = pattern.unwrap_or(rest);
        (self.next[by], self.run_lines[by]) = (last + 1, run);
        (self.latest, self.latest_run_lines) = (last, run);
        self.accesses[by][pattern as usize] += 1;
        self.accesses[by][rest as usize] += last - first;
        Access { accessor, first: pattern, rest }
    }

    #[inline(never)]
    fn access_line(&mut self, line: u64, accessor: Accessor, page_size: &impl Fn(u64) -> PageSize) {
        let access = self.count(line, line, accessor);
        if (line ^ hash_of(line >> HASHED_BITS)) & self.finest_mask == 0 {
            self.access_sampled(line, access, page_size);
        }
    }

    /// Accesses a line of the finest sample.
    #[inline(never)]
    fn access_sampled(&mut self, line: u64, access: Access, page_size: &impl Fn(u64) -> PageSize) {
        let finest = &mut self.samples[0];
        finest.access_sampled(line >> finest.shift, access, &mut self.found, page_size);
        if is_sampled(line, self.samples[1].shift) {
            self.access_coarser(line, access, page_size);
        }
    }

    /// Accesses a line of the second finest sample in this and coarser ones.
    #[inline(never)]
    fn access_coarser(&mut self, line: u64, access: Access, page_size: &impl Fn(u64) -> PageSize) {
        for served in self.samples[1..].iter_mut().take_while(|served| is_sampled(line, served.shift)) {
            served.access_sampled(line >> served.shift, access, &mut self.found, page_size);
        }
    }

    /// Accesses several lines.
    #[inline(never)]
    fn access_range(&mut self, first: u64, last: u64, accessor: Accessor, page_size: &impl Fn(u64) -> PageSize) {
        let access = self.count(first, last, accessor);
        for served in &mut self.samples {
            let sampled = among(first, last, served.shift);
            // The next sample is a part of this one.
            if sampled.is_empty() {
                break;
            }
            let first = if is_sampled(first, served.shift) { access.first } else { access.rest };
            served.access_range(sampled, Access { first, ..access }, &mut self.found, page_size);
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> LineCounts {
        LineCounts {
            cache_lines: (0..CACHES).map(lines_of).collect(),
            accessors: Accessor::ALL.map(|accessor| self.counts_of(accessor)).to_vec(),
            footprint_lines: self.found.footprint.lines() * (self.finest_mask + 1),
            faults: BetweenFaults { faults: self.found.faults, misses: self.fault_misses() },
        }
    }

    /// Faults that each cache misses. Every sample has all of them, so they are not scaled.
    fn fault_misses(&self) -> Vec<u64> {
        let mut least = u64::MAX;
        let of_cache = |(caches, cache): (&Range<usize>, usize)| {
            // A larger cache misses no more; a coarser sample may miss a few more.
            least = least.min(self.found.fault_misses[cache..caches.end].iter().sum());
            least
        };
        self.samples
            .iter()
            .flat_map(|served| served.caches.clone().map(|cache| (&served.caches, cache)))
            .map(of_cache)
            .collect()
    }

    fn counts_of(&self, accessor: Accessor) -> AccessorLines {
        let mut least: Counters = [[u64::MAX; Pattern::COUNT]; 2];
        let mut misses = Vec::new();
        let mut evicts = true;
        for Served { window, shift, caches, .. } in &self.samples {
            for cache in caches.clone() {
                // If a cache evicts nothing, neither does a larger one: its coarser sample would only add an error.
                if evicts {
                    let missed = &self.found.misses[accessor as usize][cache..caches.end];
                    let mut sampled = [0; 2 * Pattern::COUNT];
                    for missed in missed.iter().map(|missed| missed.as_flattened()) {
                        sampled.iter_mut().zip(missed).for_each(|(sum, count)| *sum += count);
                    }
                    // A larger cache misses no more; a coarser sample may miss a few more.
                    for (least, sampled) in least.as_flattened_mut().iter_mut().zip(sampled) {
                        *least = (*least).min(sampled << shift);
                    }
                }
                evicts &= window.fills(cache - caches.start);
                let [small_pages, huge_pages] = least.map(ByPattern::of);
                misses.push(Misses { small_pages, huge_pages });
            }
        }
        AccessorLines { accessor, accesses: ByPattern::of(self.accesses[accessor as usize]), misses }
    }
}

impl Found {
    #[inline(always)]
    fn add(&mut self, accessor: Accessor, cache: usize, size: PageSize, pattern: Pattern, count: u64) {
        self.misses[accessor as usize][cache][usize::from(size == PageSize::Huge)][pattern as usize] += count;
    }
}
