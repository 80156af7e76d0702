//! The effect of mapping addresses on a prediction: the same design at the kernel's addresses and at modelled ones.
//!
//! With `--align arena` nothing depends on addresses. With `trim` and `kernel`, the replay's addresses are an input of the
//! prediction, so any difference is due to rules. This module measures what a prediction without these addresses misses.

use hksim_engine::OsCalls;
use hksim_sim::SimReport;
use serde::{Deserialize, Serialize};

/// The prediction at the model's addresses minus that at the replay's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutResidual {
    /// Mappings at addresses chosen by the kernel.
    pub mmaps: u64,
    /// Installs.
    pub installs: i64,
    /// Faults.
    pub faults: i64,
    /// Huge pages installed.
    pub huge_page_installs: i64,
    /// Peak resident bytes.
    pub rss_bytes_peak: i64,
    /// Peak number of mappings.
    pub vmas_peak: i64,
    /// Peak bytes of page tables.
    pub page_table_bytes_peak: i64,
    /// OS calls.
    pub os_calls: OsCalls<i64>,
}

fn minus(modelled: u64, given: u64) -> i64 {
    modelled.wrapping_sub(given) as i64
}

impl LayoutResidual {
    /// Subtracts the prediction at the replay's addresses.
    pub fn new<P>(modelled: &SimReport<P>, given: &SimReport<P>) -> LayoutResidual {
        LayoutResidual {
            mmaps: given.addresses.map_or(0, |label| label.mmaps),
            installs: minus(modelled.installs.total, given.installs.total),
            faults: minus(modelled.faults, given.faults),
            huge_page_installs: minus(modelled.installs.by_kind.thp, given.installs.by_kind.thp),
            rss_bytes_peak: minus(modelled.rss_bytes_peak, given.rss_bytes_peak),
            vmas_peak: minus(modelled.vmas_peak, given.vmas_peak),
            page_table_bytes_peak: minus(modelled.page_table_bytes_peak, given.page_table_bytes_peak),
            os_calls: modelled.os_calls.with(given.os_calls, minus),
        }
    }

    /// Whether the addresses made no difference to these figures.
    pub fn is_zero(&self) -> bool {
        *self == LayoutResidual { mmaps: self.mmaps, ..LayoutResidual::default() }
    }

    /// The differences as text.
    pub fn text(&self) -> String {
        let [mmap, munmap, madvise, mremap] = self.os_calls.values();
        format!(
            "{} mappings; difference at sim's modelled addresses: installs {:+}, THP {:+}, RSS peak {:+} bytes, VMAs {:+}, \
             page tables {:+} bytes, OS calls {:+}",
            self.mmaps,
            self.installs,
            self.huge_page_installs,
            self.rss_bytes_peak,
            self.vmas_peak,
            self.page_table_bytes_peak,
            mmap + munmap + madvise + mremap
        )
    }
}
