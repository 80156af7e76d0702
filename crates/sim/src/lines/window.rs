//! The most recently used lines of one sample, for several sizes of a cache with exact LRU replacement.
//!
//! A log has the lines in the order of their accesses. An entry is current if it is its line's last. A cache of N lines
//! holds the lines of the N newest current entries, so all it needs is the position of the oldest of them: an access
//! hits if the line's last entry is not older. After a miss, that position moves on past stale entries and one current
//! one. Each entry is passed once for each size, so an access takes constant time, whatever the sizes.

/// Entries of the log: several times the largest size, so that it rarely has to be compacted.
const LOG: usize = 4096;
const MASK: u32 = LOG as u32 - 1;

/// The largest cache of a window.
pub(super) const LINES_MAX: u32 = 768;

/// No line.
const NONE: u32 = u32::MAX;

/// One of the caches.
#[derive(Clone, Copy)]
struct Cache {
    /// Lines that it can hold.
    size: u32,
    /// Position of its oldest entry, or of stale entries before it.
    oldest: u32,
    /// Lines held.
    lines: u32,
}

/// See the module. Positions count accesses and wrap; the log has the last [`LOG`] of them.
pub(super) struct Window {
    log: Box<[u32; LOG]>,
    /// The place in the log of each line's last entry. Stale unless that entry is of this line.
    last: Vec<u16>,
    /// Position of the next entry.
    now: u32,
    /// In ascending order of their sizes.
    caches: Box<[Cache]>,
}

impl Window {
    /// A window with caches of these sizes, ascending to at most [`LINES_MAX`].
    pub(super) fn new(sizes: impl IntoIterator<Item = u32>) -> Window {
        let caches = sizes.into_iter().map(|size| Cache { size, oldest: 0, lines: 0 }).collect();
        Window { log: Box::new([NONE; LOG]), last: Vec::new(), now: 0, caches }
    }

    /// The position before which no cache holds anything.
    fn oldest(&self) -> u32 {
        self.caches.last().map_or(self.now, |largest| largest.oldest)
    }

    /// Number of caches.
    pub(super) fn caches(&self) -> usize {
        self.caches.len()
    }

    /// Makes room for lines with numbers below `lines`.
    pub(super) fn grow(&mut self, lines: usize) {
        self.last.resize(self.last.len().max(lines), 0);
    }

    /// Accesses a line. Returns how many of the caches, from the smallest, miss it; the caller admits it to these.
    ///
    /// # Panics
    /// If there is no room for the line.
    #[inline(always)]
    pub(super) fn access(&mut self, line: u32) -> usize {
        if self.now.wrapping_sub(self.oldest()) as usize == LOG {
            self.compact();
        }
        let last = u32::from(self.last[line as usize]) & MASK;
        let age = self.now.wrapping_sub(last).wrapping_sub(1) & MASK;
        let is_known = self.log[last as usize] == line;
        let holds = |cache: &Cache| is_known && age < self.now.wrapping_sub(cache.oldest);
        let missing = self.caches.iter().position(holds).unwrap_or(self.caches.len());
        if age == 0 && missing == 0 {
            return 0;
        }
        self.append(line);
        missing
    }

    #[inline(always)]
    fn append(&mut self, line: u32) {
        self.log[(self.now & MASK) as usize] = line;
        self.last[line as usize] = (self.now & MASK) as u16;
        self.now = self.now.wrapping_add(1);
    }

    /// Adds the newest line to cache number `cache`, which missed it. Returns the line that the cache evicts.
    pub(super) fn admit(&mut self, cache: usize) -> Option<u32> {
        let Cache { size, oldest, lines } = self.caches[cache];
        if lines < size {
            self.caches[cache].lines += 1;
            return None;
        }
        let mut position = oldest;
        loop {
            let current = self.current(position);
            position = position.wrapping_add(1);
            if current.is_some() {
                self.caches[cache].oldest = position;
                return current;
            }
        }
    }

    /// Whether a cache holds as many lines as it can.
    pub(super) fn is_full(&self, cache: usize) -> bool {
        self.caches[cache].lines == self.caches[cache].size
    }

    /// The line of an entry, if the entry is current.
    #[inline(always)]
    fn current(&self, position: u32) -> Option<u32> {
        let line = self.log[(position & MASK) as usize];
        (u32::from(self.last[line as usize]) == position & MASK).then_some(line)
    }

    /// Moves the current entries to the end of the full log, in their order.
    #[cold]
    #[inline(never)]
    fn compact(&mut self) {
        let (start, end) = (self.oldest(), self.now);
        for age in (0..end.wrapping_sub(start)).rev() {
            if let Some(line) = self.current(end.wrapping_sub(age + 1)) {
                self.append(line);
            }
        }
        for cache in &mut self.caches {
            cache.oldest = self.now.wrapping_sub(cache.lines);
        }
    }
}
