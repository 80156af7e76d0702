//! Caches of several sizes on the lines of one sample.
//!
//! A chunk is 64 lines of the sample that follow each other. Lines of a chunk that are accessed together have one entry in
//! the log: the cost of an access depends on the entries that it meets, not on its lines. Lines that no cache holds are
//! forgotten when the log is full.

use std::ops::Range;

use super::chunks::{Chunk, Chunks};
use super::log::{LOG, Log};
use super::sample::{CHUNK_LINES, bits};

/// Neighbouring lines that the same caches miss.
pub(super) struct Group {
    /// The first one's number in its chunk.
    pub(super) first: u32,
    /// Number of lines.
    pub(super) lines: u32,
    /// How many caches miss them, from the smallest on.
    pub(super) missing: usize,
}

/// The latest access.
#[derive(Clone)]
struct Newest {
    chunk: u64,
    lines: u64,
    number: u16,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Window {
    chunks: Chunks,
    log: Log,
    /// By chunk, then by the line's number in it: the line's entry, if it is known.
    entry_of: Box<[[u16; CHUNK_LINES as usize]]>,
    newest: Newest,
}

impl Window {
    /// A window for caches of these sizes, ascending.
    pub(super) fn new(sizes: impl Iterator<Item = u32>) -> Window {
        Window {
            chunks: Chunks::new(2 * LOG),
            log: Log::new(sizes),
            // Each chunk has an entry.
            entry_of: vec![[0; CHUNK_LINES as usize]; LOG].into(),
            newest: Newest { chunk: 0, lines: 0, number: 0 },
        }
    }

    /// Whether a cache has had to drop lines, or will for the next one.
    pub(super) fn fills(&self, cache: usize) -> bool {
        self.log.fills(cache)
    }

    /// Accesses one line of a chunk. Returns how many caches miss it, from the smallest on, and the chunk.
    #[inline(always)]
    pub(super) fn access_line(&mut self, chunk: u64, line: u32) -> (usize, &mut Chunk) {
        let accessed = 1 << line;
        if self.newest.chunk == chunk && self.newest.lines == accessed {
            return (0, self.chunks.chunk(self.newest.number));
        }
        if self.log.is_full() {
            self.compact();
        }
        let number = self.chunks.number(chunk);
        self.newest = Newest { chunk, lines: accessed, number };
        let at = self.log.next();
        let entry = &mut self.entry_of[usize::from(number)][line as usize % CHUNK_LINES as usize];
        let before = std::mem::replace(entry, at);
        let chunk = self.chunks.chunk(number);
        let is_known = chunk.known & accessed != 0;
        chunk.known |= accessed;
        let missing = if is_known { self.log.take_line(before, line) } else { self.log.miss_in_all(1) };
        self.log.append(number, accessed, 1);
        (missing, chunk)
    }

    /// Accesses lines of a chunk, at least one, in ascending order. Passes on those that a cache misses. Returns the chunk.
    #[inline(always)]
    pub(super) fn access(&mut self, chunk: u64, lines: Range<u32>, mut missed: impl FnMut(Group)) -> &mut Chunk {
        let accessed = bits(&lines);
        if self.newest.chunk == chunk && self.newest.lines == accessed {
            return self.chunks.chunk(self.newest.number);
        }
        if self.log.is_full() {
            self.compact();
        }
        let number = self.chunks.number(chunk);
        let known = self.chunks.chunk(number).known;
        let entry_of = &mut self.entry_of[usize::from(number)];
        let mut first = lines.start;
        while first < lines.end {
            let most = lines.end - first;
            let unknown = (known >> first).trailing_zeros().min(most);
            let (lines, missing) = if unknown > 0 {
                (unknown, self.log.miss_in_all(unknown))
            } else {
                self.log.take(entry_of[first as usize], first, most, first - lines.start)
            };
            if missing > 0 {
                missed(Group { first, lines, missing });
            }
            first += lines;
        }
        let count = lines.end - lines.start;
        let at = self.log.next();
        match count {
            CHUNK_LINES => *entry_of = [at; CHUNK_LINES as usize],
            _ => entry_of[lines.start as usize..lines.end as usize].fill(at),
        }
        self.log.append(number, accessed, count);
        self.newest = Newest { chunk, lines: accessed, number };
        let chunk = self.chunks.chunk(number);
        chunk.known |= accessed;
        chunk
    }

    #[cold]
    #[inline(never)]
    fn compact(&mut self) {
        let Window { chunks, log, entry_of, .. } = self;
        let moved = |chunk: u16, mut lines: u64, at: u16| {
            while lines != 0 {
                entry_of[usize::from(chunk)][lines.trailing_zeros() as usize] = at;
                lines &= lines - 1;
            }
        };
        log.compact(|chunk, lines| chunks.forget(chunk, lines), moved);
    }
}
