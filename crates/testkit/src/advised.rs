//! The last huge-page advice for each page. Advice belongs to a mapping, and a new mapping has none.

use std::cell::RefCell;
use std::ops::Range;

use hksim_policy::Policy;
use hksim_policy::meta::{Pages, Use};
use hksim_policy::vocabulary::Huge;
use hksim_policy::{Memory, PAGE_BYTES};

/// The advice for each page of the arena.
pub(crate) struct Advised(RefCell<Vec<Option<Pages>>>);

impl Advised {
    pub(crate) fn new(arena_bytes: u64) -> Advised {
        Advised(RefCell::new(vec![None; (arena_bytes / PAGE_BYTES) as usize]))
    }

    pub(crate) fn set(&self, pages: Range<u64>, advised: Option<Pages>) {
        self.0.borrow_mut()[pages.start as usize..pages.end as usize].fill(advised);
    }

    /// Moves a mapping with its advice.
    pub(crate) fn move_pages(&self, from: Range<u64>, to: u64) {
        let mut advised = self.0.borrow_mut();
        advised.copy_within(from.start as usize..from.end as usize, to as usize);
        advised[from.start as usize..from.end as usize].fill(None);
    }

    /// Checks that the advice for SuperSlabs in use agrees with the arena table. Returns the number of SuperSlabs with
    /// small pages.
    ///
    /// # Errors
    /// Describes the first SuperSlab that disagrees.
    pub(crate) fn check(&self, memory: &impl Memory, policy: &Policy, superslab_shift: u32) -> Result<u64, String> {
        if policy.huge != Huge::Thp {
            return Ok(0);
        }
        let (advised, mut small) = (self.0.borrow(), 0);
        let pages = 1 << (superslab_shift - PAGE_BYTES.trailing_zeros());
        for ordinal in 0..memory.pool().high_water.get() {
            let entry = memory.entry(ordinal);
            if matches!(entry.usage(), Use::Free | Use::Idle | Use::Lost | Use::HugeIdle) {
                continue;
            }
            let own = &advised[ordinal as usize * pages..][..pages];
            if let Some(at) = own.iter().position(|&page| page != Some(entry.pages())) {
                return Err(format!(
                    "superslab {ordinal} is {:?} in the arena table, but its page {at} was last advised {:?}",
                    entry.pages(),
                    own[at]
                ));
            }
            small += u64::from(entry.pages() == Pages::Small);
        }
        Ok(small)
    }
}
