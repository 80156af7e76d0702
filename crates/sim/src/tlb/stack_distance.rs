//! Misses of fully associative LRU TLBs of every size, in one pass.
//!
//! The entries that such a TLB of N entries holds are the first N of one list, the stack: a hit or miss moves its entry
//! to the front. So one distance, the position of an entry before its access, tells which sizes miss (Mattson et al.,
//! 1970). An invalidated entry leaves a hole in the stack. Every TLB that had the entry has a free place, so the next
//! entry that moves down into the hole stops there: sizes that reach the hole evict nothing.
//!
//! Each access has a time. The stack is the set of the last access times, newest first; a hole keeps the time of its
//! entry. The set is a bitmap with sums, so a distance is a number of set bits.

use std::collections::{BTreeSet, HashMap};

use super::PageSize;

/// log2 of the bits whose sum is stored, at both levels above the words.
const BLOCK_SHIFT: u32 = 12;
const SECTION_SHIFT: u32 = 18;
/// Times before the first renumbering.
const TIMES_MIN: usize = 1 << 16;

/// An entry: a page number in units of its size.
type Entry = (u64, PageSize);

/// The stack, and how often each distance occurred.
pub struct StackDistances {
    last: HashMap<Entry, u32>,
    /// The latest entry and its time, which most accesses repeat.
    latest: Option<Entry>,
    holes: BTreeSet<u32>,
    times: Times,
    now: u32,
    /// Number of accesses by distance, from 1; index 0 counts accesses to entries that no TLB holds.
    by_distance: Vec<u64>,
}

impl Default for StackDistances {
    fn default() -> StackDistances {
        StackDistances {
            last: HashMap::new(),
            latest: None,
            holes: BTreeSet::new(),
            times: Times::new(TIMES_MIN),
            now: 0,
            by_distance: vec![0; 2],
        }
    }
}

impl StackDistances {
    /// Looks up the entry for a page of 4 KiB (`page`) that is mapped with this size.
    pub fn access(&mut self, page: u64, size: PageSize) {
        let entry = (size.entry_of(page), size);
        if self.latest == Some(entry) {
            self.by_distance[1] += 1;
            return;
        }
        self.latest = Some(entry);
        if self.now as usize == self.times.len() {
            self.renumber();
        }
        let before = self.last.insert(entry, self.now);
        let distance = before.map_or(0, |time| self.times.from(time));
        let newest_hole = self.holes.last().copied();
        match (before, newest_hole) {
            // Entries above the hole move down into it, and the entry's own place becomes a hole.
            (Some(time), Some(hole)) if hole > time => {
                self.fill(hole);
                self.holes.insert(time);
            }
            (Some(time), _) => self.times.clear(time),
            (None, Some(hole)) => self.fill(hole),
            (None, None) => {}
        }
        self.times.set(self.now);
        self.now += 1;
        if distance >= self.by_distance.len() {
            self.by_distance.resize(distance + 1, 0);
        }
        self.by_distance[distance] += 1;
    }

    fn fill(&mut self, hole: u32) {
        self.holes.remove(&hole);
        self.times.clear(hole);
    }

    /// Removes the entries that map any of these 4 KiB pages.
    pub fn invalidate(&mut self, pages: std::ops::Range<u64>) {
        self.latest = None;
        for size in [PageSize::Base, PageSize::Huge] {
            let entries = size.entry_of(pages.start)..size.entry_of(pages.end.max(pages.start + 1) - 1) + 1;
            if entries.end - entries.start > self.last.len() as u64 {
                let inside = |&(number, of): &Entry| of == size && entries.contains(&number);
                let removed: Vec<u32> = self.last.extract_if(|entry, _| inside(entry)).map(|(_, time)| time).collect();
                self.holes.extend(removed);
            } else {
                self.holes.extend(entries.filter_map(|number| self.last.remove(&(number, size))));
            }
        }
    }

    /// Gives the times of the stack new numbers, from 0, in their order.
    fn renumber(&mut self) {
        let count = self.last.len() + self.holes.len();
        let mut new = Times::new((4 * count).next_power_of_two().max(TIMES_MIN));
        let rank = |times: &Times, time: u32| (count - times.from(time)) as u32;
        for time in self.last.values_mut() {
            *time = rank(&self.times, *time);
        }
        self.holes = self.holes.iter().map(|&time| rank(&self.times, time)).collect();
        (0..count as u32).for_each(|time| new.set(time));
        self.times = new;
        self.now = count as u32;
    }

    /// Number of accesses.
    pub fn accesses(&self) -> u64 {
        self.by_distance.iter().sum()
    }

    /// Misses of a TLB with this many entries; `usize::MAX` for one that never evicts.
    pub fn misses(&self, entries: usize) -> u64 {
        self.accesses() - self.by_distance.iter().skip(1).take(entries).sum::<u64>()
    }
}

/// A set of times.
struct Times {
    words: Vec<u64>,
    blocks: Vec<u32>,
    sections: Vec<u32>,
}

impl Times {
    fn new(times: usize) -> Times {
        let per = |shift: u32| times.div_ceil(1 << shift);
        Times { words: vec![0; times / 64], blocks: vec![0; per(BLOCK_SHIFT)], sections: vec![0; per(SECTION_SHIFT)] }
    }

    fn len(&self) -> usize {
        self.words.len() * 64
    }

    fn set(&mut self, time: u32) {
        self.words[time as usize / 64] |= 1 << (time % 64);
        self.blocks[(time >> BLOCK_SHIFT) as usize] += 1;
        self.sections[(time >> SECTION_SHIFT) as usize] += 1;
    }

    fn clear(&mut self, time: u32) {
        self.words[time as usize / 64] &= !(1 << (time % 64));
        self.blocks[(time >> BLOCK_SHIFT) as usize] -= 1;
        self.sections[(time >> SECTION_SHIFT) as usize] -= 1;
    }

    /// Number of times in the set that are not before `time`.
    fn from(&self, time: u32) -> usize {
        let sum = |sums: &[u32]| sums.iter().map(|&count| count as usize).sum::<usize>();
        let (word, block, section) =
            (time as usize / 64, (time >> BLOCK_SHIFT) as usize, (time >> SECTION_SHIFT) as usize);
        let words_end = ((block + 1) << (BLOCK_SHIFT - 6)).min(self.words.len());
        let blocks_end = ((section + 1) << (SECTION_SHIFT - BLOCK_SHIFT)).min(self.blocks.len());
        let in_word = (self.words[word] >> (time % 64)).count_ones() as usize;
        let in_block: usize = self.words[word + 1..words_end].iter().map(|word| word.count_ones() as usize).sum();
        in_word + in_block + sum(&self.blocks[block + 1..blocks_end]) + sum(&self.sections[section + 1..])
    }
}
