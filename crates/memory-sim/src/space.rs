//! One address space under one setting.

use std::collections::BTreeMap;
use std::sync::Arc;

use hksim_linux_mm::{
    Access, Advice, ByKind, Install, Kernel, MapFlags, Obstacles, Outcome, PMD_PAGES, PageState, StateRun,
};

use hksim_memory_trace::PAGE_BYTES;

use crate::advisers::Advisers;
use crate::limit::WrittenFilePages;
use crate::page_work::{AtExit, Calls, PageWork, Spacing};
use crate::perform::Edits;
use crate::regions::PartId;
use crate::report::ObstacleCount;
use crate::setting::{Advise, Setting};
use crate::stacks::Stacks;
use crate::steps::{Action, Step};
use crate::timeline::{AtMoments, Sample, Timeline};
use crate::unseen_writes::AfterFree;

/// What the touches of some memory cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Recorded first touches.
    pub touches: u64,
    /// Predicted exceptions.
    pub traps: u64,
    pub installs: ByKind,
    /// Pages that the installs made present.
    pub pages_installed: u64,
    /// Installs of less than a huge page, by what refused one.
    pub obstacles: BTreeMap<Obstacles, u64>,
}

/// One address space under one setting.
#[derive(Debug)]
pub(crate) struct Space {
    pub kernel: Kernel,
    /// Stacks that grow, simulated apart.
    pub stacks: Stacks,
    written_file_pages: WrittenFilePages,
    /// By part of a region.
    pub parts: Vec<Tally>,
    pub rss_bytes_peak: u64,
    pub huge_pages_peak: u64,
    pub hugetlb_pages_peak: u64,
    pub vmas_peak: u64,
    pub page_table_bytes_peak: u64,
    /// Touches that raised a signal: the protection forbade them.
    pub traps_denied: u64,
    /// Calls that failed in the model.
    pub calls_failed: u64,
    /// mmaps of the hugetlb pool among them, for which the pool was too small.
    pub hugetlb_maps_failed: u64,
    pub hugetlb_bytes_failed: u64,
    /// Who asked for huge pages.
    pub advisers: Advisers,
    spacing: Spacing,
    calls: Calls,
    timeline: Timeline,
    at_moments: AtMoments,
    time_last_ns: u64,
    install_last_ns: u64,
    edits: Edits,
}

impl Space {
    /// An empty address space after exec.
    pub fn new(setting: &Setting, after_free: AfterFree, addresses_random: bool) -> Self {
        Self::of_kernel(Kernel::new(setting.kernel.clone()), setting, after_free, addresses_random)
    }

    /// An empty address space of a process that was there when the recording began, like `relative`.
    pub fn beside(relative: &Self, setting: &Setting, after_free: AfterFree, addresses_random: bool) -> Self {
        Self::of_kernel(relative.kernel.beside(), setting, after_free, addresses_random)
    }

    fn of_kernel(mut kernel: Kernel, setting: &Setting, after_free: AfterFree, addresses_random: bool) -> Self {
        kernel.keep_populated();
        let edits = Edits::of(setting, after_free);
        edits.begin(&mut kernel);
        Self::with(kernel, Stacks::new(setting, edits, addresses_random), WrittenFilePages::default(), edits)
    }

    /// Also takes samples at these moments.
    pub fn with_moments(self, moments: Arc<[u64]>) -> Self {
        Self { at_moments: AtMoments::new(moments), ..self }
    }

    /// A forked child's copy.
    pub fn fork(&mut self) -> Self {
        let (stacks, written) = (self.stacks.fork(), self.written_file_pages.clone());
        Self { advisers: self.advisers.forked(), ..Self::with(self.kernel.fork(), stacks, written, self.edits) }
    }

    fn with(kernel: Kernel, stacks: Stacks, written_file_pages: WrittenFilePages, edits: Edits) -> Self {
        Self {
            rss_bytes_peak: kernel.resident_bytes(),
            huge_pages_peak: kernel.huge_pages(),
            hugetlb_pages_peak: kernel.hugetlb_pages(),
            vmas_peak: kernel.vma_count(),
            page_table_bytes_peak: kernel.page_table_bytes(),
            kernel,
            stacks,
            written_file_pages,
            parts: Vec::new(),
            traps_denied: 0,
            calls_failed: 0,
            hugetlb_maps_failed: 0,
            hugetlb_bytes_failed: 0,
            timeline: Timeline::new(),
            at_moments: AtMoments::default(),
            advisers: Advisers::default(),
            spacing: Spacing::default(),
            calls: Calls::default(),
            time_last_ns: 0,
            install_last_ns: 0,
            edits,
        }
    }

    /// Performs an operation other than a fork.
    pub fn apply(&mut self, step: &Step) {
        self.at_moments.observe(&self.kernel, step.time_ns);
        self.timeline.observe(&self.kernel, self.time_last_ns, step.time_ns);
        self.time_last_ns = step.time_ns;
        if let Action::Touch { page, access, part } = step.action {
            if let Some(install) = self.touch(page, access, part, step.time_ns) {
                self.advisers.count(&install, &step.action);
            }
        } else {
            let outcome = self.edits.perform(&mut self.kernel, &step.action);
            if outcome.result.is_err() {
                self.count_failed(&step.action);
            }
            self.calls.add(&step.action);
            if self.edits.advise != Advise::Nothing {
                self.advisers.apply(&step.action);
            }
            self.count_populated(step, &outcome);
            self.stacks.apply(&step.action);
            self.vmas_peak = self.vmas_peak.max(self.kernel.vma_count());
        }
        self.written_file_pages.charge(&mut self.kernel, &self.stacks, &step.action);
        self.hugetlb_pages_peak = self.hugetlb_pages_peak.max(self.kernel.hugetlb_pages());
        self.rss_bytes_peak = self.rss_bytes_peak.max(self.kernel.resident_bytes());
        self.huge_pages_peak = self.huge_pages_peak.max(self.kernel.huge_pages());
        self.page_table_bytes_peak = self.page_table_bytes_peak.max(self.kernel.page_table_bytes());
    }

