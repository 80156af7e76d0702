//! The result of a replay.

use hksim_engine::{Fallbacks, Figures, Installs, OsCalls, PageSet, PageState, PagesAt};
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};
use hksim_timing::Sample;
use serde::{Deserialize, Serialize};

use crate::classify::Unclassified;
use crate::environment::Environment;
use crate::observer::Observer;
use crate::process::ProcessMemory;
use crate::tlb::DtlbEvents;
use crate::usage::Usage;

/// The cost of a run without a heap, which is the replay's own noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// `ru_minflt` of the window; 0 if only the heap's faults are counted.
    pub faults: u64,
    /// Traps of the window.
    pub traps: Option<u64>,
    /// User seconds.
    pub user_s: f64,
    /// System seconds.
    pub sys_s: f64,
}

impl Control {
    pub(crate) fn new(spent: &Usage, traps: Option<u64>) -> Control {
        let (user_s, sys_s) = (spent.user.as_secs_f64(), spent.sys.as_secs_f64());
        Control { faults: spent.faults, traps, user_s, sys_s }
    }
}

/// Anonymous memory before the first call: of a process, or of an allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartMemory {
    /// All of it.
    pub bytes: u64,
    /// What of it is in huge pages.
    pub huge_bytes: u64,
}

impl StartMemory {
    /// What an allocator took before its first call, if this is the memory of a process with it: what exceeds a process with
    /// the C library's allocator and without settings, which has the replay's own memory too.
    pub(crate) fn beyond(self, control: StartMemory) -> StartMemory {
        /// The start of a process differs by some pages, with its environment and the places of its libraries.
        const BYTES_MIN: u64 = 16 * PAGE_BYTES;
        let bytes = self.bytes.saturating_sub(control.bytes);
        match bytes {
            0..BYTES_MIN => StartMemory::default(),
            _ => StartMemory { bytes, huge_bytes: self.huge_bytes.saturating_sub(control.huge_bytes).min(bytes) },
        }
    }

    /// Its pages: those of 2 MiB, and those of 4 KiB.
    pub fn pages(self) -> (u64, u64) {
        (self.huge_bytes / HUGE_PAGE_BYTES, (self.bytes - self.huge_bytes) / PAGE_BYTES)
    }
}

/// The state of memory at a point of the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Events before it.
    pub event: u64,
    /// Resident bytes.
    pub rss_bytes: Option<u64>,
    /// VMAs inside the reservation.
    pub vmas: Option<u64>,
    /// Page tables allocated since the start of the window.
    pub page_table_bytes: Option<u64>,
    /// Bytes that the kernel may drop: given up by `MADV_FREE` and not written since (smaps `LazyFree`).
    pub lazy_free_bytes: Option<u64>,
    /// Pages for which a scan of the whole reservation contradicts the state that was recorded call by call.
    pub inconsistent_pages: u64,
    /// Every present page of the reservation. Not part of the JSON.
    #[serde(skip)]
    pub pages: PageSet,
}

/// A figure that could not be measured, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The field of [`Replayed`].
    pub figure: String,
    /// Why it is null, or what it omits if it is not null.
    pub reason: String,
}

impl Skipped {
    /// Notes a missing figure.
    pub fn new(figure: &str, reason: impl std::fmt::Display) -> Skipped {
        Skipped { figure: figure.into(), reason: reason.to_string() }
    }
}

/// The result of a replay. Figures that could not be measured are null; [`Replayed::skipped`] has the reasons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// Address of the first byte of the reservation.
    pub base_address: Option<u64>,
    /// The addresses that the kernel chose for the separate mappings of SuperSlabs, in order, if they have any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<u64>>,
    /// Installs, derived from the kernel's answers only.
    pub installs: Option<Installs>,
    /// `ru_minflt` of the window.
    pub faults: Option<u64>,
    /// Page-fault exceptions of the window.
    pub traps: Option<u64>,
    /// Peak resident bytes, including hugetlb pages.
    pub rss_bytes_peak: Option<u64>,
    /// Resident bytes at the end.
    pub rss_bytes_end: Option<u64>,
    /// Resident bytes of the process before the first call, if peak and end are its growth since then and
    /// `startup_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes_start: Option<u64>,
    /// Bytes that the allocator took before the first call: the anonymous memory that its process has more than one with the C
    /// library's allocator. Peak, end and marks contain them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_bytes: Option<u64>,
    /// Peak bytes in hugetlb pages.
    pub hugetlb_bytes_peak: Option<u64>,
    /// Huge pages at the end.
    pub huge_pages_end: Option<u64>,
    /// Peak number of VMAs inside the reservation.
    pub vmas_peak: Option<u64>,
    /// Peak page-table memory beyond that at the start of the window.
    pub page_table_bytes_peak: Option<u64>,
    /// Mappings of the process outside the allocator's memory, which count towards `max_map_count`.
    pub vmas_outside_heap: Option<u64>,
    /// Marks at which a huge-page mode or a limit of the machine differed from the start of the run.
    pub marks_modes_changed: Option<u64>,
    /// Page-table memory of the process before the window. Separate mappings of SuperSlabs may use the same tables.
    pub page_table_bytes_start: Option<u64>,
    /// System calls of the allocator.
    pub os_calls: Option<OsCalls>,
    /// System calls of the allocator that the kernel refused.
    pub os_calls_failed: Option<u64>,
    /// SuperSlabs that hugetlb refused, by fallback.
    pub fallbacks: Option<Fallbacks>,
    /// Allocator calls per second of driving time, without reading the trace.
    pub ops_per_s: Option<f64>,
    /// The timed run. Not part of the JSON, which has the figures of all rounds.
    #[serde(skip)]
    pub timed: Option<Sample>,
    /// Data-TLB events of the timed window, without reading the trace.
    pub dtlb: Option<DtlbEvents>,
    /// Events driven.
    pub events: u64,
    /// Requests that the allocator refused.
    pub requests_failed: u64,
    /// Digest of all placements, in hex.
    pub placement_digest: Option<String>,
    /// The run without a heap.
    pub control: Control,
    /// Page changes that match no rule (0 in a sound measurement).
    pub unclassified_pages: Option<u64>,
    /// The first unclassified changes, as examples.
    pub unclassified: Vec<Unclassified>,
    /// Traps whose addresses were lost: installs are incomplete unless this is 0.
    pub traps_lost: Option<u64>,
    /// Memory at the marks.
    pub marks: Vec<Mark>,
    /// Figures that were not measured, with the reasons.
    pub skipped: Vec<Skipped>,
    /// The machine's settings and events that affect results.
    pub environment: Environment,
}

