//! The order in which the free blocks of a slab are reused.
//!
//! Freed blocks are pushed onto lists, so the last freed is first. Another order is made when a bin takes a slab's whole
//! list: nothing is done for it at a free, or at an allocation that finds a block in its bin.

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::memory::{Link, Memory};
use crate::path::Path;
use crate::policy::vocabulary::FreeOrder;

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Puts a list of free blocks of one slab, of at most `blocks_max` blocks, into the policy's order. A longer list is
    /// damaged, for instance by a double free that was not detected, and stays as it is.
    pub(crate) fn in_free_order(&self, superslab: M::SuperSlab, list: Link, blocks_max: u32) -> Link {
        if self.placement.free_order == FreeOrder::Lifo {
            return list;
        }
        self.mem.path(Path::Reordered, 1);
        let Some(blocks) = self.count_blocks(superslab, list, blocks_max) else { return list };
        match self.placement.free_order {
            FreeOrder::Lifo => list,
            FreeOrder::Fifo => self.reversed(superslab, list),
            FreeOrder::Address => self.sorted(superslab, list, blocks).0,
        }
    }

    /// Number of blocks in a list; `None` if there are more than `blocks_max`.
    fn count_blocks(&self, superslab: M::SuperSlab, mut list: Link, blocks_max: u32) -> Option<u32> {
        let mut blocks = 0;
        while let Some(start) = self.start_at(list) {
            blocks += 1;
            self.mem.path(Path::BlockCounted, 1);
            if blocks > blocks_max {
                return None;
            }
            list = self.mem.read_link(superslab, self.link_at(start));
        }
        Some(blocks)
    }

    fn reversed(&self, superslab: M::SuperSlab, mut list: Link) -> Link {
        let mut before = Link::NONE;
        while let Some(start) = self.start_at(list) {
            self.mem.path(Path::BlockReversed, 1);
            let next = self.mem.read_link(superslab, self.link_at(start));
            self.mem.write_link(superslab, self.link_at(start), before);
            (before, list) = (list, next);
        }
        before
    }

    /// Sorts the first `blocks` blocks of a list by address: a merge sort, which needs no memory besides the links.
    /// Returns the sorted list and the rest of the list.
    fn sorted(&self, superslab: M::SuperSlab, list: Link, blocks: u32) -> (Link, Link) {
        let Some(start) = self.start_at(list) else { return (Link::NONE, Link::NONE) };
        self.mem.path(Path::PartSorted, 1);
        if blocks <= 1 {
            let rest = self.mem.read_link(superslab, self.link_at(start));
            if rest != Link::NONE {
                self.mem.write_link(superslab, self.link_at(start), Link::NONE);
            }
            return (list, rest);
        }
        let (left, rest) = self.sorted(superslab, list, blocks / 2);
        let (right, rest) = self.sorted(superslab, rest, blocks - blocks / 2);
        (self.merged(superslab, left, right), rest)
    }

    /// One sorted list of the blocks of two.
    fn merged(&self, superslab: M::SuperSlab, mut left: Link, mut right: Link) -> Link {
        let (mut head, mut last) = (Link::NONE, None);
        while let (Some(of_left), Some(of_right)) = (self.start_at(left), self.start_at(right)) {
            self.mem.path(Path::BlockMerged, 1);
            let (link, start) = if of_left < of_right { (left, of_left) } else { (right, of_right) };
            let next = self.mem.read_link(superslab, self.link_at(start));
            if of_left < of_right {
                left = next
            } else {
                right = next
            }
            self.append(superslab, &mut head, last.replace(start), link);
        }
        let rest = if left == Link::NONE { right } else { left };
        self.append(superslab, &mut head, last, rest);
        head
    }

    /// Links `link` to the block at `last`, or makes it the head of a list.
    fn append(&self, superslab: M::SuperSlab, head: &mut Link, last: Option<u32>, link: Link) {
        match last {
            Some(last) => self.mem.write_link(superslab, self.link_at(last), link),
            None => *head = link,
        }
    }
}