    fn count_failed(&mut self, action: &Action) {
        self.calls_failed += 1;
        if let Action::Map { pages, flags: MapFlags { hugetlb: true, .. }, .. } = action {
            self.hugetlb_maps_failed += 1;
            self.hugetlb_bytes_failed += (pages.end - pages.start) * PAGE_BYTES;
        }
    }

    /// Counts the installs of a call: what it populated, and what it collapsed.
    fn count_populated(&mut self, step: &Step, outcome: &Outcome) {
        let populated = self.kernel.take_populated().into_iter().map(|each| (each.page, each.install, each.obstacles));
        let is_collapse = matches!(step.action, Action::Advise { advice: Advice::Collapse, .. });
        let runs = outcome.installs.iter().filter(|_| is_collapse);
        let collapsed = runs.flat_map(|run| {
            let (kind, pages) = (run.kind, run.pages / run.installs);
            let firsts = (0..run.installs).map(move |number| run.first_page + number * pages);
            firsts.map(move |first_page| (first_page, Install { kind, first_page, pages }, Obstacles::default()))
        });
        let mut parts = step.populates.iter();
        let mut current = parts.next();
        for (page, install, obstacles) in populated.chain(collapsed) {
            // Both ascend.
            while current.is_some_and(|(range, _)| range.end <= page) {
                current = parts.next();
            }
            self.advisers.count(&install, &step.action);
            if let Some((_, part)) = current {
                self.tally(*part).count(install, obstacles);
            }
        }
    }

    fn tally(&mut self, part: PartId) -> &mut Tally {
        let index = part.0 as usize;
        if self.parts.len() <= index {
            self.parts.resize_with(index + 1, Tally::default);
        }
        &mut self.parts[index]
    }

    fn touch(&mut self, page: u64, access: Access, part: PartId, time_ns: u64) -> Option<Install> {
        let obstacles = self.kernel.obstacles(page);
        let traps = self.kernel.counters().traps;
        let touched = self.kernel.touch(page, access);
        let traps = self.kernel.counters().traps - traps;
        let tally = self.tally(part);
        tally.touches += 1;
        tally.traps += traps;
        match touched {
            Ok(Some(install)) => {
                tally.count(install, obstacles);
                self.spacing.add(time_ns - self.install_last_ns);
                self.install_last_ns = time_ns;
            }
            Ok(None) => {}
            Err(_) => self.traps_denied += 1,
        }
        touched.ok().flatten()
    }

    /// The kernel's work, if the process ends now.
    pub fn work(&self) -> PageWork {
        PageWork {
            spacing: self.spacing,
            operations: *self.kernel.operations(),
            refaults: *self.kernel.refaults(),
            at_exit: AtExit::of(&self.kernel),
            calls: self.calls,
        }
    }

    /// The samples at the moments.
    pub fn at_moments(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.at_moments).finish(&self.kernel)
    }

    /// Samples, the last one at the end.
    pub fn timeline(&mut self) -> Vec<Sample> {
        std::mem::replace(&mut self.timeline, Timeline::new()).finish(&self.kernel, self.time_last_ns)
    }

    /// What is mapped at the end, without pages that are not present.
    pub fn pages(&self) -> Vec<StateRun> {
        let runs = self.kernel.mappings(0..u64::MAX).into_iter().flat_map(|range| self.kernel.page_states(range));
        runs.filter(|run| run.state != PageState::None).collect()
    }

    /// The address space ends after its last operation.
    pub fn end_at(&mut self, time_ns: Option<u64>) {
        let end_ns = self.time_last_ns.max(time_ns.unwrap_or_default());
        self.timeline.observe(&self.kernel, self.time_last_ns, end_ns);
        self.time_last_ns = end_ns;
    }

    /// Time of the last operation or of the end.
    pub fn time_last_ns(&self) -> u64 {
        self.time_last_ns
    }
}

impl Tally {
    /// Adds the figures of other memory.
    pub fn add(&mut self, other: &Self) {
        self.touches += other.touches;
        self.traps += other.traps;
        self.installs = self.installs.with(other.installs, |one, other| one + other);
        self.pages_installed += other.pages_installed;
        for (&obstacles, installs) in &other.obstacles {
            *self.obstacles.entry(obstacles).or_default() += installs;
        }
    }

    /// Whether there is anything to tell.
    pub fn is_used(&self) -> bool {
        self.touches > 0 || self.pages_installed > 0
    }

    fn count(&mut self, install: Install, obstacles: Obstacles) {
        self.installs.add(install.kind);
        self.pages_installed += install.pages;
        if install.pages < PMD_PAGES {
            *self.obstacles.entry(obstacles).or_default() += 1;
        }
    }

    /// The obstacles, most frequent first.
    pub fn obstacle_counts(&self) -> Vec<ObstacleCount> {
        let counts = self.obstacles.iter();
        let mut counts: Vec<ObstacleCount> =
            counts.map(|(obstacles, &installs)| ObstacleCount { obstacles: *obstacles, installs }).collect();
        counts.sort_by_key(|count| std::cmp::Reverse(count.installs));
        counts
    }
}
