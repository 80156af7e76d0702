//! What the addresses of maps do to a prediction: the same design where the kernel put it, and where the model would.
//!
//! With `--align arena` nothing depends on addresses. With `trim` and `kernel` a replay's addresses are an input of the
//! prediction that is compared with it, so what is left there are rules; what a prediction without a replay misses for want of
//! them stands here.

use hksim_engine::OsCalls;
use hksim_sim::SimReport;
use serde::Serialize;

/// The prediction at the model's addresses minus that at the replay's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LayoutResidual {
    /// Maps at addresses of the kernel's choice.
    pub maps: u64,
    /// All installs.
    pub installs: i64,
    /// Faults.
    pub faults: i64,
    /// Huge pages installed.
    pub thp: i64,
    /// Peak resident bytes.
    pub rss_bytes: i64,
    /// Mappings at their peak.
    pub vmas_peak: i64,
    /// Page tables at their peak, in bytes.
    pub page_table_bytes: i64,
    /// OS calls.
    pub os_calls: OsCalls<i64>,
}

fn minus(modelled: u64, given: u64) -> i64 {
    modelled.wrapping_sub(given) as i64
}

impl LayoutResidual {
    /// Subtracts the prediction at the replay's addresses.
    pub fn new(modelled: &SimReport, given: &SimReport) -> LayoutResidual {
        LayoutResidual {
            maps: given.addresses.map_or(0, |label| label.maps),
            installs: minus(modelled.installs.total, given.installs.total),
            faults: minus(modelled.faults, given.faults),
            thp: minus(modelled.installs.by_kind.thp, given.installs.by_kind.thp),
            rss_bytes: minus(modelled.rss_bytes_peak, given.rss_bytes_peak),
            vmas_peak: minus(modelled.vmas_peak, given.vmas_peak),
            page_table_bytes: minus(modelled.page_table_bytes_peak, given.page_table_bytes_peak),
            os_calls: modelled.os_calls.with(given.os_calls, minus),
        }
    }

    /// Whether the addresses made no difference to these figures.
    pub fn is_zero(&self) -> bool {
        *self == LayoutResidual { maps: self.maps, ..LayoutResidual::default() }
    }

    /// In words.
    pub fn text(&self) -> String {
        let [mmap, munmap, madvise, mremap] = self.os_calls.values();
        format!(
            "{} maps; at modelled addresses, as sim has them: installs {:+}, THP {:+}, RSS peak {:+} bytes, VMAs {:+}, \
             page tables {:+} bytes, OS calls {:+}",
            self.maps,
            self.installs,
            self.thp,
            self.rss_bytes,
            self.vmas_peak,
            self.page_table_bytes,
            mmap + munmap + madvise + mremap
        )
    }
}
