//! The memory of the whole process, for allocators whose mappings cannot be observed.

use std::io;

use crate::result::{Mark, StartMemory};
use crate::window::WindowObserver;
use hksim_linux_probe::procfs::ProcText;
use hksim_linux_probe::traps::TrapCounter;

/// Bytes and counts of the process at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    rss_bytes: u64,
    page_table_bytes: u64,
    vmas: u64,
}

/// Observes the process as a whole. All figures are growth since the start of the window.
pub(crate) struct ProcessMemory {
    rollup: ProcText,
    status: ProcText,
    maps: ProcText,
    traps: Option<TrapCounter>,
    start: StartMemory,
    before: Figures,
    peaks: Figures,
    end: Figures,
}

impl ProcessMemory {
    /// Opens all sources. `traps` is `None` if the kernel does not count them.
    pub(crate) fn open(traps: Option<TrapCounter>) -> io::Result<ProcessMemory> {
        Ok(ProcessMemory {
            rollup: ProcText::open("/proc/self/smaps_rollup")?,
            status: ProcText::open("/proc/self/status")?,
            maps: ProcText::open("/proc/self/maps")?,
            traps,
            start: StartMemory::default(),
            before: Figures::default(),
            peaks: Figures::default(),
            end: Figures::default(),
        })
    }

    /// Resets the kernel's RSS peak by writing to `clear_refs`. Call it before [`WindowObserver::begin`].
    pub(crate) fn reset_peak() {
        // If this is refused, the kernel's peak covers the whole life of the process. It may be too high, but never too
        // low.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }

    fn now(&mut self) -> Figures {
        let kilobytes = |text: &mut ProcText, key| text.number(key).unwrap_or(0) * 1024;
        Figures {
            rss_bytes: kilobytes(&mut self.rollup, "Rss:") + kilobytes(&mut self.rollup, "Private_Hugetlb:"),
            page_table_bytes: kilobytes(&mut self.status, "VmPTE:"),
            vmas: self.maps.maps_within(0, u64::MAX).unwrap_or(0),
        }
    }

    fn growth(&mut self) -> Figures {
        let now = self.now();
        self.end = Figures {
            rss_bytes: now.rss_bytes.saturating_sub(self.before.rss_bytes),
            page_table_bytes: now.page_table_bytes.saturating_sub(self.before.page_table_bytes),
            vmas: now.vmas.saturating_sub(self.before.vmas),
        };
        self.peaks = Figures {
            rss_bytes: self.peaks.rss_bytes.max(self.end.rss_bytes),
            page_table_bytes: self.peaks.page_table_bytes.max(self.end.page_table_bytes),
            vmas: self.peaks.vmas.max(self.end.vmas),
        };
        self.end
    }

    /// RSS before the first call.
    pub(crate) fn rss_bytes_start(&self) -> u64 {
        self.before.rss_bytes
    }

    /// Growth of RSS: (peak, value at the end).
    pub(crate) fn rss_bytes(&self) -> (u64, u64) {
        (self.peaks.rss_bytes, self.end.rss_bytes)
    }

    /// Growth of page tables, the maximum at any mark.
    pub(crate) fn page_table_bytes_peak(&self) -> u64 {
        self.peaks.page_table_bytes
    }

    /// Growth of the number of VMAs, the maximum at any mark.
    pub(crate) fn vmas_peak(&self) -> u64 {
        self.peaks.vmas
    }
}

impl WindowObserver for ProcessMemory {
    fn begin(&mut self) {
        self.before = self.now();
        let mut bytes = |key| self.rollup.number(key).unwrap_or(0) * 1024;
        self.start = StartMemory { bytes: bytes("Anonymous:"), huge_bytes: bytes("AnonHugePages:") };
        self.traps.iter().for_each(TrapCounter::enable);
    }

    fn start(&self) -> Option<StartMemory> {
        Some(self.start)
    }

    fn mark(&mut self, events: u64) -> Mark {
        let growth = self.growth();
        Mark {
            event: events,
            rss_bytes: Some(growth.rss_bytes),
            vmas: Some(growth.vmas),
            page_table_bytes: Some(growth.page_table_bytes),
            ..Mark::default()
        }
    }

    fn end(&mut self) -> Option<u64> {
        let traps = self.traps.as_ref().map(|traps| {
            traps.disable();
            traps.count()
        });
        self.growth();
        let peak_bytes = self.status.number("VmHWM:").unwrap_or(0) * 1024;
        self.peaks.rss_bytes = self.peaks.rss_bytes.max(peak_bytes.saturating_sub(self.before.rss_bytes));
        traps
    }
}
