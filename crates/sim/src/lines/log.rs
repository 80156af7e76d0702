//! Accesses to lines in their order, and which of them caches of several sizes hold.
//!
//! A line belongs to the last entry that has it. A cache with LRU replacement holds the lines from some place of the log
//! on. An access to a line from this place on is a hit and changes nothing for the cache; any other one moves the place, by
//! as many lines as the cache is too small. It is moved only when an access needs to know it: so most accesses cost no more
//! than an entry, and the others about the number of caches that miss.

/// Entries of the log: more than twice the lines of the largest cache, so that it rarely has to be compacted.
pub(super) const LOG: usize = 8192;
/// log2 of the lines that an entry may have.
const LINES_SHIFT: u32 = u64::BITS.ilog2();

/// An access to lines of a chunk.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// Those that were not accessed since.
    lines: u64,
    /// All lines of entries before this one, those that were accessed since included.
    before: u32,
    chunk: u16,
    /// Number of `lines`.
    count: u16,
}

/// A line of an entry. Later ones are larger.
type Place = u32;

#[inline(always)]
fn place(at: usize, line: u32) -> Place {
    (at as u32) << LINES_SHIFT | line
}

#[inline(always)]
fn entry_of(place: Place) -> usize {
    (place >> LINES_SHIFT) as usize
}

#[inline(always)]
fn line_of(place: Place) -> u32 {
    place & ((1 << LINES_SHIFT) - 1)
}

/// A cache.
#[derive(Clone)]
struct Cache {
    size: u32,
    /// Lines from `from` on. Those that are too many are the first ones.
    holds: u32,
    from: Place,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Log {
    entries: Box<[Entry; LOG]>,
    len: usize,
    /// The entries that have lines: a bit for each.
    live: Live,
    /// Lines of all entries, those that were accessed since included.
    appended: u32,
    /// In ascending order.
    caches: Box<[Cache]>,
    /// Lines that all caches missed and that they do not hold yet.
    missed: u32,
    /// The size of the smallest cache.
    smallest: u32,
    /// No cache holds lines of entries before this one.
    oldest: usize,
}

impl Log {
    /// A log for caches of these sizes, ascending, each at least as large as an entry.
    pub(super) fn new(sizes: impl Iterator<Item = u32>) -> Log {
        let caches: Box<[Cache]> = sizes.map(|size| Cache { size, holds: 0, from: 0 }).collect();
        Log {
            entries: Box::new([Entry::default(); LOG]),
            len: 0,
            live: Live::default(),
            appended: 0,
            missed: 0,
            smallest: caches.first().map_or(0, |cache| cache.size),
            oldest: 0,
            caches,
        }
    }

    /// Whether there is no room for another entry.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.len == LOG
    }

    /// Whether a cache has had to drop lines, or will for the next one.
    pub(super) fn fills(&self, cache: usize) -> bool {
        let Cache { size, holds, .. } = self.caches[cache];
        holds + self.missed >= size
    }

    /// The number of the next entry.
    #[inline(always)]
    pub(super) fn next(&self) -> u16 {
        self.len as u16
    }

    /// Appends an entry.
    #[inline(always)]
    pub(super) fn append(&mut self, chunk: u16, lines: u64, count: u32) {
        let at = self.len;
        self.entries[at] = Entry { lines, before: self.appended, chunk, count: count as u16 };
        self.live.set(at);
        self.appended += count;
        self.len = at + 1;
    }

    /// Accesses one line of entry `at`: takes it out. Returns how many caches miss it, from the smallest on.
    #[inline(always)]
    pub(super) fn take_line(&mut self, at: u16, line: u32) -> usize {
        let at = usize::from(at);
        let missing = self.missing(at, line, 1, 0);
        self.remove(at, 1 << line, 1);
        missing
    }

    /// Accesses adjacent lines of entry `at`, from line `first` on and at most `most`: takes them out. Returns how many these
    /// are, and how many caches miss them. The `newer` lines that were accessed before are not yet appended.
    #[inline(always)]
    pub(super) fn take(&mut self, at: u16, first: u32, most: u32, newer: u32) -> (u32, usize) {
        let at = usize::from(at);
        let count = (!(self.entries[at].lines >> first)).trailing_zeros().min(most);
        let missing = self.missing(at, first, count, newer);
        self.remove(at, (u64::MAX >> (u64::BITS - count)) << first, count);
        (count, missing)
    }

    #[inline(always)]
    fn remove(&mut self, at: usize, lines: u64, count: u32) {
        let entry = &mut self.entries[at];
        entry.lines &= !lines;
        entry.count -= count as u16;
        if entry.count == 0 {
            self.live.clear(at);
        }
    }

    /// Notes that all caches miss so many lines. Returns the number of caches.
    #[inline(always)]
    pub(super) fn miss_in_all(&mut self, count: u32) -> usize {
        self.missed += count;
        self.caches.len()
    }

    #[inline(always)]
    fn missing(&mut self, at: usize, first: u32, count: u32, newer: u32) -> usize {
        // Most lines are near, even if those count that were accessed again.
        if self.appended + newer - self.entries[at].before <= self.smallest {
            0
        } else if at < self.oldest {
            self.miss_in_all(count)
        } else {
            self.find_missing(place(at, first), count, newer)
        }
    }

