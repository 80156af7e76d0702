//! Facts that this kernel or this user's rights do not show. They are left out of comparisons.

use hksim_linux_mm::PageState;
use hksim_linux_mm::script::{Op, Step, Touch};

use crate::observation::{Observation, PageRun};

/// A fact that cannot be observed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unobservable {
    /// Which pages belong to larger folios or to the hugetlb pool: frame numbers need root.
    Folios,
    /// Which pages are mapped by PMD entries: page-table scans need Linux 6.7. The total is still compared.
    Entries,
    /// Page-fault exceptions inside system calls: they need root, or `kernel.perf_event_paranoid` below 2.
    KernelTraps,
}

impl Unobservable {
    const ALL: [Self; 3] = [Self::Folios, Self::Entries, Self::KernelTraps];

    /// The text after `not compared: `.
    pub fn what(self) -> &'static str {
        match self {
            Self::Folios => "which pages belong to larger folios (needs root)",
            Self::Entries => "which pages are mapped by huge entries (needs Linux 6.7)",
            Self::KernelTraps => "traps inside system calls (needs root, or kernel.perf_event_paranoid below 2)",
        }
    }

    /// The name of this fact in the output of a child process.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Folios => "folios",
            Self::Entries => "entries",
            Self::KernelTraps => "kernel-traps",
        }
    }

    pub(crate) fn of_words(words: &str) -> Vec<Self> {
        Self::ALL.into_iter().filter(|unobservable| words.split(' ').any(|word| word == unobservable.word())).collect()
    }

    fn state(self, state: PageState) -> PageState {
        match (self, state) {
            (Self::Folios, PageState::Mthp) => PageState::Base,
            (Self::Folios, PageState::Hugetlb) => PageState::Thp,
            (Self::Entries, PageState::Thp) => PageState::Mthp,
            (Self::Entries, PageState::HugeZero) => PageState::Zero,
            (_, state) => state,
        }
    }

    /// Removes this fact from an observation.
    pub(crate) fn hide(self, step: &Step, observation: &mut Observation) {
        if self == Self::KernelTraps && matches!(step.op, Op::Touch(Touch::SystemCall, ..)) {
            observation.did.traps = 0;
        }
        let mut runs: Vec<PageRun> = Vec::new();
        for &PageRun(state, pages) in &observation.left.pages {
            let state = self.state(state);
            match runs.last_mut() {
                Some(run) if run.0 == state => run.1 += pages,
                _ => runs.push(PageRun(state, pages)),
            }
        }
        observation.left.pages = runs;
    }
}
