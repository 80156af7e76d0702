//! The report of a simulation, in its exported form. Field names are a stable interface, with units last.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use hksim_policy::vocabulary::Huge;
use hksim_policy::{PAGE_BYTES, Policy};

use hksim_engine::{ByKind, Fallbacks, MemoryPolicyRule, OsCalls, TouchRule};
use hksim_trace::header::{Clock, Header, Origin, TouchSource};
use hksim_trace::source::EventSource;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::accounting::ByReason;
use crate::addresses::AddressLabel;
use crate::forks::ForkReport;
use crate::kernel_work::KernelWork;
use crate::lines::LineCounts;
use crate::paths::PathCounts;
use crate::reach::TlbReport;
use hksim_linux_mm::{
    KernelConfig, KhugepagedAtEnd, KhugepagedBound, KhugepagedSettled, MemoryLimit, PMD_ORDER, SizeMode, ThpConfig,
    ThpMode,
};

/// Schema version of every JSON result; raised when a field is renamed or removed.
pub const SCHEMA: u32 = 2;

/// The program's version, if it has named it.
static VERSION: OnceLock<&'static str> = OnceLock::new();

/// The version that results state: as named by [`set_version`], else this crate's.
pub fn version() -> &'static str {
    VERSION.get().copied().unwrap_or(env!("CARGO_PKG_VERSION"))
}

/// Names the version that the results of this process state, with the commit of the program's sources: `0.2.0+COMMIT`.
/// Called before the first result. Only the first call has an effect.
pub fn set_version(version: &'static str) {
    let _ = VERSION.set(version);
}

/// [`version`]. The alias keeps serde from borrowing the text from its input.
pub type ThisVersion = &'static str;

/// A result is read back only by the version that wrote it: another version may have other figures.
fn this_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    let (found, here) = (String::deserialize(deserializer)?, version());
    let differs = || D::Error::custom(format!("the row was written by hksim {found}, and this is hksim {here}"));
    (found == here).then_some(here).ok_or_else(differs)
}

/// The trace of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceLabel {
    /// The file name, if any.
    pub file: Option<String>,
    /// The file's checksum, eight hexadecimal digits ([`EventSource::checksum`]).
    pub checksum: Option<String>,
    /// The origin of the events. For a generated trace, everything needed to generate it again.
    pub origin: Origin,
    /// How its touches were obtained.
    pub touch_source: TouchSource,
    /// Whether its times were measured.
    pub clock: Clock,
    /// Whether nothing is known to be missing: the trace is not truncated, and the recorder lost no events.
    pub complete: bool,
    /// Events that the recorder lost: calls, and page faults of watched objects.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_lost: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TraceLabel {
    /// Labels a source.
    pub fn of(file: Option<String>, source: &dyn EventSource) -> TraceLabel {
        let Header { origin, touch, clock, .. } = source.header().clone();
        let checksum = source.checksum().map(|crc| format!("{crc:08x}"));
        let (complete, events_lost) = (source.summary().complete, source.footer().quality.lost());
        TraceLabel { file, checksum, origin, touch_source: touch, clock, complete, events_lost }
    }
}

/// How touches were decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TouchLabel {
    /// The rule applied.
    pub rule: TouchRule,
    /// `assumed`, unless the rule was `recorded`; then the source of the touches in the trace.
    pub source: TouchSource,
}

/// The program's process-wide memory settings, and their effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPolicyLabel {
    /// Whether the settings were applied.
    pub rule: MemoryPolicyRule,
    /// Number of changes, including settings at its start.
    pub changes: u64,
    /// Calls of `mlockall` among the changes.
    pub mlockall_calls: u64,
    /// Installs of single pages where the THP modes allowed larger ones, but the program's settings did not.
    pub installs_thp_denied: u64,
}

/// Page-table installs: in total, by kind and by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installs {
    /// The total.
    pub total: u64,
    /// By kind of entry.
    pub by_kind: ByKind,
    /// By reason.
    pub by_reason: ByReason,
}

/// A sample of the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Number of events performed so far.
    pub event: u64,
    /// Trace time in nanoseconds.
    pub time_ns: u64,
    /// Requested bytes of live objects.
    pub live_bytes: u64,
    /// Resident bytes, hugetlb included.
    pub rss_bytes: u64,
    /// The highest resident bytes since the previous sample. Absent in older results.
    #[serde(default)]
    pub rss_bytes_peak: u64,
    /// Transparent huge pages mapped. Absent in older results.
    #[serde(default)]
    pub huge_pages: u64,
    /// Bytes in hugetlb pages. Absent in older results.
    #[serde(default)]
    pub hugetlb_bytes: u64,
    /// Installs so far.
    pub installs: u64,
    /// Mappings.
    pub vmas: u64,
}

