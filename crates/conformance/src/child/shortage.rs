//! Detects memory shortage during a script, machine-wide. Under shortage a fault may get a smaller folio than the model
//! assumes, lazily freed pages are dropped, and a page under migration cannot be written in place.

use hksim_linux_probe::pressure::{FAULT_FALLBACKS, SCANS, fault_fallback_files};
use hksim_linux_probe::procfs::ProcText;

/// Counters that do not change without memory shortage.
pub(super) struct Shortage {
    /// One file per folio size: faults that found no free folio. Kernels before 6.10 do not have these counters.
    sizes: Vec<ProcText>,
    before: u64,
}

impl Shortage {
    /// Opens the counters that this kernel has.
    pub(super) fn open() -> Shortage {
        let sizes = fault_fallback_files().filter_map(|file| ProcText::open(file.to_str()?).ok()).collect();
        Shortage { sizes, before: 0 }
    }

    /// Call this before a script.
    pub(super) fn begin(&mut self, vmstat: &mut ProcText) {
        self.before = self.count(vmstat);
    }

    /// Events since [`Shortage::begin`]; 0 if memory was not short.
    pub(super) fn since(&mut self, vmstat: &mut ProcText) -> u64 {
        self.count(vmstat).saturating_sub(self.before)
    }

    fn count(&mut self, vmstat: &mut ProcText) -> u64 {
        let keys = SCANS.into_iter().chain([FAULT_FALLBACKS]);
        let in_vmstat: u64 = keys.filter_map(|key| vmstat.number(key)).sum();
        let by_size: u64 = self.sizes.iter_mut().filter_map(|size| size.number("")).sum();
        in_vmstat + by_size
    }
}
