//! What a simulation says, in the form that is exported. Names are a contract; units stand last in them.

use hksim_policy::Policy;
use std::collections::BTreeMap;

use hksim_engine::{ByKind, Fallbacks, MemoryPolicyRule, OsCalls, TouchRule};
use hksim_trace::header::{Clock, Header, Origin, Touch};
use hksim_trace::source::EventSource;
use serde::Serialize;

use crate::accounting::ByReason;
use crate::addresses::AddressLabel;
use crate::forks::ForkReport;
use crate::reach::TlbReport;
use crate::work::KernelWork;
use hksim_linux_mm::{KernelConfig, KhugepagedBound};

/// Version of every JSON result; raised when a name changes or goes.
pub const SCHEMA: u32 = 1;

/// The version of hksim that made a result.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Which trace a result is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceLabel {
    /// The file, where there is one.
    pub file: Option<String>,
    /// The file's checksum, eight hexadecimal digits ([`EventSource::checksum`]).
    pub checksum: Option<String>,
    /// Where the events come from; of a generated trace, everything needed to make it again.
    pub origin: Origin,
    /// What is known about its touches.
    pub knowledge: Touch,
    /// Whether its times were measured.
    pub clock: Clock,
    /// Whether it ends where its producer ended it.
    pub complete: bool,
}

impl TraceLabel {
    /// Labels a source.
    pub fn of(file: Option<String>, source: &dyn EventSource) -> TraceLabel {
        let Header { origin, touch, clock, .. } = source.header().clone();
        let checksum = source.checksum().map(|crc| format!("{crc:08x}"));
        TraceLabel { file, checksum, origin, knowledge: touch, clock, complete: source.summary().complete }
    }
}

/// How touches were decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TouchLabel {
    /// The rule applied.
    pub rule: TouchRule,
    /// `assumed` unless the rule was what a trace of that knowledge recorded.
    pub knowledge: Touch,
}

/// What the program asked of the kernel for all of its memory, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryPolicyLabel {
    /// Whether that was obeyed.
    pub rule: MemoryPolicyRule,
    /// Changes that it made, or began under.
    pub changes: u64,
    /// Calls of `mlockall` among them.
    pub locks: u64,
    /// Installs of single pages where the modes allowed larger ones, and the program did not.
    pub installs_kept_small: u64,
}

/// Page-table entries made, three ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Installs {
    /// All of them.
    pub total: u64,
    /// By what was installed.
    pub by_kind: ByKind,
    /// By why.
    pub by_reason: ByReason,
}

/// The state of things after some event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Events done.
    pub event: u64,
    /// Trace time in nanoseconds.
    pub time_ns: u64,
    /// Requested bytes of live objects.
    pub live_bytes: u64,
    /// Resident bytes, hugetlb included.
    pub rss_bytes: u64,
    /// Transparent huge pages mapped.
    pub huge_pages: u64,
    /// Installs so far.
    pub installs: u64,
    /// Mappings.
    pub vmas: u64,
}

/// One trace under one design.
#[derive(Clone, Debug, Serialize)]
pub struct SimReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// [`VERSION`].
    pub hksim_version: &'static str,
    /// The trace.
    pub trace: TraceLabel,
    /// The design.
    pub policy: Policy,
    /// How touches were decided.
    pub touch: TouchLabel,
    /// The kernel that was modelled.
    pub kernel: KernelConfig,
    /// Events simulated.
    pub events: u64,
    /// Wall seconds of the simulation.
    pub elapsed_s: f64,
    /// Page-table entries made.
    pub installs: Installs,
    /// What `ru_minflt` would be charged.
    pub faults: u64,
    /// Exceptions the program would take.
    pub traps: u64,
    /// 2 MiB entries split.
    pub splits: u64,
    /// Highest resident bytes, hugetlb included.
    pub rss_bytes_peak: u64,
    /// Resident bytes at the end.
    pub rss_bytes_end: u64,
    /// Highest bytes in hugetlb pages (the kernel does not count them in RSS; here they are).
    pub hugetlb_bytes_peak: u64,
    /// Highest number of transparent huge pages mapped.
    pub huge_pages_peak: u64,
    /// Highest requested bytes of live objects.
    pub live_bytes_peak: u64,
    /// Pages those bytes would fill: fewer cannot hold the live set.
    pub floor_pages: u64,
    /// Fewest pages that could hold the bytes of live objects that the program has touched: the distinct bytes, at
    /// their peak, in pages that are full.
    pub floor_touched_pages: u64,
    /// Highest number of SuperSlabs in use, those of huge blocks included.
    pub superslabs_peak: u64,
    /// Highest number of mappings of the allocator.
    pub vmas_peak: u64,
    /// Highest bytes of page tables.
    pub page_table_bytes_peak: u64,
    /// OS calls by the allocator.
    pub os_calls: OsCalls,
    /// Those of them that failed.
    pub os_calls_failed: u64,
    /// What the kernel did beside installs.
    pub kernel_work: KernelWork,
    /// What forked children cost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forks: Vec<ForkReport>,
    /// Requests that could not be served.
    pub failed: u64,
    /// SuperSlabs that hugetlb refused, and maps that the kernel did not align.
    pub fell_back: Fallbacks,
    /// Where the addresses of maps came from, where SuperSlabs have maps of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<AddressLabel>,
    /// What the program asked of the kernel for all of its memory.
    pub memory_policy: MemoryPolicyLabel,
    /// What khugepaged could change; `None` where no mapping can have huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub khugepaged: Option<KhugepagedBound>,
    /// Digest of every placement: equal to a replay's iff (almost surely) all placements are.
    pub placement: String,
    /// Evenly spaced samples over the events, the last at the end.
    pub timeline: Vec<Sample>,
    /// What a core's TLB makes of it, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb: Option<TlbReport>,
    /// Where touches were assumed: the headline figures under the other assumptions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bracket: BTreeMap<String, Bracket>,
}

/// What another assumption about touches gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bracket {
    /// Installs.
    pub installs: u64,
    /// Faults.
    pub faults: u64,
    /// Highest resident bytes.
    pub rss_bytes_peak: u64,
}

impl From<&SimReport> for Bracket {
    fn from(report: &SimReport) -> Bracket {
        Bracket { installs: report.installs.total, faults: report.faults, rss_bytes_peak: report.rss_bytes_peak }
    }
}