/// One trace under one design. `P` describes the design: a [`Policy`] for the SuperSlab allocator, and a
/// [`DesignLabel`](hksim_engine::DesignLabel) for any other. No other field depends on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SimReport<P = Policy> {
    /// [`SCHEMA`].
    pub schema: u32,
    /// [`version`].
    #[serde(deserialize_with = "this_version")]
    pub hksim_version: ThisVersion,
    /// The trace.
    pub trace: TraceLabel,
    /// The design.
    pub policy: P,
    /// How touches were decided.
    pub touch: TouchLabel,
    /// The modelled kernel.
    pub kernel: KernelConfig,
    /// Bytes of the largest pages that this kernel gives to a design that asks for no huge pages; `None` if it gives
    /// none, or if the design asks for some.
    #[serde(default)]
    pub huge_bytes_unasked: Option<u64>,
    /// Events simulated.
    pub events: u64,
    /// Events that call the allocator ([`Op::calls_allocator`](hksim_trace::event::Op::calls_allocator)). 0 in older
    /// results.
    #[serde(default)]
    pub calls: u64,
    /// Wall seconds of the pass that simulated this design, together with others of the same trace.
    pub elapsed_s: f64,
    /// Page-table installs.
    pub installs: Installs,
    /// Faults charged to `ru_minflt`.
    pub faults: u64,
    /// #PF exceptions of the program.
    pub traps: u64,
    /// Huge PMD entries split.
    pub pmd_splits: u64,
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
    /// Number of pages that `live_bytes_peak` fills: a lower bound for the pages of the live set.
    pub floor_pages: u64,
    /// A lower bound for the pages that hold the touched bytes of live objects: the distinct touched bytes at their
    /// peak, packed into full pages.
    pub floor_touched_pages: u64,
    /// Highest number of SuperSlabs in use, including those of huge blocks. 0 for allocators without SuperSlabs.
    pub superslabs_peak: u64,
    /// Highest number of mappings of the allocator.
    pub vmas_peak: u64,
    /// Highest bytes of page tables.
    pub page_table_bytes_peak: u64,
    /// OS calls by the allocator.
    pub os_calls: OsCalls,
    /// OS calls that failed.
    pub os_calls_failed: u64,
    /// The kernel's work besides installs.
    pub page_operations: KernelWork,
    /// The costs of forked children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forks: Vec<ForkReport>,
    /// Requests that could not be served.
    pub requests_failed: u64,
    /// Fallbacks: SuperSlabs that hugetlb refused, and mappings that the kernel did not align. 0 for other allocators.
    pub fallbacks: Fallbacks,
    /// Where the addresses of mmaps without a hint came from, if SuperSlabs have separate mappings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<AddressLabel>,
    /// The program's process-wide memory settings.
    pub memory_policy: MemoryPolicyLabel,
    /// A bound on khugepaged's effects; `None` if no mapping can have huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub khugepaged_bound: Option<KhugepagedBound>,
    /// Memory at the end once khugepaged has scanned it completely; `None` if not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub khugepaged_settled: Option<KhugepagedSettled>,
    /// The most that khugepaged can leave at the end; `None` if not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub khugepaged_at_end: Option<KhugepagedAtEnd>,
    /// The program under the limit of its memory control group; `None` without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<MemoryLimit>,
    /// Digest of all placements: equal to a replay's if and (almost surely) only if all placements are equal.
    pub placement_digest: String,
    /// Samples over trace time, the last at the end.
    pub timeline: Vec<Sample>,
    /// TLB results, if a core was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb: Option<TlbReport>,
    /// How often the allocator ran each path of its code, if that was counted. `None` for allocators other than
    /// SuperSlab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<PathCounts>,
    /// Accesses to cache lines and their misses, if that was counted. `None` for allocators other than SuperSlab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<LineCounts>,
    /// If touches were assumed: the main figures under the other assumptions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_touch_rule: BTreeMap<String, MainFigures>,
}

/// Bytes of the largest huge pages or folios that a kernel in these modes gives to a policy that asks for none (`--huge
/// never`): only advice against them would prevent that, and the allocator gives none.
pub fn huge_bytes_unasked(policy: &Policy, thp: &ThpConfig) -> Option<u64> {
    let serves_all = |order: usize| match thp.sizes[order] {
        SizeMode::Always => true,
        SizeMode::Inherit => thp.global == ThpMode::Always,
        SizeMode::Madvise | SizeMode::Never => false,
    };
    let largest = (1..=PMD_ORDER).rev().find(|&order| serves_all(order))?;
    (policy.huge == Huge::Never).then_some(PAGE_BYTES << largest)
}

/// The main figures under another assumption about touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MainFigures {
    /// Installs.
    pub installs: u64,
    /// Faults.
    pub faults: u64,
    /// Highest resident bytes.
    pub rss_bytes_peak: u64,
}

impl<P> From<&SimReport<P>> for MainFigures {
    fn from(report: &SimReport<P>) -> MainFigures {
        MainFigures { installs: report.installs.total, faults: report.faults, rss_bytes_peak: report.rss_bytes_peak }
    }
}
