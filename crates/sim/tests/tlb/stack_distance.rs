//! The stack of all sizes against a plain LRU list for each size.

use hksim_sim::tlb::{PageSize, StackDistances};
use hksim_testkit::{Random, test_scale};

/// A fully associative TLB: the most recent entry last.
struct Plain {
    entries_max: usize,
    entries: Vec<(u64, PageSize)>,
    misses: u64,
}

fn entry(page: u64, size: PageSize) -> (u64, PageSize) {
    (page * 4096 / size.bytes(), size)
}

impl Plain {
    fn access(&mut self, page: u64, size: PageSize) {
        let wanted = entry(page, size);
        match self.entries.iter().position(|&held| held == wanted) {
            Some(at) => _ = self.entries.remove(at),
            None => {
                self.misses += 1;
                if self.entries.len() == self.entries_max {
                    self.entries.remove(0);
                }
            }
        }
        self.entries.push(wanted);
    }

    fn invalidate(&mut self, pages: std::ops::Range<u64>) {
        self.entries.retain(|&(number, size)| !pages.clone().any(|page| entry(page, size) == (number, size)));
    }
}

#[test]
fn every_size_misses_as_often_as_a_plain_list() {
    for seed in 0x71B0..0x71B0 + 12 * test_scale() {
        let mut random = Random::new(seed);
        let mut stack = StackDistances::default();
        let mut plain: Vec<Plain> = [1, 2, 3, 5, 8, 16, 64, 200, 1500]
            .map(|entries_max| Plain { entries_max, entries: Vec::new(), misses: 0 })
            .into();
        let pages = random.pick(&[20, 300, 3_000]);
        let invalidations = random.pick(&[0, 5, 60]);
        let mut at = 0;
        for _ in 0..20_000 {
            at = if random.per_mille(600) { (at + random.below(3)) % pages } else { random.below(pages) };
            if random.per_mille(invalidations) {
                let range = at..at + 1 + random.log_uniform(800);
                stack.invalidate(range.clone());
                plain.iter_mut().for_each(|tlb| tlb.invalidate(range.clone()));
                continue;
            }
            // A page may change its size without an invalidation: both entries then exist.
            let is_huge = at % 1024 < 512 || random.per_mille(20);
            let size = if is_huge { PageSize::Huge } else { PageSize::Base };
            stack.access(at, size);
            plain.iter_mut().for_each(|tlb| tlb.access(at, size));
        }
        for tlb in &plain {
            assert_eq!(stack.misses(tlb.entries_max), tlb.misses, "seed {seed:#x}, {} entries", tlb.entries_max);
        }
    }
}

#[test]
fn long_streams_are_renumbered() {
    let mut stack = StackDistances::default();
    // More entries than the list has places, so that each access takes a time.
    for round in 0..200_000u64 {
        stack.access(round % 50 * 512, PageSize::Base);
    }
    assert_eq!((stack.misses(49), stack.misses(50), stack.accesses()), (200_000, 50, 200_000));
}
