//! Whether memory was short while a script ran, on the whole machine: then a fault gets less than it asked for, what is free
//! to go goes, and a page that is being moved cannot be written in place.

use hksim_linux_probe::pressure::{FAULT_FALLBACKS, SCANS, fault_fallback_files};
use hksim_linux_probe::procfs::ProcText;

/// Counters that stand still while memory is plenty.
pub(super) struct Shortage {
    /// One for each size of folio: faults that found none. Kernels before 6.10 do not count them.
    sizes: Vec<ProcText>,
    before: u64,
}

impl Shortage {
    /// Opens what this kernel counts.
    pub(super) fn open() -> Shortage {
        let sizes = fault_fallback_files().filter_map(|file| ProcText::open(file.to_str()?).ok()).collect();
        Shortage { sizes, before: 0 }
    }

    /// To be called before a script.
    pub(super) fn begin(&mut self, vmstat: &mut ProcText) {
        self.before = self.count(vmstat);
    }

    /// What was counted since [`Shortage::begin`]; 0 where memory was plenty.
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
