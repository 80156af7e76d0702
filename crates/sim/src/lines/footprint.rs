//! An estimate of the number of distinct lines, in constant memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::pages::hash_of;
use super::{PAGE_LINES, PAGE_SHIFT};

/// Lines that are kept. A fuller set is halved, by a coarser sample.
const LINES_MAX: u32 = 8192;

/// Hashes pages, which nobody chooses to be hard to hash.
#[derive(Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 << 8 | u64::from(byte)));
    }

    fn write_u64(&mut self, page: u64) {
        // The table uses the lowest and the highest bits; samples leave little variety in the lowest.
        self.0 = hash_of(page).swap_bytes();
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The distinct lines of a sample.
pub(super) struct Footprint {
    /// The number of the sample: one line in 2^`sample` is in it.
    sample: u32,
    /// By page, a bit for each of its lines.
    pages: HashMap<u64, u64, BuildHasherDefault<PageHasher>>,
    /// Number of lines.
    lines: u32,
}

impl Footprint {
    /// An estimate from a sample, or from coarser ones.
    pub(super) fn new(sample: u32) -> Footprint {
        Footprint { sample, pages: HashMap::default(), lines: 0 }
    }

    /// Adds lines of a page, a set of bits. Only those matter that are in the first sample.
    pub(super) fn add(&mut self, page: u64, lines: u64) {
        let sampled = lines & lines_in(page, self.sample);
        if sampled == 0 {
            return;
        }
        let known = self.pages.entry(page).or_default();
        self.lines += (sampled & !*known).count_ones();
        *known |= sampled;
        while self.lines > LINES_MAX {
            self.sample += 1;
            let sample = self.sample;
            self.lines = 0;
            self.pages.retain(|&page, lines| {
                *lines &= lines_in(page, sample);
                self.lines += lines.count_ones();
                *lines != 0
            });
        }
    }

    /// The estimate.
    pub(super) fn lines(&self) -> u64 {
        u64::from(self.lines) << self.sample
    }
}

/// The lines of a page that are in a sample, as bits.
fn lines_in(page: u64, sample: u32) -> u64 {
    let hash = hash_of(page);
    let shift = sample.min(PAGE_SHIFT);
    if (hash >> PAGE_SHIFT).trailing_zeros() < sample - shift {
        return 0;
    }
    let every = (0..PAGE_LINES).step_by(1 << shift).fold(0, |lines, line| lines | 1 << line);
    every << (hash & ((1 << shift) - 1))
}
