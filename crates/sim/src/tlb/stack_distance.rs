//! Misses of fully associative LRU TLBs of every size, in one pass.
//!
//! The entries that such a TLB of N entries holds are the first N of one list, the stack: a hit or miss moves its entry
//! to the front. So one distance, the position of an entry before its access, tells which sizes miss (Mattson et al.,
//! 1970). An invalidated entry leaves a hole in the stack. Every TLB that had the entry has a free place, so the next
//! entry that moves down into the hole stops there: sizes that reach the hole evict nothing.
//!
//! The first places of the stack are a list. Each place below has the time at which it left the list: they are the set of
//! these times, newest first, and a hole keeps the time of its entry. The set is a bitmap with sums, so a distance is a number of set bits.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Range;

use super::PageSize;
use super::array::{move_to_front, position};
use super::two_level::key;
use crate::number_hasher::NumberHasher;

/// Places of the stack that are kept as a list, newest first. Most accesses find their entry there.
const NEAR: usize = 32;
/// A place of the list without an entry.
const HOLE: u64 = u64::MAX;
/// log2 of the bits whose sum is stored, at both levels above the words.
const BLOCK_SHIFT: u32 = 10;
const SECTION_SHIFT: u32 = 15;
/// Times before the first renumbering.
const TIMES_MIN: usize = 1 << 16;

/// The stack, and how often each distance occurred.
///
/// Its first places are a list; the others have times.
#[derive(Clone)]
pub struct StackDistances {
    near: Vec<u64>,
    /// Number of holes in the list.
    near_holes: usize,
    last: HashMap<u64, u32, BuildHasherDefault<NumberHasher>>,
    holes: BTreeSet<u32>,
    times: Times,
    now: u32,
    /// Number of accesses by distance, from 1; index 0 counts accesses to entries that no TLB holds.
    by_distance: Vec<u64>,
}

impl Default for StackDistances {
    fn default() -> StackDistances {
        StackDistances {
            near: Vec::with_capacity(NEAR),
            near_holes: 0,
            last: HashMap::default(),
            holes: BTreeSet::new(),
            times: Times::new(TIMES_MIN),
            now: 0,
            by_distance: vec![0; NEAR + 1],
        }
    }
}

impl StackDistances {
    /// Looks up the entry for a page of 4 KiB (`page`) that is mapped with this size.
    #[inline]
    pub fn access(&mut self, page: u64, size: PageSize) {
        let key = key(size.entry_of(page), size);
        if self.near_holes > 0 {
            return self.access_over_holes(key);
        }
        match move_to_front(&mut self.near, key) {
            Ok(place) => self.by_distance[place + 1] += 1,
            Err(left) => self.access_far(key, left),
        }
    }

    /// Looks up an entry that was not in the list, which is on top of it now. `left` is what left the list for that: its
    /// last entry if it was full; otherwise the one that belongs at its end.
    #[inline(never)]
    fn access_far(&mut self, key: u64, left: u64) {
        let before = self.count_far(key);
        let newest_hole = self.holes.last().copied();
        match (before, newest_hole) {
            (Some(time), Some(hole)) if hole > time => {
                self.fill(hole);
                self.holes.insert(time);
            }
            (Some(time), _) => self.times.clear(time),
            (None, Some(hole)) => self.fill(hole),
            (None, None) => {}
        }
        if self.near.len() < NEAR {
            return self.near.push(left);
        }
        if self.now as usize == self.times.len() {
            self.renumber();
        }
        self.times.set(self.now);
        self.last.insert(left, self.now);
        self.now += 1;
    }

    /// Counts the distance of an entry below the list, which it leaves. Returns its time; `None` if no TLB holds it.
    fn count_far(&mut self, key: u64) -> Option<u32> {
        let before = self.last.remove(&key);
        let distance = before.map_or(0, |time| self.near.len() + self.times.from(time));
        if distance >= self.by_distance.len() {
            self.by_distance.resize(distance + 1, 0);
        }
        self.by_distance[distance] += 1;
        before
    }

    /// Looks up an entry while the list has holes. Entries above the first hole move down into it, and the entry's own
    /// place becomes a hole.
    #[inline(never)]
    fn access_over_holes(&mut self, key: u64) {
        let place = position(&self.near, key);
        let hole = position(&self.near[..place.unwrap_or(self.near.len())], HOLE);
        match place {
            Some(place) => {
                self.by_distance[place + 1] += 1;
                self.near[place] = HOLE;
            }
            None => {
                let before = self.count_far(key);
                self.holes.extend(before);
            }
        }
        let to = hole.or(place).unwrap_or_default();
        self.near_holes -= usize::from(place.is_none());
        self.near.copy_within(..to, 1);
        self.near[0] = key;
    }

    fn fill(&mut self, hole: u32) {
        self.holes.remove(&hole);
        self.times.clear(hole);
    }

    /// Removes the entries that map any of these 4 KiB pages.
    pub fn invalidate(&mut self, pages: Range<u64>) {
        for size in [PageSize::Base, PageSize::Huge] {
            let entries = size.entry_of(pages.start)..size.entry_of(pages.end.max(pages.start + 1) - 1) + 1;
            let is_inside = |of: u64| of != HOLE && of == key(of >> 1, size) && entries.contains(&(of >> 1));
            for of in self.near.iter_mut().filter(|of| is_inside(**of)) {
                *of = HOLE;
                self.near_holes += 1;
            }
            if entries.end - entries.start > self.last.len() as u64 {
                let removed: Vec<u32> = self.last.extract_if(|&of, _| is_inside(of)).map(|(_, time)| time).collect();
                self.holes.extend(removed);
            } else {
                self.holes.extend(entries.filter_map(|number| self.last.remove(&key(number, size))));
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
#[derive(Clone)]
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
