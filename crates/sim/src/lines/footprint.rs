//! An estimate of the number of distinct lines, in constant memory.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::sample::Sample;
use crate::number_hasher::NumberHasher;

/// Lines that are kept. A fuller set is halved, by a coarser sample.
const LINES_MAX: u32 = 8192;

/// The lines of a chunk.
#[derive(Clone)]
struct Lines {
    hash: u64,
    lines: u64,
}

/// The distinct lines of a sample.
#[derive(Clone)]
pub(super) struct Footprint {
    sample: Sample,
    chunks: HashMap<u64, Lines, BuildHasherDefault<NumberHasher>>,
    /// Number of lines.
    lines: u32,
}

impl Footprint {
    /// An estimate from the finest sample, or from coarser ones.
    pub(super) fn new() -> Footprint {
        Footprint { sample: Sample::new(0), chunks: HashMap::default(), lines: 0 }
    }

    /// Adds lines of a chunk, a set of lines of the finest sample.
    pub(super) fn add(&mut self, chunk: u64, hash: u64, lines: u64) {
        let sampled = if self.sample.coarser() == 0 { lines } else { lines & self.sample.of_chunk(hash) };
        if sampled == 0 {
            return;
        }
        let known = self.chunks.entry(chunk).or_insert(Lines { hash, lines: 0 });
        self.lines += (sampled & !known.lines).count_ones();
        known.lines |= sampled;
        while self.lines > LINES_MAX {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.sample = Sample::new(self.sample.coarser() + 1);
        self.chunks.retain(|_, Lines { hash, lines }| {
            *lines &= self.sample.of_chunk(*hash);
            *lines != 0
        });
        self.lines = self.chunks.values().map(|chunk| chunk.lines.count_ones()).sum();
    }

    /// The estimate, in lines of the finest sample.
    pub(super) fn lines(&self) -> u64 {
        u64::from(self.lines) << self.sample.coarser()
    }
}
