//! What the allocator did with a page on which it faulted. The faults of one instruction within one call are judged
//! together: only a group shows whether the allocator links blocks, or touches pages ahead of their use.

use std::collections::HashSet;
use std::ops::Range;

use hksim_policy::PAGE_BYTES;
use hksim_replay::explained::WORDS;

use crate::blocks::Blocks;
use crate::current::Current;
use crate::reason::Reason;

/// Bytes beside a block in which a header, or the mark of the block after it, is.
const HEADER_BYTES: u64 = 64;

/// An access of the allocator to a page without history.
#[derive(Clone, Debug)]
pub struct Access {
    /// Its address.
    pub address: u64,
    /// The words that were there afterwards.
    pub words: [u64; WORDS],
    /// The mapping, as far as it is one piece.
    pub mapping: Range<u64>,
    /// Whether the instruction is of a function that fills or copies memory.
    pub fills: bool,
    /// Whether it is of one that fills memory with one value.
    pub clears: bool,
}

impl Access {
    /// Whether the allocator stored the address of another place in the same mapping there, as in free blocks.
    fn is_link(&self) -> bool {
        self.points(&self.words[..1])
    }

    /// Whether such an address is near, as in free blocks with a header before the link.
    fn has_link(&self) -> bool {
        self.points(&self.words)
    }

    fn points(&self, words: &[u64]) -> bool {
        words.iter().any(|word| *word != 0 && self.mapping.contains(word))
    }
}

/// The instructions that link blocks. A single access with a pointer near may also be one to metadata, so an instruction
/// is known by several accesses in one call.
#[derive(Debug, Default)]
pub struct Linkers(HashSet<u64>);

/// What the accesses of one instruction in a call were for.
pub fn reason_of(
    (instruction, group): (u64, &[Access]),
    linkers: &mut Linkers,
    current: &Current,
    blocks: &Blocks,
) -> Reason {
    let is_alone = group.len() == 1;
    let is_inside = group.iter().all(|access| current.contains(access.address));
    if !is_alone && !is_inside && group.iter().any(Access::has_link) {
        linkers.0.insert(instruction);
    }
    if copies_block(group, current, blocks) {
        return Reason::Copy;
    }
    if group.iter().any(Access::is_link) || linkers.0.contains(&instruction) {
        return Reason::FreeList;
    }
    let fills = group.iter().any(|access| access.fills);
    let takes_back = current.frees() || current.copies();
    if takes_back && group.iter().any(|access| access.clears && is_taken_back(access.address, current, blocks)) {
        return Reason::Clearing;
    }
    if is_inside {
        return if current.zeroes() || fills {
            Reason::Zeroing
        } else if is_alone {
            Reason::FreeList
        } else {
            of_several(group)
        };
    }
    if !is_alone {
        return of_several(group);
    }
    let address = group[0].address;
    match blocks.at(address) {
        Some(block) if block.is_live && Some(block.object) != current.object() => Reason::LiveBlock,
        Some(_) => Reason::FreeList,
        None if is_beside(address, current, blocks) => Reason::Header,
        None => Reason::Metadata,
    }
}

/// Whether an instruction copies the block of a realloc: it accesses the old block and the new one only. The allocator may
/// copy the usable bytes of the old block, which are more than the requested ones. One access at the start of the new block
/// may also be one to a link.
fn copies_block(group: &[Access], current: &Current, blocks: &Blocks) -> bool {
    let is_of_blocks = |access: &Access| {
        let is_rest = is_in_old_block(access.address, current)
            && blocks.at(access.address).is_none_or(|block| Some(block.object) == current.object());
        !access.clears && (current.contains(access.address) || is_rest)
    };
    let at_start = |access: &Access| current.placed.as_ref().is_some_and(|block| block.start == access.address);
    let may_be_link = group.len() == 1 && !group[0].fills && at_start(&group[0]);
    current.copies() && !may_be_link && group.iter().all(is_of_blocks)
}

