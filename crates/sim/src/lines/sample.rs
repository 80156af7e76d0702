//! Which lines are in a sample.

use std::ops::Range;

/// Lines of a chunk that are in the finest sample: one for each bit of a set.
pub(super) const CHUNK_LINES: u32 = u64::BITS;
/// log2 of that.
const CHUNK_SHIFT: u32 = CHUNK_LINES.ilog2();

/// One line in 2^N of the finest sample. A sample contains every coarser one.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    coarser: u32,
    /// log2 of the distance of its lines in a chunk, in lines of the finest sample.
    shift: u32,
    /// The bits of a chunk's hash that select its lines.
    offset_mask: u32,
    /// The bits that have to be zero for the chunk to have any.
    chunk_mask: u64,
}

impl Sample {
    /// One line in 2^`coarser`.
    pub(super) fn new(coarser: u32) -> Sample {
        let shift = coarser.min(CHUNK_SHIFT);
        let chunk_mask = ((1 << (coarser - shift)) - 1) << CHUNK_SHIFT;
        Sample { coarser, shift, offset_mask: (1 << shift) - 1, chunk_mask }
    }

    /// log2 of the lines of the finest sample for one of this.
    pub(super) fn coarser(self) -> u32 {
        self.coarser
    }

    /// log2 of its lines in a chunk that has any.
    #[inline(always)]
    pub(super) fn chunk_shift(self) -> u32 {
        CHUNK_SHIFT - self.shift
    }

    /// Those of its lines that are among `lines`, a range of a chunk's lines in the finest sample. By their numbers in the
    /// chunk.
    #[inline(always)]
    pub(super) fn among(self, lines: &Range<u32>, hash: u64) -> Range<u32> {
        if hash & self.chunk_mask != 0 {
            return 0..0;
        }
        // All bits set minus the offset: rounds up to the sample's next line.
        let to_next = self.offset_mask & !(hash as u32);
        (lines.start + to_next) >> self.shift..(lines.end + to_next) >> self.shift
    }

    /// The number in the finest sample of its line `line`.
    #[inline(always)]
    pub(super) fn in_finest(self, line: u32, hash: u64) -> u32 {
        line << self.shift | hash as u32 & self.offset_mask
    }

    /// Its lines of a chunk, as a set of lines of the finest sample.
    pub(super) fn of_chunk(self, hash: u64) -> u64 {
        self.among(&(0..CHUNK_LINES), hash).fold(0, |lines, line| lines | 1 << self.in_finest(line, hash))
    }
}

/// Lines as a set. At least one.
#[inline(always)]
pub(super) fn bits(lines: &Range<u32>) -> u64 {
    (u64::MAX >> (CHUNK_LINES - (lines.end - lines.start))) << lines.start
}
