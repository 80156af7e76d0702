//! Stacks that grow: the main thread's, and mappings of `MAP_GROWSDOWN`.
//!
//! They are simulated apart from other memory, because their figures are not comparable between runs: the kernel places
//! the main stack, and the program's first frame in it, at random. So each stack is also simulated at other addresses.
//! Other memory sees them as mappings that are not modelled.

use std::ops::Range;

use hksim_linux_mm::{Access, ByKind, Installs, Kernel, KernelConfig, KnownPages, MapFlags, PMD_PAGES};
use hksim_memory_trace::{Origin, PAGE_BYTES};
use serde::{Deserialize, Serialize};

use crate::perform::{Edits, grow};
use crate::setting::Setting;
use crate::steps::Action;

/// Distances, in pages, from the recorded addresses: spread over a PMD range, and over the sizes of smaller folios.
const SHIFTS: [u64; 8] = [0, 65, 130, 195, 260, 325, 390, 455];

/// What the stacks of an address space cost under one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackPrediction {
    /// Recorded faults, with huge pages off.
    pub touches: u64,
    /// Exceptions at the recorded addresses.
    pub traps: u64,
    /// The fewest exceptions at other addresses; equal to `traps` if addresses were not random.
    pub traps_min: u64,
    /// The most exceptions at other addresses.
    pub traps_max: u64,
    /// Page-table installs at the recorded addresses.
    pub installs: Installs,
    /// Highest resident bytes, those of arguments and environment included.
    pub rss_bytes_peak: u64,
    /// Highest number of huge pages.
    pub huge_pages_peak: u64,
    /// Resident bytes at the end.
    pub rss_bytes_end: u64,
    /// The least at other addresses; equal to `rss_bytes_end` if addresses were not random.
    pub rss_bytes_end_min: u64,
    /// The most at other addresses.
    pub rss_bytes_end_max: u64,
    /// Resident bytes that exec wrote: arguments and environment.
    pub arguments_bytes: u64,
}

/// The stacks of one address space under one setting.
#[derive(Debug)]
pub(crate) struct Stacks {
    /// One for each shift. The first one is at the recorded addresses.
    kernels: Vec<(u64, Kernel)>,
    edits: Edits,
    /// Where stacks are or were; `None` before the first one.
    range: Option<Range<u64>>,
    /// The main stack before its first touch.
    untouched: Option<Range<u64>>,
    touches: u64,
    rss_bytes_peak: u64,
    huge_pages_peak: u64,
    arguments_pages: u64,
}

impl Stacks {
    /// No stack yet.
    pub fn new(setting: &Setting, edits: Edits, addresses_random: bool) -> Self {
        let shifts = if addresses_random { &SHIFTS[..] } else { &SHIFTS[..1] };
        let kernel = |&shift: &u64| {
            // The group's limit is that of the whole process, which charges stacks as memory that it does not model.
            let config = KernelConfig { memory_limit_bytes: None, ..setting.kernel.clone() };
            let mut kernel = Kernel::new(config);
            edits.begin(&mut kernel);
            (shift, kernel)
        };
        Self {
            kernels: shifts.iter().map(kernel).collect(),
            edits,
            range: None,
            untouched: None,
            touches: 0,
            rss_bytes_peak: 0,
            huge_pages_peak: 0,
            arguments_pages: 0,
        }
    }

    /// A forked child's copy.
    pub fn fork(&mut self) -> Self {
        let mut child = Self {
            kernels: self.kernels.iter_mut().map(|(shift, kernel)| (*shift, kernel.fork())).collect(),
            edits: self.edits,
            range: self.range.clone(),
            untouched: self.untouched.clone(),
            touches: 0,
            rss_bytes_peak: 0,
            huge_pages_peak: 0,
            arguments_pages: self.arguments_pages,
        };
        child.update_peaks();
        child
    }

    /// Performs an operation of the address space, as far as it concerns stacks.
    pub fn apply(&mut self, action: &Action) {
        match action {
            Action::TouchStack { page, access } => self.touch(*page, *access),
            Action::MapStack { pages, flags, origin } => self.map(pages, *flags, *origin),
            Action::Unmap(pages)
            | Action::Protect { pages, .. }
            | Action::Advise { pages, .. }
            | Action::Lock { pages, .. }
            | Action::Unlock(pages)
                if self.holds(pages) =>
            {
                self.perform(|shift| shifted(action, shift));
            }
            Action::KnowMapping { pages, flags, traits, is_stack: true } => {
                self.widen(pages);
                for (shift, kernel) in &mut self.kernels {
                    let _ = kernel.know_mapping(pages.start - *shift..pages.end - *shift, *flags, *traits);
                }
            }
            Action::KnowPages { pages, state } if self.holds(pages) => self.know(pages, *state),
            Action::KnowProtected { page } if self.holds(&(*page..page + 1)) => {
                self.kernels.iter_mut().for_each(|(shift, kernel)| kernel.know_write_protected(*page - *shift));
            }
            Action::LockAll(_) | Action::UnlockAll | Action::DisableThp(_) => self.perform(|_| action.clone()),
            _ => return,
        }
        self.update_peaks();
    }