impl Replayed {
    /// The figures that a simulation predicts, too. Those that were not measured are `None`, and
    /// [`Replayed::skipped`] has the reasons.
    pub fn figures(&self) -> Figures {
        let is_left_out =
            |figure: &str| self.skipped.iter().any(|skipped| skipped.figure.split(", ").any(|of| of == figure));
        let pages = self.marks.iter().map(|mark| PagesAt { event: mark.event, pages: mark.pages.clone() });
        Figures {
            placement_digest: self.placement_digest.clone(),
            installs: self.installs.map(|installs| installs.by_kind),
            faults: self.faults,
            traps: self.traps,
            rss_bytes_peak: self.rss_bytes_peak,
            rss_bytes_end: self.rss_bytes_end,
            vmas_peak: self.vmas_peak,
            page_table_bytes_peak: self.page_table_bytes_peak,
            os_calls: self.os_calls,
            os_calls_failed: self.os_calls_failed,
            requests_failed: self.requests_failed,
            events: self.events,
            pages: if is_left_out("marks") { Vec::new() } else { pages.collect() },
        }
    }

    /// Adds what the allocator took before the first call to peak, end and marks.
    pub(crate) fn add_startup(&mut self, startup: StartMemory) {
        self.startup_bytes = Some(startup.bytes);
        let marks = self.marks.iter_mut().map(|mark| &mut mark.rss_bytes);
        let figures = [&mut self.rss_bytes_peak, &mut self.rss_bytes_end];
        figures.into_iter().chain(marks).flatten().for_each(|bytes| *bytes += startup.bytes);
    }

    /// Leaves out the figures of memory: the replay did not treat memory as the program did, for this reason.
    pub(crate) fn leave_out_memory(&mut self, reason: String) {
        (self.faults, self.traps, self.rss_bytes_peak, self.rss_bytes_end) = (None, None, None, None);
        self.skipped.push(Skipped::new("faults, traps, rss_bytes_peak, rss_bytes_end", reason));
    }

    /// Copies the figures of an observed reservation.
    pub(crate) fn note_observer(&mut self, observer: &Observer) {
        let counts = observer.snapshot.counts();
        self.rss_bytes_peak = Some(observer.peaks.rss_bytes);
        self.rss_bytes_end = Some(counts.resident_bytes());
        self.hugetlb_bytes_peak = Some(observer.peaks.hugetlb_bytes);
        self.huge_pages_end = Some(counts.pages(PageState::Thp) * PAGE_BYTES / HUGE_PAGE_BYTES);
        self.vmas_peak = Some(observer.peaks.vmas);
        self.page_table_bytes_peak = Some(observer.peaks.page_table_bytes);
        self.vmas_outside_heap = observer.vmas_outside_heap();
        self.marks_modes_changed = Some(observer.marks_modes_changed());
        self.page_table_bytes_start = Some(observer.page_table_bytes_start());
    }

    /// Copies the figures of an observed process.
    pub(crate) fn note_process(&mut self, memory: &ProcessMemory) {
        let (peak, end) = memory.rss_bytes();
        self.rss_bytes_peak = Some(peak);
        self.rss_bytes_end = Some(end);
        self.rss_bytes_start = Some(memory.rss_bytes_start());
        self.vmas_peak = Some(memory.vmas_peak()).filter(|&vmas| vmas > 0);
        self.page_table_bytes_peak = Some(memory.page_table_bytes_peak());
    }
}
