//! What a budget limits.

use hksim_text::units;
use serde::{Deserialize, Serialize};

/// What a budget limits. Less is better in all of them. The aliases are the words of results before schema 2 had these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Nanoseconds per call: predicted, or measured on a real allocator.
    #[serde(alias = "time")]
    NsPerCall,
    /// Predicted system time in seconds.
    #[serde(alias = "sys-time")]
    SystemTimeS,
    /// Page-table installs.
    Installs,
    /// Installs per 1 000 allocations.
    #[serde(rename = "installs_per_1000_allocations")]
    InstallsPer1000Allocations,
    /// Faults charged to the process (`ru_minflt`).
    Faults,
    /// Page-fault exceptions.
    Traps,
    /// Peak resident bytes.
    #[serde(alias = "rss")]
    RssPeak,
    /// Resident bytes at the end.
    RssBytesEnd,
    /// Requested bytes that were never freed.
    LiveBytesEnd,
    /// Peak number of mappings.
    Vmas,
    /// Misses of the second-level data TLB.
    #[serde(alias = "tlb-misses")]
    TlbMisses,
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A whole number.
    Count,
    /// A number that need not be whole.
    Number,
}

/// What a section of a budget holds to its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A policy, simulated.
    Policy,
    /// Another design, simulated, whose instructions are not known.
    Design,
    /// A real allocator, by replays.
    Allocator,
    /// A recorded program under kernel settings, simulated.
    Setting,
}

impl Metric {
    /// All metrics, in the order of the table.
    pub const ALL: [Metric; 11] = [
        Metric::NsPerCall,
        Metric::SystemTimeS,
        Metric::Installs,
        Metric::InstallsPer1000Allocations,
        Metric::Faults,
        Metric::Traps,
        Metric::RssPeak,
        Metric::RssBytesEnd,
        Metric::LiveBytesEnd,
        Metric::Vmas,
        Metric::TlbMisses,
    ];

    /// The key in a budget.
    pub const fn word(self) -> &'static str {
        match self {
            Metric::NsPerCall => "ns_per_call",
            Metric::SystemTimeS => "system_time_s",
            Metric::Installs => "installs",
            Metric::InstallsPer1000Allocations => "installs_per_1000_allocations",
            Metric::Faults => "faults",
            Metric::Traps => "traps",
            Metric::RssPeak => "rss_peak",
            Metric::RssBytesEnd => "rss_bytes_end",
            Metric::LiveBytesEnd => "live_bytes_end",
            Metric::Vmas => "vmas",
            Metric::TlbMisses => "tlb_misses",
        }
    }

    /// The name in sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::NsPerCall => "ns per call",
            Metric::SystemTimeS => "seconds of system time",
            Metric::Installs => "installs",
            Metric::InstallsPer1000Allocations => "installs per 1 000 allocations",
            Metric::Faults => "faults",
            Metric::Traps => "traps",
            Metric::RssPeak => "peak RSS",
            Metric::RssBytesEnd => "RSS at the end",
            Metric::LiveBytesEnd => "live bytes at the end",
            Metric::Vmas => "VMAs",
            Metric::TlbMisses => "TLB misses",
        }
    }

    /// Its unit.
    pub const fn unit(self) -> Unit {
        match self {
            Metric::NsPerCall | Metric::SystemTimeS | Metric::InstallsPer1000Allocations => Unit::Number,
            Metric::RssPeak | Metric::RssBytesEnd | Metric::LiveBytesEnd => Unit::Bytes,
            Metric::Installs | Metric::Faults | Metric::Traps | Metric::Vmas | Metric::TlbMisses => Unit::Count,
        }
    }

    /// Whether it can be known of what a section holds to its limits.
    pub const fn is_of(self, kind: Kind) -> bool {
        match (self, kind) {
            (Metric::NsPerCall, Kind::Design) => false,
            (_, Kind::Policy | Kind::Design)
            | (Metric::Faults | Metric::Traps | Metric::RssPeak | Metric::RssBytesEnd, _)
            | (Metric::LiveBytesEnd | Metric::NsPerCall, Kind::Allocator)
            | (Metric::SystemTimeS | Metric::Installs | Metric::Vmas, Kind::Setting) => true,
            (_, Kind::Allocator | Kind::Setting) => false,
        }
    }

    /// Amounts of a row as text, with enough digits to distinguish different ones.
    pub fn texts(self, amounts: &[f64]) -> Vec<String> {
        let whole = || amounts.iter().map(|&amount| amount as u64);
        match self.unit() {
            Unit::Number => units::apart(amounts, 2, |amount, digits| format!("{amount:.digits$}"), f64::to_string),
            Unit::Bytes => units::bytes_apart(&whole().collect::<Vec<u64>>()),
            Unit::Count => whole().map(units::count).collect(),
        }
    }
}