/// What several accesses of one instruction were for: those of a prefault are a page apart, others are where blocks are.
fn of_several(group: &[Access]) -> Reason {
    let mut addresses: Vec<u64> = group.iter().map(|access| access.address).collect();
    addresses.sort_unstable();
    // Links of blocks that are halved again and again are further apart each time.
    let pages_apart = addresses.windows(2).filter(|pair| pair[1] - pair[0] == PAGE_BYTES).count();
    let are_mostly_pages_apart = 2 * pages_apart >= addresses.len() - 1 && pages_apart > 0;
    let offset = addresses[0] % PAGE_BYTES;
    if are_mostly_pages_apart && addresses.iter().all(|address| address % PAGE_BYTES == offset) {
        Reason::Prefault
    } else {
        Reason::FreeList
    }
}

/// Whether an address is in the block that the event takes back, its size rounded up to a power of two, or in one that was
/// taken back before.
fn is_taken_back(address: u64, current: &Current, blocks: &Blocks) -> bool {
    is_in_old_block(address, current) || blocks.at(address).is_some_and(|block| !block.is_live)
}

/// Whether an address is in the block that the event takes back, its size rounded up to a power of two.
fn is_in_old_block(address: u64, current: &Current) -> bool {
    current.before.as_ref().is_some_and(|block| {
        let bytes = (block.end - block.start).saturating_add(HEADER_BYTES);
        let rounded = bytes.checked_next_power_of_two().unwrap_or(bytes);
        (block.start..block.start.saturating_add(rounded)).contains(&address)
    })
}

/// Whether an address is beside the block of the event: near it, near the end of its size rounded up to a power of two, or on
/// the page before it without a block between.
fn is_beside(address: u64, current: &Current, blocks: &Blocks) -> bool {
    let is_footer = current.placed.as_ref().is_some_and(|block| {
        let rounded = block.start + (block.end - block.start).next_power_of_two();
        (rounded..rounded + HEADER_BYTES).contains(&address) && !blocks.any_in(block.end..address)
    });
    if is_footer {
        return true;
    }
    current.before.iter().chain(&current.placed).any(|block| {
        let is_before = address < block.start;
        let distance = if is_before { block.start - address } else { address.saturating_sub(block.end) };
        let is_on_page_before = is_before && address / PAGE_BYTES + 1 == block.start / PAGE_BYTES;
        distance <= HEADER_BYTES || is_on_page_before && !blocks.any_in(address..block.start)
    })
}

#[cfg(test)]
mod tests {
    use hksim_trace::event::{AllocCall, Event, InitialTouch, ObjectId, Op, ReallocCall, ThreadId};

    use super::*;
    use crate::current::Object;

    fn event(call: AllocCall, placed: Range<u64>) -> Current {
        let (size, initial_touch) = (placed.end - placed.start, InitialTouch::None);
        let op = Op::Alloc { object: ObjectId(0), size, align_log2: 0, call, initial_touch };
        let current = Current::new(0, Event::new(0, ThreadId(0), op), Object::default());
        Current { placed: Some(placed), ..current }
    }

    fn access(address: u64, word: u64) -> Access {
        Access { address, words: [word, 0, 0, 0], mapping: 0x10000..0x90000, fills: false, clears: false }
    }