    #[inline(never)]
    fn find_missing(&mut self, first: Place, count: u32, newer: u32) -> usize {
        self.hold_missed();
        let (mut missing, mut shrunk) = (0, false);
        for cache in &mut self.caches {
            if first >= cache.from {
                if cache.holds <= cache.size {
                    break;
                }
                cache.shrink(&self.entries[..self.len], &self.live, newer);
                shrunk = true;
                if first >= cache.from {
                    break;
                }
            }
            missing += 1;
            // If the first of adjacent lines is no longer there, neither are the others when they are accessed.
            cache.holds += count - (first + count).saturating_sub(cache.from);
        }
        if shrunk {
            self.note_oldest();
        }
        missing
    }

    /// Lets the caches hold the missed lines.
    #[inline(always)]
    fn hold_missed(&mut self) {
        let missed = std::mem::take(&mut self.missed);
        if missed > 0 {
            self.caches.iter_mut().for_each(|cache| cache.holds += missed);
        }
    }

    fn note_oldest(&mut self) {
        self.oldest = self.caches.iter().map(|cache| entry_of(cache.from)).min().unwrap_or(0);
    }

    /// Removes entries without lines, and those of which no cache holds lines. Passes the lines of these to `dropped`, and
    /// those of the others to `moved`, with the entry's number: chunk and lines.
    pub(super) fn compact(&mut self, mut dropped: impl FnMut(u16, u64), mut moved: impl FnMut(u16, u64, u16)) {
        self.hold_missed();
        for cache in self.caches.iter_mut().filter(|cache| cache.holds > cache.size) {
            cache.shrink(&self.entries[..self.len], &self.live, 0);
        }
        self.note_oldest();
        // The larger, the earlier begins what a cache holds.
        let mut caches = self.caches.iter_mut().rev().peekable();
        let (mut len, mut next) = (0, 0);
        self.appended = 0;
        while let Some(at) = self.live.next(next) {
            next = at + 1;
            let entry = self.entries[at];
            while let Some(cache) = caches.next_if(|cache| entry_of(cache.from) <= at) {
                let line = if entry_of(cache.from) == at { line_of(cache.from) } else { 0 };
                cache.from = place(len, line);
            }
            if at < self.oldest {
                dropped(entry.chunk, entry.lines);
                continue;
            }
            moved(entry.chunk, entry.lines, len as u16);
            self.entries[len] = Entry { before: self.appended, ..entry };
            self.appended += u32::from(entry.count);
            len += 1;
        }
        caches.for_each(|cache| cache.from = place(len, 0));
        self.len = len;
        self.live = Live::default();
        (0..len).for_each(|at| self.live.set(at));
        self.note_oldest();
    }
}

impl Cache {
    /// Drops what does not fit. The last `newer` lines that it holds are not yet in an entry.
    fn shrink(&mut self, entries: &[Entry], live: &Live, newer: u32) {
        let more = self.holds - self.size;
        self.holds = self.size;
        self.from =
            if more < self.size { self.after_oldest(more, entries, live) } else { newest(self.size - newer, entries) };
    }

    /// Where it begins without its oldest `more` lines, at least one.
    fn after_oldest(&self, mut more: u32, entries: &[Entry], live: &Live) -> Place {
        let (mut at, line) = (entry_of(self.from), line_of(self.from));
        if line > 0 {
            let lines = entries[at].lines >> line;
            if has_run(lines, more) {
                return self.from + more;
            }
            let count = lines.count_ones();
            if count > more {
                return self.from + nth(lines, more);
            }
            more -= count;
            at += 1;
        }
        while more > 0 {
            let Some(next) = live.next(at) else { break };
            let Entry { lines, count, .. } = entries[next];
            if u32::from(count) > more {
                return place(next, nth(lines, more));
            }
            more -= u32::from(count);
            at = next + 1;
        }
        place(at, 0)
    }
}

/// Where the newest so many lines begin.
fn newest(mut lines: u32, entries: &[Entry]) -> Place {
    for (at, entry) in entries.iter().enumerate().rev() {
        let count = u32::from(entry.count);
        if count >= lines {
            return place(at, nth(entry.lines, count - lines));
        }
        lines -= count;
    }
    0
}

/// The entries that have lines.
#[derive(Clone)]
struct Live(Box<[u64; LOG / u64::BITS as usize]>);

impl Default for Live {
    fn default() -> Live {
        Live(Box::new([0; LOG / u64::BITS as usize]))
    }
}

impl Live {
    #[inline(always)]
    fn set(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    #[inline(always)]
    fn clear(&mut self, at: usize) {
        self.0[at / 64] &= !(1 << (at % 64));
    }

    /// The first one from `at` on.
    #[inline(always)]
    fn next(&self, at: usize) -> Option<usize> {
        let mut word = at / 64;
        let mut entries = self.0.get(word)? & u64::MAX << (at % 64);
        while entries == 0 {
            word += 1;
            entries = *self.0.get(word)?;
        }
        Some(word * 64 + entries.trailing_zeros() as usize)
    }
}

/// Whether a set has the lines from 0 to `n` without a gap.
#[inline(always)]
fn has_run(lines: u64, n: u32) -> bool {
    n < u64::BITS && !lines << (u64::BITS - 1 - n) == 0
}

/// The line after the first `n` lines of a set, fewer than it has.
#[inline(always)]
fn nth(mut lines: u64, n: u32) -> u32 {
    let first = lines.trailing_zeros();
    // Mostly they follow each other.
    if has_run(lines >> first, n) {
        return first + n;
    }
    for _ in 0..n {
        lines &= lines - 1;
    }
    lines.trailing_zeros()
}
