//! The specification of a replay.

use hksim_policy::Policy;
use std::ffi::OsString;
use std::path::PathBuf;

use hksim_engine::{Design, ForkWindow, MemoryPolicyRule, TouchRule};
use serde::{Deserialize, Serialize};

use crate::error::ReplayError;

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
    /// Whether events run on one OS thread, or on one for each thread of the trace.
    pub mode: Mode,
    /// What to measure.
    pub measure: Measure,
    /// Number of events after which the measured run stops itself (SIGSTOP). It writes its process id and the base of
    /// its reservation to standard error. For ordered native runs.
    pub stop_at: Option<u64>,
    /// Children that the program forks; for ordered native runs.
    pub forks: Vec<ForkWindow>,
}

impl ReplaySpec {
    /// Every measurement of a replay in trace order, with the program's memory policies and without forks.
    pub fn ordered(trace: impl Into<PathBuf>, on: Target, touch: TouchRule) -> ReplaySpec {
        ReplaySpec {
            trace: trace.into(),
            on,
            touch,
            memory_policy: MemoryPolicyRule::default(),
            mode: Mode::Ordered,
            measure: Measure::default(),
            stop_at: None,
            forks: Vec::new(),
        }
    }
}

/// A real allocator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The SuperSlab allocator on mmap.
    Native(Box<Policy>),
    /// The `malloc` of the process: glibc's, or that of a preloaded library.
    Malloc {
        /// The library to preload.
        preload: Option<PathBuf>,
        /// Environment variables that configure the allocator.
        #[serde(default)]
        variables: Vec<(String, String)>,
    },
    /// An allocator design on mmap: see [`Target::design`].
    Design {
        /// Its name ([`Design::NAME`]).
        name: String,
        /// Its settings.
        settings: serde_json::Value,
    },
}

impl Target {
    /// The C library's `malloc`, without settings.
    pub const C_LIBRARY: Target = Target::Malloc { preload: None, variables: Vec::new() };

    /// A design with these settings. The program's children must know it
    /// ([`child_main_with`](crate::child_main_with)). It can be replayed in trace order only.
    ///
    /// # Errors
    /// The settings cannot be represented as JSON.
    pub fn design<D: Design>(settings: &D::Settings) -> Result<Target, ReplayError> {
        let settings = serde_json::to_value(settings)
            .map_err(|why| ReplayError::Settings { design: D::NAME.into(), why: why.to_string() })?;
        Ok(Target::Design { name: D::NAME.into(), settings })
    }

    /// The environment variables of a process that uses this allocator.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let Target::Malloc { preload, variables } = self else { return Vec::new() };
        let preload = preload.iter().map(|library| ("LD_PRELOAD".into(), library.into()));
        preload.chain(variables.iter().map(|(name, value)| (name.into(), value.into()))).collect()
    }
}

/// Which threads drive the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One OS thread in trace order: deterministic.
    Ordered,
    /// One OS thread for each thread of the trace. They wait for each other only when an object crosses threads.
    Threaded,
}

/// The runs in addition to the control run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// A run that counts faults, observes pages and records page sets at marks.
    pub pages: bool,
    /// A run that is only timed.
    pub time: bool,
}

impl Measure {
    /// Faults and pages, without a timed run.
    pub const PAGES: Measure = Measure { pages: true, time: false };
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
    /// Without a heap.
    Control,
    /// With all observers.
    Measured,
    /// Without observers.
    Timed,
    /// As timed, without an allocator and without touches: the time of the replay itself.
    Harness,
    /// As timed, piece by piece.
    Pieces,
    /// The same without an allocator and without touches.
    HarnessPieces,
    /// With samples of the processor's mode as the only observer.
    Sampled,
    /// With samples of what the replay does as the only observer.
    Apart,
    /// With a record of every page fault and what caused it.
    Explained(HugePages),
    /// The start of such a run, up to its first event.
    ExplainedStart(HugePages),
    /// Without observers, under a memory limit.
    Limited,
    /// With a probe of the processor time as the only observer, after a warm-up.
    System(WarmUp, SystemProbe),
}

/// Transparent huge pages of an explained run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugePages {
    /// As the machine's mode and the allocator's advice have them.
    #[default]
    AsTheyAre,
    /// As under mode `always`: every mapping of the allocator is advised.
    Advised,
    /// None, as under mode `never`.
    Disabled,
}

/// What a run measures about its processor time. A run measures only one of these, because each measurement takes time
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SystemProbe {
    /// The processor time itself.
    Clock,
    /// Its division between user and kernel mode.
    Modes,
}

/// Memory that is touched and released right before a run, so that the host of a virtual machine has already backed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmUp {
    /// Bytes in single pages or in folios.
    pub small_bytes: u64,
    /// Whether these are pages or folios, and how they are touched.
    pub small: SmallMemory,
    /// Bytes in huge pages.
    pub huge_bytes: u64,
    /// Bytes in pages of the hugetlb pool, which the host may not have backed yet either.
    pub pool_bytes: u64,
}

/// How memory outside huge pages is first touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmallMemory {
    /// In single pages, with a fault for each.
    #[default]
    Pages,
    /// In single pages, by a populating call.
    Populated,
    /// In folios of this many bytes, between a page and a huge page.
    Folios(u64),
}

/// The job that the parent sends to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) spec: ReplaySpec,
    pub(crate) run: Run,
    /// The only CPU on which it may run; any if `None`.
    pub(crate) cpu: Option<usize>,
    /// Additions per cycle from which on a run in pieces has the core alone, as far as is known.
    pub(crate) alone_from: f32,
    /// Where a run under a memory limit notes the number of its event.
    pub(crate) progress: Option<PathBuf>,
}
