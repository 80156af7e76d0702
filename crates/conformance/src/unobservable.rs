//! What this kernel or this user does not tell, and comparisons without it.

use hksim_linux_mm::PageState;
use hksim_linux_mm::script::{Op, Step, Touch};

use crate::observation::{Observation, PageRun};

/// Something that cannot be seen here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unobservable {
    /// Which pages belong to larger folios or to the hugetlb pool: frame numbers are for root.
    Folios,
    /// Which pages are mapped by 2 MiB entries: page-table scans came with Linux 6.7. Their sum is still seen.
    Entries,
    /// Page-fault exceptions inside system calls: for root, or with `kernel.perf_event_paranoid` below 2.
    KernelTraps,
}

impl Unobservable {
    const ALL: [Self; 3] = [Self::Folios, Self::Entries, Self::KernelTraps];

    /// In a sentence: `not compared: ...`.
    pub fn what(self) -> &'static str {
        match self {
            Self::Folios => "which pages belong to larger folios (needs root)",
            Self::Entries => "which pages are mapped by huge entries (needs Linux 6.7)",
            Self::KernelTraps => "traps inside system calls (needs root, or kernel.perf_event_paranoid below 2)",
        }
    }

    /// As a process that executes says it.
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

    /// Takes out of an observation what is not seen.
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
