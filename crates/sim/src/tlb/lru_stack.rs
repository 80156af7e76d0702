//! A list of entries, from most to least recently used, that tells which of some sizes a LRU array must have to hit.
//!
//! An access moves its entry to the front, and all entries above its former place down by one. The sizes cut the list into
//! zones, and an entry knows its zone. So an access costs a step for each zone above it, in which the last entry changes
//! zones, whatever the length of the list (Kim, Hill and Wood, 1991). The first places are an array instead.
//!
//! An entry that is removed leaves a hole. Every array that had the entry has a free place, so the next entry that moves
//! down into the hole stops there: arrays that reach the hole evict nothing.

use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::mem;

/// Places at the front of the list, each of which is a size of its own.
const NEAR: usize = 8;
/// A place of `near` that the list does not reach yet.
const EMPTY: u32 = u32::MAX;
/// No node. As a node, it is the one before the first and after the last.
const NONE: u32 = 0;

/// An entry or a hole.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// When it moved to the front. Times decrease along the list.
    time: u64,
    /// Its neighbours. Not used in the first places.
    before: u32,
    after: u32,
    /// 0 for the first places; zone N has the places above size `sizes[NEAR + N - 2]`, up to `sizes[NEAR + N - 1]`.
    zone: u32,
}

/// The list, and how often each size was the least that hits. Entries are numbers from 0 on.
#[derive(Clone, Debug)]
pub(super) struct LruStack {
    sizes: Vec<usize>,
    /// Accesses by the least size that hits, without those to the first entry.
    hits: Vec<u64>,
    /// Accesses to entries that are not in the list.
    new: u64,
    near: [u32; NEAR],
    nodes: Vec<Node>,
    /// The last node of each full zone, otherwise [`NONE`]. Zone 0 has none.
    last: Vec<u32>,
    /// Number of full zones, which precede the others.
    full: usize,
    /// Nodes in the zone after the full ones.
    rest: usize,
    /// The node of each entry, or [`NONE`].
    node_of: Vec<u32>,
    /// Nodes without an entry, by their time.
    holes: BinaryHeap<(u64, u32)>,
    now: u64,
}

impl LruStack {
    /// An empty list. `sizes` ascend; those up to [`NEAR`] are among its sizes anyway.
    pub fn new(sizes: &[usize]) -> LruStack {
        let far = sizes.iter().copied().filter(|&size| size > NEAR);
        let sizes: Vec<usize> = (1..=NEAR).chain(far).chain([usize::MAX]).collect();
        LruStack {
            hits: vec![0; sizes.len()],
            new: 0,
            near: [EMPTY; NEAR],
            nodes: vec![Node::default()],
            last: vec![NONE; sizes.len() - NEAR + 1],
            full: 0,
            rest: 0,
            node_of: Vec::new(),
            holes: BinaryHeap::new(),
            now: 0,
            sizes,
        }
    }

    /// Makes room for entries below this number.
    pub fn reserve(&mut self, entries: usize) {
        self.node_of.resize(entries.max(self.node_of.len()), NONE);
    }

    /// Accesses an entry. Returns the least of the sizes that hits; `None` if none does.
    #[inline(always)]
    pub fn access(&mut self, entry: usize) -> Option<usize> {
        // A hit of every size need not be counted.
        if self.node_of[entry] == self.near[0] {
            return Some(1);
        }
        self.access_below(entry)
    }

    /// As [`LruStack::access`], for an entry that is not the first.
    fn access_below(&mut self, entry: usize) -> Option<usize> {
        self.now += 1;
        let node = self.node_of[entry];
        if node == NONE || !self.holes.is_empty() {
            return self.access_with_holes(entry, node);
        }
        let at = self.move_up(node);
        self.hits[at] += 1;
        Some(self.sizes[at])
    }

    /// As [`LruStack::access`], for an entry without a node, and while there are holes.
    #[inline(never)]
    fn access_with_holes(&mut self, entry: usize, node: u32) -> Option<usize> {
        let at = (node != NONE).then(|| self.size_at(node));
        match self.fill_hole(entry, node) {
            NONE => self.insert(entry),
            moving => _ = self.move_up(moving),
        }
        *at.map_or(&mut self.new, |at| &mut self.hits[at]) += 1;
        at.map(|at| self.sizes[at])
    }

