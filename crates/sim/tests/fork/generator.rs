//! Random scripts for a process and its child.

use hksim_sim::kernel::script::{ARENA_PAGES, Op, Touch};
use hksim_sim::kernel::{Advice, BLOCK_PAGES, MapFlags, Protection, RemapSource};

use super::Step;

struct Generator(u64);

impl Generator {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Pages within the first four blocks, so that both processes meet.
    fn range(&mut self) -> (u64, u64) {
        let start = self.below(4) * BLOCK_PAGES + self.pick(&[0, 0, 0, 1, 16, 100, 256, 511]);
        let length = self.pick(&[1, 2, 16, 64, 256, 512, 512, 513, 1024, 1536]);
        (start, length.min(ARENA_PAGES - start))
    }

    fn op(&mut self) -> Op {
        let (start, length) = self.range();
        match self.below(100) {
            0..55 => {
                let touch =
                    self.pick(&[Touch::Read, Touch::WriteOne, Touch::WriteOne, Touch::WriteZero, Touch::SystemCall]);
                Op::Touch(touch, start, length, self.pick(&[1, 1, 2, 7, 64, 512]))
            }
            55..80 => {
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
                Op::Advise(advice, start, length)
            }
            80..87 => {
                let protection = self.pick(&[Protection::None, Protection::Read, Protection::ReadWrite]);
                Op::Protect(start, length, protection)
            }
            87..91 => Op::Unmap(start, length),
            91..95 => {
                let flags = MapFlags { noreserve: self.below(2) == 0, ..MapFlags::READ_WRITE };
                Op::Map(start, length, flags)
            }
            _ => {
                let new = (4 * BLOCK_PAGES + start + self.pick(&[0, 0, 1, 256])).min(ARENA_PAGES - length);
                Op::Remap(start, length, new, self.pick(&[RemapSource::Unmapped, RemapSource::Kept]))
            }
        }
    }
}

/// A script: some work, then a child beside it, once or twice.
pub fn script(seed: u64) -> Vec<Step> {
    let mut random = Generator((seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xD129_0D3F_1CE5_5A6B) | 1);
    let mut steps = Vec::new();
    if random.below(4) > 0 {
        steps.push(Step::Parent(Op::Advise(Advice::HugePage, 0, 4 * BLOCK_PAGES)));
    }
    for _ in 0..1 + random.below(2) {
        steps.extend((0..random.below(6)).map(|_| Step::Parent(random.op())));
        steps.push(Step::Fork);
        for _ in 0..random.below(8) {
            let op = random.op();
            steps.push(if random.below(2) == 0 { Step::Parent(op) } else { Step::Child(op) });
        }
        steps.push(Step::Exit);
        steps.extend((0..random.below(5)).map(|_| Step::Parent(random.op())));
    }
    steps
}
