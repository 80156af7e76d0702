//! The address space that was asked for after its end: what is known of it, while its relatives go on without its memory.

use std::ops::Range;

use hksim_linux_mm::{Kernel, KhugepagedWork, PageState, StateRun};

use crate::ranges::Ranges;
use crate::regions::Regions;
use crate::report::{Prediction, by_region};
use crate::setting::Setting;
use crate::simulate::Detail;
use crate::sites::by_site;
use crate::space::{Space, Tally};

/// What is known of an address space at its end.
#[derive(Debug)]
pub(crate) struct Ended {
    /// All figures but those of regions and call sites, whose names are known later, and those of the family.
    figures: Prediction,
    /// By part of a region.
    parts: Vec<Tally>,
    /// What was present, for call sites; `None` if they were not recorded.
    pages: Option<Vec<StateRun>>,
}

impl Ended {
    /// What is known of an address space that ends now. Its memory is free afterwards.
    pub fn of(mut space: Space, setting: &Setting, detail: Detail, has_sites: bool) -> Self {
        let mut figures = Prediction::of(&mut space, setting);
        let pages = (has_sites || detail == Detail::Pages).then(|| space.pages());
        if detail == Detail::Pages {
            figures.pages = settled_pages(pages.as_deref().unwrap_or_default(), &space.kernel);
        }
        Self { figures, parts: std::mem::take(&mut space.parts), pages: pages.filter(|_| has_sites) }
    }

    /// The prediction without what concerns the whole family.
    pub fn prediction(self, regions: &Regions) -> Prediction {
        let sites = self.pages.map(|pages| by_site(&self.parts, regions, &pages));
        Prediction { sites, regions: by_region(&self.parts, regions), ..self.figures }
    }
}

/// What is present once khugepaged has scanned everything, if the configuration asks for that; otherwise `pages`.
fn settled_pages(pages: &[StateRun], kernel: &Kernel) -> Vec<StateRun> {
    if kernel.config().khugepaged.work != KhugepagedWork::Settled {
        return pages.to_vec();
    }
    let mut states = Ranges::default();
    pages.iter().for_each(|run| states.insert(run.first_page..run.first_page + run.pages, run.state));
    for (pages, state) in kernel.collapsed_by_scan() {
        states.insert(pages, state);
    }
    let run = |(pages, state): (Range<u64>, PageState)| StateRun {
        first_page: pages.start,
        pages: pages.end - pages.start,
        state,
    };
    states.iter().map(run).collect()
}
