//! Seeded random page-op scripts, biased to the borders of 2 MiB blocks.

use hksim_sim::kernel::script::{ARENA_PAGES, Op, Touch};
use hksim_sim::kernel::{Advice, BLOCK_PAGES, MapFlags, Protection, RemapSource};

pub struct Generator {
    state: u64,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        // Nearby seeds must not give similar scripts.
        Self { state: (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xD129_0D3F_1CE5_5A6B) | 1 }
    }

    pub fn script(&mut self) -> Vec<Op> {
        let length = 4 + self.below(20);
        let mut ops = Vec::new();
        if self.below(4) > 0 {
            let (start, length) = self.large_range();
            ops.push(Op::Advise(Advice::HugePage, start, length));
        }
        ops.extend((0..length).map(|_| self.op()));
        ops
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % limit
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn op(&mut self) -> Op {
        match self.below(100) {
            0..40 => self.touch(),
            40..68 => {
                let advice = self.pick(&[
                    Advice::HugePage,
                    Advice::NoHugePage,
                    Advice::DontNeed,
                    Advice::DontNeed,
                    Advice::Free,
                    Advice::Free,
                    Advice::Cold,
                    Advice::PopulateRead,
                    Advice::PopulateWrite,
                    Advice::Collapse,
                ]);
                let (start, length) = self.range();
                Op::Advise(advice, start, length)
            }
            68..76 => {
                let (start, length) = self.range();
                Op::Map(start, length, self.map_flags())
            }
            76..81 => {
                let (start, length) = self.range();
                Op::Unmap(start, length)
            }
            81..89 => {
                let (start, length) = self.range();
                Op::Protect(start, length, self.protection())
            }
            89..97 => self.remap(),
            _ => {
                let (start, old) = self.range();
                let new = (self.below(600) + 1).min(ARENA_PAGES - start);
                Op::Resize(start, old, new)
            }
        }
    }

    fn touch(&mut self) -> Op {
        let touch = self.pick(&[Touch::Read, Touch::WriteOne, Touch::WriteOne, Touch::WriteZero, Touch::SystemCall]);
        let (start, length) = self.range();
        let stride = self.pick(&[1, 1, 2, 7, 16, 64, 512]);
        Op::Touch(touch, start, length, stride)
    }

    fn remap(&mut self) -> Op {
        let (old, length) = self.range();
        let shift = self.pick(&[0, 0, 0, 1, 256]);
        // Equal offsets in two blocks move tables as a whole; every other distance moves entries.
        let new = (self.below(8) * BLOCK_PAGES + old % BLOCK_PAGES + shift).min(ARENA_PAGES - length);
        Op::Remap(old, length, new, self.pick(&[RemapSource::Unmapped, RemapSource::Unmapped, RemapSource::Kept]))
    }

    fn protection(&mut self) -> Protection {
        self.pick(&[Protection::None, Protection::Read, Protection::ReadWrite, Protection::ReadWrite])
    }

    fn map_flags(&mut self) -> MapFlags {
        MapFlags {
            protection: self.protection(),
            noreserve: self.below(2) == 0,
            populate: self.below(4) == 0,
            hugetlb: false,
        }
    }

    fn start(&mut self) -> u64 {
        let block = self.below(8) * BLOCK_PAGES;
        block
            + match self.below(6) {
                0..3 => 0,
                3 => self.pick(&[1, 16, 100, 256, 496, 511]),
                4 => self.below(32) * 16,
                _ => self.below(BLOCK_PAGES),
            }
    }

    fn range(&mut self) -> (u64, u64) {
        if self.below(5) == 0 {
            return self.large_range();
        }
        let start = self.start();
        let to_border = BLOCK_PAGES - start % BLOCK_PAGES;
        let length = match self.below(6) {
            0 => 1,
            1 => self.pick(&[2, 8, 16, 64, 256]),
            2 => to_border,
            3 => to_border + BLOCK_PAGES * self.below(3),
            4 => 1 + self.below(BLOCK_PAGES),
            _ => 1 + self.below(3 * BLOCK_PAGES),
        };
        (start, length.min(ARENA_PAGES - start))
    }

    fn large_range(&mut self) -> (u64, u64) {
        let start = self.below(7) * BLOCK_PAGES;
        let length = (1 + self.below(8)) * BLOCK_PAGES;
        (start, length.min(ARENA_PAGES - start))
    }
}