    #[test]
    fn groups_are_told_apart_by_links_place_and_number() {
        let mut blocks = Blocks::default();
        blocks.place(0x40000..0x40100, ObjectId(5));
        blocks.place(0x50000..0x50100, ObjectId(6));
        blocks.free(0x50000);
        let malloc = event(AllocCall::Malloc, 0x21000..0x23000);
        let pages = |first: u64| [access(first, 1), access(first + 0x1000, 1)];
        let mut linkers = Linkers::default();
        let mut of = |group: &[Access], current: &Current| reason_of((1, group), &mut linkers, current, &blocks);
        assert_eq!(of(&pages(0x30000), &malloc), Reason::Prefault);
        assert_eq!(of(&pages(0x21000), &malloc), Reason::Prefault);
        assert_eq!(of(&[access(0x30000, 1), access(0x31010, 1)], &malloc), Reason::FreeList, "not a page apart");
        assert_eq!(of(&[access(0x30000, 1), access(0x32000, 1)], &malloc), Reason::FreeList, "two pages apart");
        assert_eq!(of(&pages(0x21000), &event(AllocCall::Calloc, 0x21000..0x23000)), Reason::Zeroing);
        let filled = Access { fills: true, ..access(0x21000, 0) };
        assert_eq!(of(&[filled], &malloc), Reason::Zeroing);
        assert_eq!(of(&[access(0x21000, 0)], &malloc), Reason::FreeList);
        for header in [0x20ff0, 0x20000, 0x23008, 0x23010] {
            assert_eq!(of(&[access(header, 1)], &malloc), Reason::Header, "{header:#x}");
        }
        let odd = event(AllocCall::Malloc, 0x21000..0x22800);
        assert_eq!(of(&[access(0x23010, 1)], &odd), Reason::Header, "a footer of the block of 8 KiB");
        assert_eq!(of(&[access(0x23100, 1)], &odd), Reason::Metadata);
        let halves = [access(0x31000, 0), access(0x32000, 0), access(0x34000, 0), access(0x38000, 0)];
        assert_eq!(of(&halves, &malloc), Reason::FreeList, "links that are further apart each time");
        let op = Op::Free { object: ObjectId(0) };
        let freed = Current {
            before: Some(0x21000..0x22800),
            ..Current::new(0, Event::new(0, ThreadId(0), op), Object::default())
        };
        let cleared = pages(0x22000).map(|access| Access { fills: true, clears: true, ..access });
        assert_eq!(of(&cleared, &freed), Reason::Clearing);
        let table = pages(0x60000).map(|access| Access { fills: true, clears: true, ..access });
        assert_ne!(of(&table, &freed), Reason::Clearing, "no block was there");
        let (call, initial_touch) = (ReallocCall::Realloc, InitialTouch::None);
        let op = Op::Realloc { object: ObjectId(0), size: 0x4000, call, initial_touch };
        let moved = Current {
            before: Some(0x21000..0x22800),
            placed: Some(0x50000..0x54000),
            ..Current::new(0, Event::new(0, ThreadId(0), op), Object::default())
        };
        let copied = [access(0x50000, 0), access(0x51000, 0), access(0x22900, 0)];
        assert_eq!(of(&copied, &moved), Reason::Copy, "the rest of the old block is read");
        assert_eq!(of(&pages(0x51000), &moved), Reason::Copy);
        assert_eq!(of(&[access(0x50000, 0x30040)], &moved), Reason::FreeList, "a link at the start");
        assert_eq!(of(&[access(0x30000, 7)], &malloc), Reason::Metadata);
        assert_eq!(of(&[access(0x40010, 7)], &malloc), Reason::LiveBlock);
        assert_eq!(of(&[access(0x50010, 7)], &malloc), Reason::FreeList);
        assert_eq!(of(&[access(0x30000, 0x30040)], &malloc), Reason::FreeList, "a link");
        // A size before the link: known by two accesses, and from then on by the instruction.
        let sized = |address| Access { words: [64, address + 64, 0, 0], ..access(address, 0) };
        assert_eq!(of(&[sized(0x30000)], &malloc), Reason::Metadata);
        assert_eq!(of(&[sized(0x30000), sized(0x31000)], &malloc), Reason::FreeList);
        assert_eq!(of(&[sized(0x30000)], &malloc), Reason::FreeList);
        assert_eq!(
            of(&[access(0x50000, 0), access(0x54000, 0x58000)], &moved),
            Reason::FreeList,
            "links of new blocks"
        );
    }
}
