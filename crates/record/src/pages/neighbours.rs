//! Determines whether the next block of a size class was allocated before a block was touched.
//!
//! Allocators return the blocks of a size class one after another. Before they return the first block of a page, they
//! write to the blocks on that page. If a block extends to the next page, the program's access to the block is that
//! page's first access only if no other block of its class has been allocated since.

use std::collections::HashMap;

/// Number of blocks allocated so far, by thread and size class.
#[derive(Default)]
pub struct Neighbours(HashMap<(u32, u64), u64>);

impl Neighbours {
    /// Notes that a thread has allocated a block.
    pub fn note(&mut self, thread: u32, bytes: u64) {
        *self.0.entry((thread, class(bytes))).or_default() += 1;
    }

    /// Number of blocks in the class of `bytes` that the thread has allocated.
    pub fn made(&self, thread: u32, bytes: u64) -> u64 {
        self.0.get(&(thread, class(bytes))).copied().unwrap_or_default()
    }
}

/// The size class of a block in most allocators: steps of 16 bytes, then four classes per doubling.
fn class(bytes: u64) -> u64 {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_of_the_same_class_and_thread_are_neighbours() {
        assert_eq!([1, 16, 17, 40, 48, 128, 129, 200, 1025].map(class), [16, 16, 32, 48, 48, 128, 160, 224, 1280]);
        let mut neighbours = Neighbours::default();
        neighbours.note(0, 40);
        let before = neighbours.made(0, 40);
        neighbours.note(0, 64);
        neighbours.note(1, 40);
        assert_eq!(neighbours.made(0, 40), before);
        neighbours.note(0, 48);
        assert_eq!(neighbours.made(0, 40), before + 1);
    }
}
