//! Random scripts for a process and its child.

use hksim_linux_mm::script::{ARENA_PAGES, Op, Touch};
use hksim_linux_mm::{Advice, MapFlags, PMD_PAGES, Protection, RemapSource};
use hksim_testkit::Random;

use super::Step;

struct Generator(Random);

impl Generator {
    /// First page and length of a range that starts in the first four PMD ranges, so that both processes touch the same
    /// pages.
    fn range(&mut self) -> (u64, u64) {
        let start = self.0.below(4) * PMD_PAGES + self.0.pick(&[0, 0, 0, 1, 16, 100, 256, 511]);
        let length = self.0.pick(&[1, 2, 16, 64, 256, 512, 512, 513, 1024, 1536]);
        (start, length.min(ARENA_PAGES - start))
    }

    fn op(&mut self) -> Op {
        let (start, length) = self.range();
        match self.0.below(100) {
            0..55 => {
                let touch =
                    self.0.pick(&[Touch::Read, Touch::WriteOne, Touch::WriteOne, Touch::WriteZero, Touch::SystemCall]);
                Op::Touch(touch, start, length, self.0.pick(&[1, 1, 2, 7, 64, 512]))
            }
            55..80 => {
                let advice = self.0.pick(&[
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
                    Advice::DontFork,
                    Advice::DoFork,
                    Advice::WipeOnFork,
                    Advice::WipeOnFork,
                    Advice::KeepOnFork,
                    Advice::GuardInstall,
                    Advice::GuardRemove,
                ]);
                Op::Advise(advice, start, length)
            }
            80..87 => {
                let protection = self.0.pick(&[Protection::None, Protection::Read, Protection::ReadWrite]);
                Op::Protect(start, length, protection)
            }
            87..91 => Op::Unmap(start, length),
            91..95 => {
                let flags = MapFlags { noreserve: self.0.below(2) == 0, ..MapFlags::READ_WRITE };
                Op::Map(start, length, flags)
            }
            _ => {
                let new = (4 * PMD_PAGES + start + self.0.pick(&[0, 0, 1, 256])).min(ARENA_PAGES - length);
                Op::Remap(start, length, new, self.0.pick(&[RemapSource::Unmapped, RemapSource::Kept]))
            }
        }
    }
}

/// A random script. Once or twice, the parent operates alone, then together with a child, then alone again.
pub fn script(seed: u64) -> Vec<Step> {
    let mut random = Generator(Random::new(seed));
    let mut steps = Vec::new();
    if random.0.below(4) > 0 {
        steps.push(Step::Parent(Op::Advise(Advice::HugePage, 0, 4 * PMD_PAGES)));
    }
    for _ in 0..1 + random.0.below(2) {
        steps.extend((0..random.0.below(6)).map(|_| Step::Parent(random.op())));
        steps.push(Step::Fork);
        for _ in 0..random.0.below(8) {
            let op = random.op();
            steps.push(if random.0.below(2) == 0 { Step::Parent(op) } else { Step::Child(op) });
        }
        steps.push(Step::Exit);
        steps.extend((0..random.0.below(5)).map(|_| Step::Parent(random.op())));
    }
    steps
}
