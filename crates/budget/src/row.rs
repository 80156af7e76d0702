//! What a budget compares: a design on a trace, with its figures.

use std::path::PathBuf;

use hksim_cost_model::{MedianRange, Price};
use hksim_designs::Label;
use hksim_explore::digest::Digest;
use hksim_policy::Policy;
use hksim_time_model::Parts;
use serde::{Deserialize, Serialize};

use crate::consumers::Consumers;
use crate::metric::{Kind, Metric};

/// A design on a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The trace, as the budget names it.
    pub trace: String,
    /// The trace's checksum.
    pub checksum: Option<String>,
    /// The design's name.
    pub design: String,
    /// What it names.
    #[serde(flatten)]
    pub subject: Subject,
    /// Digest of every input that is not shown here: kernel, touches.
    pub inputs: Digest,
    /// Calls that allocate: malloc, calloc, realloc and aligned allocations. 0 for memory recordings.
    pub allocations: u64,
    /// Its figures.
    pub figures: Figures,
    /// The runs that measured the figures, if they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// What a design names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Subject {
    /// Another design than SuperSlab, which is simulated. It comes first, because a policy has none of its fields.
    Design {
        /// Its name and its settings.
        policy: Box<Label>,
    },
    /// A policy, which is simulated.
    Policy {
        /// The policy.
        policy: Box<Policy>,
    },
    /// A real allocator, on which the trace is replayed.
    Allocator {
        /// Its word in the budget.
        on: String,
        /// The preloaded library.
        library: Option<PathBuf>,
        /// CRC-32 of the library, eight hexadecimal digits.
        library_checksum: Option<String>,
    },
    /// Settings of the kernel, under which the recording is simulated.
    Setting {
        /// Their words in the budget.
        setting: String,
    },
}

impl Subject {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Subject::Design { .. } => Kind::Design,
            Subject::Policy { .. } => Kind::Policy,
            Subject::Allocator { .. } => Kind::Allocator,
            Subject::Setting { .. } => Kind::Setting,
        }
    }
}

/// The figures of a row. Those that are not known are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Page-table installs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installs: Option<u64>,
    /// Faults charged to the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<u64>,
    /// Page-fault exceptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traps: Option<u64>,
    /// Peak resident bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes_peak: Option<u64>,
    /// Resident bytes at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes_end: Option<u64>,
    /// Requested bytes that were never freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_bytes_end: Option<u64>,
    /// Peak number of mappings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmas_peak: Option<u64>,
    /// Requests that were refused.
    pub requests_failed: u64,
    /// The memory limit at which the kernel kills the program, or may kill it; absent if it survives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub killed_at_limit_bytes: Option<u64>,
    /// Misses of the second-level data TLB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb_misses: Option<u64>,
    /// System time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_time: Option<Price>,
    /// Nanoseconds per call. Of a real allocator, the median and the interval of timed replays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_call: Option<MedianRange>,
    /// Their parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts_ns_per_call: Option<Parts>,
}

/// The runs of which the figures of a row are medians.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Their number.
    pub runs: u32,
    /// The figures that differed between them.
    pub ranges: Vec<MetricRange>,
}

/// The interval that contains a true time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The range of a figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricRange {
    /// The figure.
    pub metric: Metric,
    /// The lowest amount.
    pub low: f64,
    /// The highest amount.
    pub high: f64,
}

impl Row {
    /// The amount of a metric; `None` if it is not known.
    pub fn amount(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::InstallsPer1000Allocations => {
                self.figures.installs.map(|installs| installs as f64 * 1000.0 / self.allocations.max(1) as f64)
            }
            _ => self.figures.amount(metric),
        }
    }

    /// The interval of a measured time; `None` for other figures.
    pub fn interval(&self, metric: Metric) -> Option<Interval> {
        let is_time = metric == Metric::NsPerCall && self.subject.kind() == Kind::Allocator;
        let time = self.figures.ns_per_call.filter(|_| is_time)?;
        Some(Interval { low: time.low, high: time.high })
    }

    /// The amount from which a change of a metric counts: of a measured time the most that it can be.
    pub fn base(&self, metric: Metric) -> Option<f64> {
        self.interval(metric).map(|interval| interval.high).or_else(|| self.amount(metric))
    }

    /// The range of a metric over the runs that measured it, if they differed.
    pub fn range(&self, metric: Metric) -> Option<MetricRange> {
        self.measured.as_ref()?.ranges.iter().find(|range| range.metric == metric).copied()
    }
}

impl Figures {
    /// The amount of a metric; `None` if it is not known, or needs the number of allocations.
    pub fn amount(&self, metric: Metric) -> Option<f64> {
        let count = match metric {
            Metric::NsPerCall => return self.ns_per_call.map(|time| time.median),
            Metric::SystemTimeS => return self.system_time.map(|price| price.median_s),
            Metric::InstallsPer1000Allocations => return None,
            Metric::Installs => self.installs,
            Metric::Faults => self.faults,
            Metric::Traps => self.traps,
            Metric::RssPeak => self.rss_bytes_peak,
            Metric::RssBytesEnd => self.rss_bytes_end,
            Metric::LiveBytesEnd => self.live_bytes_end,
            Metric::Vmas => self.vmas_peak,
            Metric::TlbMisses => self.tlb_misses,
        };
        count.map(|count| count as f64)
    }
}

/// A stored result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// Schema version.
    pub schema: u32,
    /// Version of hksim that wrote it.
    pub hksim_version: String,
    /// The rows.
    pub rows: Vec<Row>,
    /// Who uses the memory, to name what grew; empty in results of hksim 0.1.
    #[serde(default)]
    pub consumers: Vec<Consumers>,
    /// Of each row that was replayed on an allocator, the installs by function of its library, to name what grew if only
    /// the library changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<Consumers>,
}
