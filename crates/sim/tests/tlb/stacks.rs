//! The stacks of many sizes against a plain LRU list for each size.

use hksim_sim::tlb::{MissStacks, PageSize};
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
        self.entries.retain(|&(number, size)| {
            let each = size.bytes() / 4096;
            (number + 1) * each <= pages.start || pages.end <= number * each
        });
    }
}

/// Plain lists of some sizes for one stream.
struct Plains(Vec<Plain>);

impl Plains {
    fn new() -> Plains {
        let sizes = (1..10).chain(FAR).chain([usize::MAX]);
        Plains(sizes.map(|entries_max| Plain { entries_max, entries: Vec::new(), misses: 0 }).collect())
    }

    fn access(&mut self, page: u64, size: PageSize) {
        self.0.iter_mut().for_each(|tlb| tlb.access(page, size));
    }

    fn misses(&self) -> Vec<(usize, u64)> {
        self.0.iter().map(|tlb| (tlb.entries_max, tlb.misses)).collect()
    }
}

/// Sizes above those that are always there. Some are neighbours.
const FAR: [usize; 8] = [10, 11, 16, 40, 64, 65, 200, 1500];

#[test]
fn every_size_misses_as_often_as_a_plain_list() {
    let sizes: Vec<usize> = [3, 9].into_iter().chain(FAR).collect();
    for seed in 0x71B0..0x71B0 + 12 * test_scale() {
        let mut random = Random::new(seed);
        let mut stacks = MissStacks::new(&sizes);
        let mut plain = [Plains::new(), Plains::new(), Plains::new()];
        let pages = random.pick(&[20, 300, 3_000]);
        let invalidations = random.pick(&[0, 5, 60]);
        // Without huge pages at first, and in some runs throughout.
        let first_huge = random.pick(&[0, 3_000, u64::MAX]);
        let mut at = 0;
        for step in 0..8_000 {
            at = if random.per_mille(600) { (at + random.below(3)) % pages } else { random.below(pages) };
            if random.per_mille(invalidations) {
                let range = at..at + 1 + random.log_uniform(800);
                stacks.invalidate(&range);
                plain.iter_mut().flat_map(|of| &mut of.0).for_each(|tlb| tlb.invalidate(range.clone()));
                continue;
            }
            // A page may change its size without an invalidation: both entries then exist.
            let is_huge = step >= first_huge && (at % 1024 < 512 || random.per_mille(20));
            let size = if is_huge { PageSize::Huge } else { PageSize::Base };
            let [as_mapped, all_4k, all_2m] = &mut plain;
            let before = as_mapped.misses();
            as_mapped.access(at, size);
            all_4k.access(at, PageSize::Base);
            all_2m.access(at, PageSize::Huge);
            let hit = as_mapped.0.iter().zip(before).find(|(tlb, (_, before))| tlb.misses == *before);
            let least = hit.map(|(tlb, _)| tlb.entries_max);
            assert_eq!(stacks.access(at, size), least, "seed {seed:#x}, step {step}");
        }
        let [as_mapped, all_4k, all_2m] = plain.map(|of| of.misses());
        assert_eq!(stacks.as_mapped().collect::<Vec<_>>(), as_mapped, "seed {seed:#x}");
        assert_eq!(stacks.all_4k().collect::<Vec<_>>(), all_4k, "seed {seed:#x}");
        assert_eq!(stacks.all_2m().collect::<Vec<_>>(), all_2m, "seed {seed:#x}");
    }
}

#[test]
fn an_empty_range_invalidates_nothing() {
    let mut stacks = MissStacks::new(&[]);
    stacks.access(700, PageSize::Huge);
    stacks.invalidate(&(700..700));
    assert_eq!(stacks.access(700, PageSize::Huge), Some(1));
}
