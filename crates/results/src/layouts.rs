//! Predictions in several address spaces. A prediction without a replay cannot know where the kernel places mappings,
//! so it reports the range over these.

use hksim_policy::HUGE_PAGE_BYTES;
use hksim_sim::addresses::MODELLED_TOP;
use hksim_sim::{Addresses, Counted, SimConfig, SimReport};
use hksim_text::units::{bytes, count};
use serde::{Deserialize, Serialize};

/// How far the top of each alternative address space is below a 2 MiB boundary. The headline's top is one page below
/// that boundary. Some of these tops are boundaries of SuperSlabs and some are not, because anything may be mapped
/// above.
const BELOW_BOUNDARY_BYTES: [u64; 7] =
    [0, 64 << 10, 256 << 10, 512 << 10, 1 << 20, (1 << 20) + (4 << 10), (1 << 20) + (516 << 10)];

/// The lowest and the highest value of a figure.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Range {
    /// The lowest.
    pub min: u64,
    /// The highest.
    pub max: u64,
}

/// Figures of one design over several address spaces.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Layouts {
    /// Number of address spaces, including the headline's.
    pub address_spaces: u64,
    /// Installs.
    pub installs: Range,
    /// Faults.
    pub faults: Range,
    /// Peak resident bytes.
    pub rss_bytes_peak: Range,
    /// Peak number of mappings.
    pub vmas_peak: Range,
    /// OS calls.
    pub os_calls: Range,
}

/// The headline's configuration in other address spaces.
pub fn setups<P: Clone>(headline: &SimConfig<P>) -> impl Iterator<Item = SimConfig<P>> {
    BELOW_BOUNDARY_BYTES.into_iter().map(|below| {
        let top = MODELLED_TOP.next_multiple_of(HUGE_PAGE_BYTES) - below;
        SimConfig { addresses: Addresses::Modelled { top }, tlb: None, counted: Counted::Pages, ..headline.clone() }
    })
}

impl Layouts {
    /// The range over a headline and the rows of [`setups`].
    pub fn of<P>(headline: &SimReport<P>, others: &[SimReport<P>]) -> Layouts {
        let range = |figure: fn(&SimReport<P>) -> u64| {
            let figures = || std::iter::once(headline).chain(others).map(figure);
            Range { min: figures().min().unwrap_or(0), max: figures().max().unwrap_or(0) }
        };
        Layouts {
            address_spaces: others.len() as u64 + 1,
            installs: range(|row| row.installs.total),
            faults: range(|row| row.faults),
            rss_bytes_peak: range(|row| row.rss_bytes_peak),
            vmas_peak: range(|row| row.vmas_peak),
            os_calls: range(|row| row.os_calls.values().iter().sum()),
        }
    }

    /// The ranges as one line.
    pub fn text(&self) -> String {
        let shown = |range: Range, show: fn(u64) -> String| match range {
            Range { min, max } if min == max => show(min),
            Range { min, max } => format!("{} to {}", show(min), show(max)),
        };
        format!(
            "in {} address spaces: installs {}, faults {}, RSS peak {}, VMAs {}, OS calls {}",
            self.address_spaces,
            shown(self.installs, count),
            shown(self.faults, count),
            shown(self.rss_bytes_peak, bytes),
            shown(self.vmas_peak, count),
            shown(self.os_calls, count),
        )
    }
}