    /// Whether pages are, or were, of a stack.
    fn holds(&self, pages: &Range<u64>) -> bool {
        self.range.as_ref().is_some_and(|range| pages.start < range.end && range.start < pages.end)
    }

    /// Pages that are there already. At other addresses, a huge page of the recorded ones is none.
    fn know(&mut self, pages: &Range<u64>, state: KnownPages) {
        for (shift, kernel) in &mut self.kernels {
            let state = if *shift == 0 { state } else { state.in_small_pages() };
            kernel.know_pages(pages.start - *shift..pages.end - *shift, state);
        }
    }

    /// Performs a call, which other memory reports if it fails.
    fn perform(&mut self, action: impl Fn(u64) -> Action) {
        for (shift, kernel) in &mut self.kernels {
            let _ = self.edits.perform(kernel, &action(*shift));
        }
    }

    fn map(&mut self, pages: &Range<u64>, flags: MapFlags, origin: Origin) {
        self.widen(pages);
        if origin == Origin::Exec {
            self.untouched = Some(pages.clone());
        }
        for (shift, kernel) in &mut self.kernels {
            let pages = pages.start - *shift..pages.end - *shift;
            if !grow(kernel, &pages, origin) {
                let _ = kernel.map(pages, flags);
            }
        }
    }

    fn touch(&mut self, page: u64, access: Access) {
        self.touches += 1;
        self.widen(&(page..page + 1));
        // Exec fills the stack from its end, and the program continues below.
        let arguments = self.untouched.take().filter(|stack| stack.contains(&page)).map(|stack| page + 1..stack.end);
        self.arguments_pages += arguments.as_ref().map_or(0, |pages| pages.end - pages.start);
        for (shift, kernel) in &mut self.kernels {
            if let Some(pages) = arguments.clone().filter(|pages| !pages.is_empty()) {
                kernel.place_arguments(pages.start - *shift..pages.end - *shift);
            }
            kernel.grow_stack(page - *shift);
            // A touch that raises a signal costs an exception, which is counted.
            let _ = kernel.touch(page - *shift, access);
        }
    }

    fn widen(&mut self, pages: &Range<u64>) {
        let known = self.range.get_or_insert_with(|| pages.clone());
        *known = known.start.min(pages.start)..known.end.max(pages.end);
    }

    fn update_peaks(&mut self) {
        let (_, kernel) = &self.kernels[0];
        self.rss_bytes_peak = self.rss_bytes_peak.max(kernel.rss_pages() * PAGE_BYTES);
        self.huge_pages_peak = self.huge_pages_peak.max(kernel.huge_pages());
    }

    /// Bytes that are charged for the stacks at the recorded addresses, without their page tables.
    pub fn charged_bytes(&self) -> u64 {
        let (_, kernel) = &self.kernels[0];
        kernel.rss_pages() * PAGE_BYTES
    }

    /// What the stacks cost; `None` without a recorded touch.
    pub fn prediction(&self) -> Option<StackPrediction> {
        let traps = || self.kernels.iter().map(|(_, kernel)| kernel.counters().traps);
        let rss_bytes = || self.kernels.iter().map(|(_, kernel)| kernel.rss_pages() * PAGE_BYTES);
        let counters = self.kernels[0].1.counters();
        (self.touches > 0).then(|| StackPrediction {
            touches: self.touches,
            traps: counters.traps,
            traps_min: traps().min().unwrap_or_default(),
            traps_max: traps().max().unwrap_or_default(),
            installs: ByKind::from(counters).into(),
            rss_bytes_peak: self.rss_bytes_peak,
            huge_pages_peak: self.huge_pages_peak,
            rss_bytes_end: rss_bytes().next().unwrap_or_default(),
            rss_bytes_end_min: rss_bytes().min().unwrap_or_default(),
            rss_bytes_end_max: rss_bytes().max().unwrap_or_default(),
            arguments_bytes: self.arguments_pages * PAGE_BYTES,
        })
    }
}

/// A call at addresses that are `shift` pages lower.
fn shifted(action: &Action, shift: u64) -> Action {
    let mut action = action.clone();
    if let Action::Unmap(pages)
    | Action::Protect { pages, .. }
    | Action::Advise { pages, .. }
    | Action::Lock { pages, .. }
    | Action::Unlock(pages) = &mut action
    {
        *pages = pages.start.saturating_sub(shift)..pages.end.saturating_sub(shift);
    }
    action
}

/// A shift leaves no alignment as it was.
const _: () = assert!(SHIFTS[SHIFTS.len() - 1] < PMD_PAGES);
