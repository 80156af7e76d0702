//! An estimate of the number of distinct lines, in constant memory.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::chunks::hash_of;
use super::sample::{CHUNK_LINES, CHUNK_SHIFT, HASHED_BITS, line_of};
use crate::number_hasher::NumberHasher;

/// Lines that are kept. A fuller set is halved, by a coarser sample.
const LINES_MAX: u32 = 2048;

/// The distinct lines of a sample.
#[derive(Clone)]
pub(super) struct Footprint {
    /// Chunks are of the sample of one line in 2^`finest`.
    finest: u32,
    /// The sample has one line in 2^`coarser` of that.
    coarser: u32,
    chunks: HashMap<u64, u64, BuildHasherDefault<NumberHasher>>,
    /// Number of lines.
    lines: u32,
}

impl Footprint {
    /// An estimate from the sample of one line in 2^`finest`, or from coarser ones.
    pub(super) fn new(finest: u32) -> Footprint {
        Footprint { finest, coarser: 0, chunks: HashMap::default(), lines: 0 }
    }

    /// Adds lines of a chunk, as a set.
    pub(super) fn add(&mut self, chunk: u64, lines: u64) {
        let sampled = lines & self.sampled(chunk);
        if sampled == 0 {
            return;
        }
        let known = self.chunks.entry(chunk).or_default();
        self.lines += (sampled & !*known).count_ones();
        *known |= sampled;
        while self.lines > LINES_MAX {
            self.halve();
        }
    }

    /// The lines of a chunk that are in the sample.
    fn sampled(&self, chunk: u64) -> u64 {
        let (finest, coarser) = (self.finest, self.coarser);
        if coarser < CHUNK_SHIFT {
            // One hash selects a line of each group.
            let hash = hash_of((chunk << (finest + CHUNK_SHIFT)) >> HASHED_BITS);
            let offset = (hash >> finest) & ((1 << coarser) - 1);
            let group = u64::MAX >> (CHUNK_LINES - (1 << coarser));
            return (u64::MAX / group) << offset;
        }
        let line = line_of(chunk >> (coarser - CHUNK_SHIFT), finest + coarser) >> finest;
        u64::from(line >> CHUNK_SHIFT == chunk) << (line % u64::from(CHUNK_LINES))
    }

    fn halve(&mut self) {
        self.coarser += 1;
        let mut chunks = std::mem::take(&mut self.chunks);
        chunks.retain(|&chunk, lines| {
            *lines &= self.sampled(chunk);
            *lines != 0
        });
        self.lines = chunks.values().map(|lines| lines.count_ones()).sum();
        self.chunks = chunks;
    }

    /// The estimate, in lines of the finest sample.
    pub(super) fn lines(&self) -> u64 {
        u64::from(self.lines) << self.coarser
    }
}
