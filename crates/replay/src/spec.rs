//! The specification of a replay.

use hksim_policy::Policy;
use std::path::PathBuf;

use hksim_engine::{ForkWindow, MemoryPolicyRule, TouchRule};
use serde::{Deserialize, Serialize};

/// A replay to perform.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplaySpec {
    /// The trace, an `.hkt` file.
    pub trace: PathBuf,
    /// The allocator.
    pub on: Target,
    /// How the application touches its blocks, if the trace does not record it.
    pub touch: TouchRule,
    /// Whether the program's memory policies apply.
    pub memory_policy: MemoryPolicyRule,
    /// One OS thread, or those of the trace.
    pub mode: Mode,
    /// What to measure.
    pub measure: Measure,
    /// Events after which the measured run stops itself (SIGSTOP) and tells its process id and the base of its
    /// reservation on standard error; for ordered native runs.
    pub stop_at: Option<u64>,
    /// Children that the program forks; for ordered native runs.
    pub forks: Vec<ForkWindow>,
}

/// A real allocator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The SuperSlab allocator on mmap.
    Native(Policy),
    /// The `malloc` of the process: glibc's, or that of a preloaded library.
    Malloc {
        /// The library to preload.
        preload: Option<PathBuf>,
    },
}

/// Which threads drive the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One OS thread in trace order: deterministic.
    Ordered,
    /// One OS thread for each of the trace, which wait for each other only where an object crosses threads.
    Threaded,
}

/// The runs besides the control run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// A run that counts faults, follows pages and takes page sets at marks.
    pub pages: bool,
    /// A run that is only timed.
    pub time: bool,
}

impl Default for Measure {
    fn default() -> Measure {
        Measure { pages: true, time: true }
    }
}

/// One child's part of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Run {
    /// Everything but the heap.
    Control,
    /// Everything watched.
    Measured,
    /// Nothing watched.
    Timed,
    /// Nothing watched but the processor time, or whose it is, after a warm-up.
    System(WarmUp, Watched),
}

/// What of a run's processor time is watched: not both at once, since looking takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Watched {
    /// How much it is.
    Clock,
    /// Whether it is the kernel's or the program's.
    Modes,
}

/// Memory that is touched and given back right before a run, so that the host of a virtual machine has it there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmUp {
    /// In single pages, or in folios.
    pub small_bytes: u64,
    /// Which, and how.
    pub small: SmallMemory,
    /// In huge pages.
    pub huge_bytes: u64,
    /// In pages of the hugetlb pool, which may never have been touched either.
    pub pool_bytes: u64,
}

/// How memory outside huge pages is first touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmallMemory {
    /// Page by page, by a fault each.
    #[default]
    Pages,
    /// In single pages, by a populating call.
    Populated,
    /// In folios of so many bytes, between a page and a huge page.
    Folios(u64),
}

/// What a child is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) spec: ReplaySpec,
    pub(crate) run: Run,
}
