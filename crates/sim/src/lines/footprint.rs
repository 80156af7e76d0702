//! An estimate of the number of distinct lines, in constant memory.

use std::collections::HashSet;

use super::PAGE_SHIFT;

/// Lines that are kept. A fuller set is halved, by a coarser sample.
const LINES_MAX: usize = 8192;

/// The distinct lines of a sample.
pub(super) struct Footprint {
    /// The number of the sample: one line in 2^`sample` is in it.
    sample: u32,
    /// Each line, with the hash of its page.
    lines: HashSet<(u64, u64)>,
}

impl Footprint {
    /// An estimate from a sample, or from coarser ones.
    pub(super) fn new(sample: u32) -> Footprint {
        Footprint { sample, lines: HashSet::new() }
    }

    /// Adds lines of a page, a set of bits. Only those matter that are in the first sample.
    pub(super) fn add(&mut self, page: u64, hash: u64, lines: u64) {
        let mut left = lines;
        while left != 0 {
            let line = u64::from(left.trailing_zeros());
            left &= left - 1;
            if is_sampled(line, hash, self.sample) {
                self.lines.insert((page << PAGE_SHIFT | line, hash));
            }
        }
        while self.lines.len() > LINES_MAX {
            self.sample += 1;
            let sample = self.sample;
            self.lines.retain(|&(line, hash)| is_sampled(line, hash, sample));
        }
    }

    /// The estimate.
    pub(super) fn lines(&self) -> u64 {
        (self.lines.len() as u64) << self.sample
    }
}

/// Whether a line of a page with this hash is in a sample.
fn is_sampled(line: u64, hash: u64, sample: u32) -> bool {
    ((line ^ hash) & ((1 << PAGE_SHIFT) - 1) | hash & !((1 << PAGE_SHIFT) - 1)).trailing_zeros() >= sample
}
