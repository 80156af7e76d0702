//! Stack distances of the lines of one sample: how many distinct lines were accessed since a line's last access.
//!
//! A log has an entry for each access to lines of a chunk, in the order of the accesses. A line belongs to its last entry
//! only. So the distance of a line is the number of lines in the entries after its own, and sums over blocks of entries
//! make that a short addition. Lines that are accessed together move together: the cost of an access depends on the
//! entries that it meets, not on its lines. Lines further down than the largest cache are forgotten when the log is full.

use std::ops::Range;

use super::chunks::{Chunk, Chunks};
use super::sample::{Sample, bits};
use super::sums::Sums;

/// Entries of the log: more than twice [`DISTANCE_MAX`], so that it rarely has to be compacted.
const LOG: usize = 8192;

/// Lines that are remembered at least: those of the largest cache of a window.
pub(super) const DISTANCE_MAX: u32 = 3072;

/// An access, and which of its lines have not been accessed since.
#[derive(Clone, Copy)]
struct Entry {
    chunk: u32,
    /// All lines of entries before this one, those that were accessed since included.
    appended_before: u32,
    lines: u64,
}

/// Neighbouring lines with the same distance.
#[derive(Clone)]
pub(super) struct Group {
    /// The first one's number in its chunk.
    pub(super) first: u32,
    /// Number of lines.
    pub(super) lines: u32,
    /// Their distance: 1 for the line that was accessed last, [`u32::MAX`] for lines that are not remembered. A near
    /// distance may be too large, but is not above the limit of near ones.
    pub(super) distance: u32,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Window {
    sample: Sample,
    /// The largest near distance.
    near: u32,
    chunks: Chunks,
    log: Vec<Entry>,
    /// The lines of each entry.
    sums: Sums<LOG>,
    /// By chunk, then by the line's number in it: the line's entry, if it is remembered.
    entry_of: Box<[u16]>,
    /// Lines of all entries, those that were accessed since included.
    appended: u32,
    /// Lines that are remembered.
    lines: u32,
}

impl Window {
    /// A window over a sample. Distances up to `near` need not be exact.
    pub(super) fn new(sample: Sample, near: u32) -> Window {
        Window {
            sample,
            near,
            chunks: Chunks::new(2 * LOG),
            log: Vec::with_capacity(LOG),
            sums: Sums::new(),
            // Each chunk has an entry.
            entry_of: vec![0; LOG << sample.chunk_shift()].into(),
            appended: 0,
            lines: 0,
        }
    }

    /// The sample.
    #[inline(always)]
    pub(super) fn sample(&self) -> Sample {
        self.sample
    }

    /// Whether at least so many distinct lines were accessed, up to [`DISTANCE_MAX`].
    pub(super) fn has(&self, lines: u64) -> bool {
        u64::from(self.lines) >= lines
    }

    /// Accesses lines of a chunk, at least one, in ascending order. Passes on their distances. Returns the chunk.
    #[inline(always)]
    pub(super) fn access(&mut self, chunk: u64, lines: Range<u32>, mut each: impl FnMut(Group)) -> &mut Chunk {
        if self.log.len() == LOG {
            self.compact();
        }
        let (number, accessed) = (self.chunks.number(chunk), bits(&lines));
        let count = lines.end - lines.start;
        if self.log.last().is_some_and(|newest| newest.chunk == number && newest.lines == accessed) {
            each(Group { first: lines.start, lines: count, distance: count });
            return self.chunks.chunk(number);
        }
        let known = self.chunks.chunk(number).known;
        let first_of_chunk = (number as usize) << self.sample.chunk_shift();
        let mut first = lines.start;
        while first < lines.end {
            let most = lines.end - first;
            let group = match known >> first {
                unknown if unknown & 1 == 0 => {
                    let run = unknown.trailing_zeros().min(most);
                    self.lines += run;
                    Group { first, lines: run, distance: u32::MAX }
                }
                _ => self.take_out(self.entry_of[first_of_chunk + first as usize], first, most, first - lines.start),
            };
            first += group.lines;
            each(group);
        }
        let at = self.log.len();
        // Mostly one line, for which `fill` takes its time.
        self.entry_of[first_of_chunk + lines.start as usize] = at as u16;
        if count > 1 {
            self.entry_of[first_of_chunk + lines.start as usize..first_of_chunk + lines.end as usize].fill(at as u16);
        }
        self.log.push(Entry { chunk: number, appended_before: self.appended, lines: accessed });
        self.appended += count;
        self.sums.add(at, count);
        let chunk = self.chunks.chunk(number);
        chunk.known |= accessed;
        chunk
    }

    /// Takes adjacent lines out of an entry, from line `first` on and at most `most`. `newer` lines are no longer in
    /// entries and not yet in a new one.
    #[inline(always)]
    fn take_out(&mut self, entry: u16, first: u32, most: u32, newer: u32) -> Group {
        let at = usize::from(entry);
        let entry = &mut self.log[at];
        let from_first = entry.lines >> first;
        let lines = (!from_first).trailing_zeros().min(most);
        let distance_most = self.appended - entry.appended_before + newer;
        let distance = if distance_most <= self.near {
            distance_most
        } else {
            self.sums.after(at) + newer + from_first.count_ones()
        };
        entry.lines &= !bits(&(first..first + lines));
        self.sums.subtract(at, lines);
        Group { first, lines, distance }
    }

    /// Removes entries without lines, and those whose lines no cache of the window holds.
    #[cold]
    #[inline(never)]
    fn compact(&mut self) {
        let mut oldest = LOG;
        self.lines = 0;
        while oldest > 0 && self.lines < DISTANCE_MAX {
            oldest -= 1;
            self.lines += self.sums.number(oldest);
        }
        self.sums.clear();
        self.appended = 0;
        let log = std::mem::replace(&mut self.log, Vec::with_capacity(LOG));
        log[..oldest].iter().filter(|entry| entry.lines != 0).for_each(|entry| {
            self.chunks.forget(entry.chunk, entry.lines);
        });
        for &Entry { chunk, lines, .. } in log[oldest..].iter().filter(|entry| entry.lines != 0) {
            let (at, count) = (self.log.len(), lines.count_ones());
            self.log.push(Entry { chunk, appended_before: self.appended, lines });
            self.appended += count;
            self.sums.add(at, count);
            let first_of_chunk = (chunk as usize) << self.sample.chunk_shift();
            let mut left = lines;
            while left != 0 {
                self.entry_of[first_of_chunk + left.trailing_zeros() as usize] = at as u16;
                left &= left - 1;
            }
        }
    }
}
