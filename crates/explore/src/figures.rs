//! The figures that designs are compared by.

use std::fmt;

use hksim_cost_model::{MedianRange, Price};
use hksim_sim::SimReport;
use hksim_time_model::{ORDER_ERROR_SHARE, Parts};
use serde::{Deserialize, Serialize};

use hksim_text::units;

/// A figure of a simulated design. Less is better in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Time of the allocator's calls and the program's accesses, a range of nanoseconds per call.
    Time,
    /// Page-table installs.
    Installs,
    /// System time, a range of seconds from measured costs.
    SysTime,
    /// Peak resident bytes.
    Rss,
    /// Resident bytes at the end.
    RssEnd,
    /// Misses of the second-level data TLB, program and allocator together.
    TlbMisses,
    /// Peak number of mappings.
    Vmas,
}

impl Figure {
    /// All figures, in the order of sentences and tables.
    pub const ALL: [Figure; 7] =
        [Figure::Time, Figure::Installs, Figure::SysTime, Figure::Rss, Figure::RssEnd, Figure::TlbMisses, Figure::Vmas];

    /// The figures that sentences mention besides the goal. RSS at the end mostly follows the peak, so that it is
    /// mentioned only if it was asked for.
    pub const MENTIONED: [Figure; 6] =
        [Figure::Time, Figure::Installs, Figure::SysTime, Figure::Rss, Figure::TlbMisses, Figure::Vmas];

    /// The word that options use.
    pub const fn word(self) -> &'static str {
        match self {
            Figure::Time => "time",
            Figure::Installs => "installs",
            Figure::SysTime => "sys-time",
            Figure::Rss => "rss",
            Figure::RssEnd => "rss-end",
            Figure::TlbMisses => "tlb-misses",
            Figure::Vmas => "vmas",
        }
    }

    /// The figure with this word.
    pub fn from_word(word: &str) -> Option<Figure> {
        Figure::ALL.into_iter().find(|figure| figure.word() == word)
    }

    /// All words, for messages.
    pub fn words() -> String {
        Figure::ALL.map(Figure::word).join(", ")
    }

    /// The name in sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Figure::Time => "time",
            Figure::Installs => "installs",
            Figure::SysTime => "system time",
            Figure::Rss => "peak RSS",
            Figure::RssEnd => "RSS at the end",
            Figure::TlbMisses => "TLB misses",
            Figure::Vmas => "VMAs",
        }
    }

    /// The least amount that ratios distinguish: an amount below it counts as this much. It keeps ratios to 0 finite.
    const fn unit(self) -> f64 {
        match self {
            Figure::Time => 1e-3,
            Figure::SysTime => 1e-9,
            _ => 1.0,
        }
    }

    /// The difference up to which the order of two designs is not reliable, a share. 0 for what is counted exactly.
    pub const fn order_error_share(self) -> f64 {
        match self {
            Figure::Time => ORDER_ERROR_SHARE,
            _ => 0.0,
        }
    }

    /// The amount, for ratios.
    pub fn at_least_one_unit(self, amount: f64) -> f64 {
        amount.max(self.unit())
    }

    /// An amount as text.
    pub fn text(self, amount: Amount) -> String {
        let [text, _] = self.pair(amount, amount);
        text
    }

    /// Two amounts that are compared, with enough digits to distinguish them.
    pub fn pair(self, one: Amount, other: Amount) -> [String; 2] {
        let all = [one, other];
        let texts = match self {
            Figure::Rss | Figure::RssEnd => units::bytes_apart(&all.map(|amount| amount.middle as u64)),
            Figure::Time => units::apart(&all, 1, nanoseconds, |amount| nanoseconds(amount, 6)),
            Figure::SysTime => units::apart(&all, 2, milliseconds, |amount| milliseconds(amount, 9)),
            _ => all.map(|amount| units::count(amount.middle as u64)).to_vec(),
        };
        [texts[0].clone(), texts[1].clone()]
    }
}

/// The median of a range of nanoseconds per call.
fn nanoseconds(amount: &Amount, digits: usize) -> String {
    format!("{:.digits$} ns per call", amount.middle)
}

/// A range of seconds in milliseconds.
fn milliseconds(amount: &Amount, digits: usize) -> String {
    let [low, middle, high] = [amount.low, amount.middle, amount.high].map(|seconds| seconds * 1e3);
    format!("{middle:.digits$} ms ({low:.digits$} to {high:.digits$})")
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A figure's amount: bytes, seconds, nanoseconds per call or a count. Counts and times per call have no range: `low`,
/// `middle` and `high` are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amount {
    /// Lower end of the range.
    pub low: f64,
    /// The median.
    pub middle: f64,
    /// Upper end of the range.
    pub high: f64,
}

impl Amount {
    /// An exact amount.
    pub const fn exact(amount: f64) -> Amount {
        Amount { low: amount, middle: amount, high: amount }
    }
}

/// The figures of one design on one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Page-table installs.
    pub installs: u64,
    /// Peak resident bytes.
    pub rss_bytes_peak: u64,
    /// Resident bytes at the end.
    #[serde(default)]
    pub rss_bytes_end: u64,
    /// Peak number of mappings.
    pub vmas_peak: u64,
    /// Requests that the design could not serve. Such a design is not compared.
    pub requests_failed: u64,
    /// The memory limit at which the kernel kills the program; absent if it survives, and without a limit. A design that is
    /// killed is not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub killed_at_limit_bytes: Option<u64>,
    /// Misses of the second-level data TLB; absent unless every access of the program is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb_misses: Option<u64>,
    /// System time; absent without a profile, or if the profile lacks a cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_time: Option<Price>,
    /// Nanoseconds per call; absent without a profile, or if a part is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns_per_call: Option<MedianRange>,
    /// Their parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts_ns_per_call: Option<Parts>,
}

impl Figures {
    /// The counts of a report.
    pub fn of<P>(report: &SimReport<P>) -> Figures {
        let lookups = report.tlb.as_ref().and_then(|tlb| tlb.lookups);
        let limit = report.memory_limit.as_ref().filter(|limit| !limit.survives());
        Figures {
            installs: report.installs.total,
            rss_bytes_peak: report.rss_bytes_peak,
            rss_bytes_end: report.rss_bytes_end,
            vmas_peak: report.vmas_peak,
            requests_failed: report.requests_failed,
            killed_at_limit_bytes: limit.map(|limit| limit.limit_bytes),
            tlb_misses: lookups.map(|lookups| lookups.application.misses + lookups.allocator.misses),
            ..Figures::default()
        }
    }

    /// Whether the design did all that the program asked of it. Only such designs are compared.
    pub fn is_served(&self) -> bool {
        self.requests_failed == 0 && self.killed_at_limit_bytes.is_none()
    }

    /// The amount of a figure; `None` if it is not known.
    pub fn amount(&self, figure: Figure) -> Option<Amount> {
        match figure {
            // The range is that of the level, which all designs of a trace share.
            Figure::Time => self.ns_per_call.map(|time| Amount::exact(time.median)),
            Figure::Installs => Some(Amount::exact(self.installs as f64)),
            Figure::Rss => Some(Amount::exact(self.rss_bytes_peak as f64)),
            Figure::RssEnd => Some(Amount::exact(self.rss_bytes_end as f64)),
            Figure::Vmas => Some(Amount::exact(self.vmas_peak as f64)),
            Figure::TlbMisses => self.tlb_misses.map(|misses| Amount::exact(misses as f64)),
            Figure::SysTime => self.system_time.map(|Price { low_s, median_s, high_s }| Amount {
                low: low_s,
                middle: median_s,
                high: high_s,
            }),
        }
    }
}
