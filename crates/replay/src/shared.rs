//! Which page frames were shared with a child: a page whose frame changed since was copied.

use std::collections::BTreeMap;

use crate::shadow::FRAME_PAGES;
use hksim_linux::pagemap::PageMap;

/// The numbers of the page frames behind 2 MiB; 0 where there is none, or where nobody may know.
pub(crate) type FrameNumbers = [u64; FRAME_PAGES];

/// Pages that are not what they were.
pub(crate) type Changed = [bool; FRAME_PAGES];

/// What was shared at the last fork.
pub(crate) struct Shared {
    at_fork: BTreeMap<u64, Box<FrameNumbers>>,
    now: Box<FrameNumbers>,
    /// The kernel told a number.
    told: bool,
}

impl Shared {
    pub(crate) fn new() -> Shared {
        Shared { at_fork: BTreeMap::new(), now: Box::new([0; FRAME_PAGES]), told: false }
    }

    /// Notes what lies behind 2 MiB that begin at a page. It allocates.
    pub(crate) fn note(&mut self, map: &PageMap, frame: u64, first_page: u64) {
        let numbers = self.at_fork.entry(frame).or_insert_with(|| Box::new([0; FRAME_PAGES]));
        map.frame_numbers(first_page, &mut numbers[..]);
        self.told |= numbers.iter().any(|&number| number != 0);
    }

    /// The pages whose frame is another one now. It allocates nothing.
    pub(crate) fn changed(&mut self, map: &PageMap, frame: u64, first_page: u64) -> Changed {
        let Some(before) = self.at_fork.get(&frame) else { return [false; FRAME_PAGES] };
        map.frame_numbers(first_page, &mut self.now[..]);
        std::array::from_fn(|at| before[at] != self.now[at])
    }

    /// Whether the kernel tells numbers at all: it does so to root only.
    pub(crate) fn is_told(&self) -> bool {
        self.told
    }
}
