//! What a process had when a recording of it began in the middle: the start of its address space in the model.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use hksim_linux_mm::{KnownPages, KnownTraits, Locked};
use hksim_memory_trace::{MappingAtStart, MappingTraits, PageAtStart, PagesAtStart};

use crate::ranges::Ranges;
use crate::regions::Mapped;
use crate::steps::{Action, flags_of};

/// The pages that were resident when the recording began.
///
/// A write fault in one of them shows that its entry was write-protected, which the kernel does not tell: the process, or
/// its parent, shared the page by fork before. The next fault in the page is explained by what was recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct PagesKnown {
    /// In ascending order.
    ranges: Vec<Range<u64>>,
    written: BTreeSet<u64>,
    shared_huge: Arc<SharedHuge>,
}

/// Where some process of a family mapped huge pages that it shared when the recording began. Another one can map single pages
/// of such a huge page, and its own recording does not tell that they are parts of one.
pub(crate) type SharedHuge = Ranges<()>;

impl PagesKnown {
    /// No page yet, of a process whose family shared these huge pages.
    pub fn among(shared_huge: Arc<SharedHuge>) -> Self {
        Self { shared_huge, ..Self::default() }
    }

    /// The pages as operations of the model.
    pub fn operations(&self, start: &PagesAtStart) -> Vec<Action> {
        let know = |pages, state| Action::KnowPages { pages, state };
        if start.state != PageAtStart::SmallShared {
            return vec![know(start.pages.clone(), state(start.state))];
        }
        let (mut found, mut from) = (Vec::new(), start.pages.start);
        for (huge, ()) in self.shared_huge.overlapping(&start.pages) {
            let part = huge.start.max(from)..huge.end.min(start.pages.end);
            found.push((from..part.start, KnownPages::SmallShared));
            found.push((part.clone(), KnownPages::PartShared));
            from = part.end;
        }
        found.push((from..start.pages.end, KnownPages::SmallShared));
        found.retain(|(pages, _)| !pages.is_empty());
        found.into_iter().map(|(pages, state)| know(pages, state)).collect()
    }

    /// Adds pages after the earlier ones.
    pub fn add(&mut self, pages: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ => self.ranges.push(pages),
        }
    }

    /// Whether a page was resident at the start, and this is the first recorded write to it.
    pub fn is_first_write(&mut self, page: u64) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= page);
        after > 0 && page < self.ranges[after - 1].end && self.written.insert(page)
    }
}

/// The mapping as an operation of the model.
pub(crate) fn mapping(start: &MappingAtStart, mapped: Mapped) -> Action {
    let pages = start.map.pages.clone();
    match mapped {
        Mapped::Outside(_) => Action::KnowOutside { pages },
        Mapped::Part(_) | Mapped::Stack => {
            let (flags, traits) = (flags_of(&start.map), traits_of(start.traits));
            Action::KnowMapping { pages, flags, traits, is_stack: mapped == Mapped::Stack }
        }
    }
}

fn traits_of(traits: MappingTraits) -> KnownTraits {
    let locked = match (traits.has(MappingTraits::LOCKED), traits.has(MappingTraits::LOCKED_ON_FAULT)) {
        (false, _) => Locked::No,
        (true, false) => Locked::Present,
        (true, true) => Locked::OnFault,
    };
    KnownTraits {
        huge_page: traits.has(MappingTraits::HUGE_PAGE),
        no_huge_page: traits.has(MappingTraits::NO_HUGE_PAGE),
        locked,
        accounted: traits.has(MappingTraits::ACCOUNTED),
        dont_fork: traits.has(MappingTraits::DONT_FORK),
        wipe_on_fork: traits.has(MappingTraits::WIPE_ON_FORK),
        dont_dump: traits.has(MappingTraits::DONT_DUMP),
        random: traits.has(MappingTraits::RANDOM),
        sequential: traits.has(MappingTraits::SEQUENTIAL),
        mergeable: traits.has(MappingTraits::MERGEABLE),
    }
}

/// The state of pages in the model, whatever relatives have.
fn state(state: PageAtStart) -> KnownPages {
    match state {
        PageAtStart::Small => KnownPages::Small,
        PageAtStart::SmallShared => KnownPages::SmallShared,
        PageAtStart::SmallLazy => KnownPages::SmallLazy,
        PageAtStart::Huge => KnownPages::Huge,
        PageAtStart::HugeShared => KnownPages::HugeShared,
        PageAtStart::HugeLazy => KnownPages::HugeLazy,
        PageAtStart::Zero => KnownPages::Zero,
        PageAtStart::HugeZero => KnownPages::HugeZero,
        PageAtStart::Swapped => KnownPages::Swapped,
        PageAtStart::Guard => KnownPages::Guard,
    }
}