    /// The number of the least size that reaches a node.
    fn size_at(&self, node: u32) -> usize {
        match self.nodes[node as usize].zone as usize {
            0 => self.near.iter().take_while(|&&near| near != node).count(),
            zone => NEAR - 1 + zone,
        }
    }

    /// If the newest hole is above an entry's node, or the entry has none: gives the hole to the entry, and its node
    /// becomes a hole. Returns the node that the entry has then.
    fn fill_hole(&mut self, entry: usize, node: u32) -> u32 {
        let time = self.nodes[node as usize].time;
        let Some(mut newest) = self.holes.peek_mut() else { return node };
        let (hole_time, hole) = *newest;
        if node == NONE {
            PeekMut::pop(newest);
        } else if hole_time > time {
            *newest = (time, node);
        } else {
            return node;
        }
        self.node_of[entry] = hole;
        hole
    }

    /// Moves a node of the list to the front. Returns the number of the least size that reached it.
    #[inline(always)]
    fn move_up(&mut self, node: u32) -> usize {
        let Node { time, zone, .. } = &mut self.nodes[node as usize];
        *time = self.now;
        let zone = mem::take(zone) as usize;
        if zone == 0 {
            return self.move_up_near(node);
        }
        let left = self.push_near(node);
        self.push_far(left);
        let Node { before, after, .. } = self.nodes[node as usize];
        self.nodes[before as usize].after = after;
        self.nodes[after as usize].before = before;
        if self.last[zone] == node {
            self.last[zone] = before;
        }
        self.pass_down(zone);
        NEAR - 1 + zone
    }

    /// As [`LruStack::move_up`], for one of the first places.
    #[inline(always)]
    fn move_up_near(&mut self, node: u32) -> usize {
        let mut moving = node;
        for (place, slot) in self.near.iter_mut().enumerate() {
            moving = mem::replace(slot, moving);
            if moving == node {
                return place;
            }
        }
        unreachable!("a node in zone 0 has one of the first places")
    }

    /// Puts a new node at the front.
    #[cold]
    fn insert(&mut self, entry: usize) {
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { time: self.now, ..Node::default() });
        self.node_of[entry] = node;
        let left = self.push_near(node);
        if left == EMPTY {
            return;
        }
        let zone = self.full + 1;
        self.push_far(left);
        self.pass_down(zone);
        self.rest += 1;
        let least = NEAR - 2 + zone;
        if self.rest == self.sizes[least + 1] - self.sizes[least] {
            self.last[zone] = self.nodes[NONE as usize].before;
            self.full += 1;
            self.rest = 0;
        }
    }

    /// Puts a node on the first place. Returns the node that leaves the first places for it.
    #[inline(always)]
    fn push_near(&mut self, node: u32) -> u32 {
        let left = self.near[NEAR - 1];
        self.near.copy_within(..NEAR - 1, 1);
        self.near[0] = node;
        left
    }

    /// Puts a node on the first place of zone 1.
    #[inline(always)]
    fn push_far(&mut self, node: u32) {
        let first = mem::replace(&mut self.nodes[NONE as usize].after, node);
        self.nodes[first as usize].before = node;
        let pushed = &mut self.nodes[node as usize];
        (pushed.before, pushed.after, pushed.zone) = (NONE, first, 1);
    }

    /// Moves the last node of each zone before this one to the next zone.
    #[inline(always)]
    fn pass_down(&mut self, zone: usize) {
        for last in &mut self.last[1..zone] {
            let moved = &mut self.nodes[*last as usize];
            moved.zone += 1;
            *last = moved.before;
        }
    }

    /// Removes an entry, if it is in the list.
    pub fn remove(&mut self, entry: usize) {
        let node = mem::replace(&mut self.node_of[entry], NONE);
        if node != NONE {
            self.holes.push((self.nodes[node as usize].time, node));
        }
    }

    /// Misses of all sizes, in ascending order. The last, `usize::MAX`, is that of an array that never evicts.
    pub fn misses(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let not_first = self.new + self.hits.iter().sum::<u64>();
        self.sizes.iter().zip(&self.hits).scan(not_first, |misses, (&size, hits)| {
            *misses -= hits;
            Some((size, *misses))
        })
    }
}
