//! Budgets: the most that named designs may cost on some traces, checked in CI, and what changed since a stored result.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hksim_policy::Policy;
use hksim_policy::flags::FLAGS;
use hksim_policy::units::{parse_count, parse_size};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::figures::{Figure, Figures};
use hksim_text::units;

/// Why a budget cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BudgetError {
    /// Not a budget.
    #[error("line {line}: {why}")]
    Toml {
        /// The line, from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// An amount that is none.
    #[error("design.{design}: {name} = \"{text}\": expected {expected}")]
    Amount {
        /// The design.
        design: String,
        /// The limit.
        name: &'static str,
        /// Its text.
        text: String,
        /// What is expected.
        expected: &'static str,
    },
    /// There is nothing to check.
    #[error("{0}")]
    Nothing(&'static str),
    /// A design without limits.
    #[error("design.{0}: no limit; set at least one of {limits}", limits = Metric::ALL.map(Metric::word).join(", "))]
    NoLimit(String),
    /// A trace named twice.
    #[error("traces: {0} is there twice; name each trace once")]
    Twice(String),
}

/// A budget, as its TOML file has it. Paths are relative to that file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The stored result.
    pub result: PathBuf,
    /// The traces.
    pub traces: Vec<PathBuf>,
    /// The core whose TLB is modelled.
    pub tlb: Option<String>,
    /// The profile that times are predicted from.
    pub profile: Option<PathBuf>,
    /// The designs, by name.
    pub design: BTreeMap<String, Allowance>,
}

/// A design and its limits. Absent limits are not checked.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// The policy: a preset or policy file, then any number of `+FLAG=VALUE`.
    #[serde(default = "default_policy")]
    pub policy: String,
    /// Installs per 1 000 allocations.
    pub installs_per_1000_allocations: Option<f64>,
    /// Nanoseconds per call.
    pub ns_per_call: Option<f64>,
    /// Peak resident bytes: `"64M"`, or a number of bytes.
    pub rss_peak: Option<Most>,
    /// Peak number of mappings.
    pub vmas: Option<Most>,
    /// Misses of the second-level data TLB: `"1M"`, or a number.
    pub tlb_misses: Option<Most>,
}

/// A limit in a budget: a number, or a text with a unit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a number, or a text with a unit")]
pub enum Most {
    /// A number.
    Number(u64),
    /// A text with a unit.
    Text(String),
    /// A number that is no amount: negative, or not whole.
    NoAmount(f64),
}

fn default_policy() -> String {
    "default".into()
}

impl Budget {
    /// Parses a budget.
    ///
    /// # Errors
    /// The text is no budget, or an amount is invalid.
    pub fn parse(text: &str) -> Result<Budget, BudgetError> {
        let budget: Budget = toml::from_str(text).map_err(|why| BudgetError::Toml {
            line: why.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
            // The parser names a type of Rust.
            why: why.message().replace("expected f64", "expected a number (2.5)").replace('\n', ", "),
        })?;
        if budget.traces.is_empty() {
            return Err(BudgetError::Nothing("`traces` is empty; name at least one trace"));
        }
        let twin = |&(index, trace): &(usize, &PathBuf)| budget.traces[..index].contains(trace);
        if let Some((_, trace)) = budget.traces.iter().enumerate().find(twin) {
            return Err(BudgetError::Twice(trace.display().to_string()));
        }
        if budget.design.is_empty() {
            return Err(BudgetError::Nothing("no design; add a section [design.NAME]"));
        }
        for (name, allowance) in &budget.design {
            if allowance.limits(name)?.is_empty() {
                return Err(BudgetError::NoLimit(name.clone()));
            }
        }
        Ok(budget)
    }
}

impl Allowance {
    /// The limits of the design with this name.
    ///
    /// # Errors
    /// An amount is invalid.
    pub fn limits(&self, name: &str) -> Result<Vec<Allowed>, BudgetError> {
        let wrong = |limit: Metric, text: &str, expected| {
            let (design, text) = (name.to_string(), text.to_string());
            BudgetError::Amount { design, name: limit.word(), text, expected }
        };
        let amount = |limit: Metric, most: &Option<Most>, expected, parse: fn(&str) -> Option<u64>| match most {
            None => Ok(None),
            Some(Most::Number(amount)) => Ok(Some(*amount as f64)),
            Some(Most::Text(text)) => {
                parse(text).map(|amount| Some(amount as f64)).ok_or_else(|| wrong(limit, text, expected))
            }
            Some(Most::NoAmount(number)) => Err(wrong(limit, &number.to_string(), expected)),
        };
        let rss = amount(Metric::RssPeak, &self.rss_peak, "a size from 0 (64M)", |text| parse_size(text).ok())?;
        let vmas = amount(Metric::Vmas, &self.vmas, "a whole number from 0 (100)", |text| parse_count(text).ok())?;
        let misses =
            amount(Metric::TlbMisses, &self.tlb_misses, "a whole number from 0 (1M)", |text| parse_count(text).ok())?;
        let number = |limit: Metric, most: Option<f64>| match most {
            Some(most) if !most.is_finite() || most < 0.0 => {
                Err(wrong(limit, &most.to_string(), "a number from 0 (2.5)"))
            }
            most => Ok(most),
        };
        let installs = number(Metric::InstallsPer1000Allocations, self.installs_per_1000_allocations)?;
        let ns = number(Metric::NsPerCall, self.ns_per_call)?;
        let limits = [
            (Metric::NsPerCall, ns),
            (Metric::InstallsPer1000Allocations, installs),
            (Metric::RssPeak, rss),
            (Metric::Vmas, vmas),
            (Metric::TlbMisses, misses),
        ];
        Ok(limits.into_iter().filter_map(|(metric, most)| Some(Allowed { metric, most: most? })).collect())
    }
}

/// What a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Predicted nanoseconds per call.
    NsPerCall,
    /// Installs per 1 000 allocations.
    #[serde(rename = "installs_per_1000_allocations")]
    InstallsPer1000Allocations,
    /// Peak resident bytes.
    RssPeak,
    /// Peak number of mappings.
    Vmas,
    /// Misses of the second-level data TLB.
    TlbMisses,
}

impl Metric {
    /// All metrics, in the order of the table.
    pub const ALL: [Metric; 5] =
        [Metric::NsPerCall, Metric::InstallsPer1000Allocations, Metric::RssPeak, Metric::Vmas, Metric::TlbMisses];

    /// The key in a budget.
    pub const fn word(self) -> &'static str {
        match self {
            Metric::NsPerCall => "ns_per_call",
            Metric::InstallsPer1000Allocations => "installs_per_1000_allocations",
            Metric::RssPeak => "rss_peak",
            Metric::Vmas => "vmas",
            Metric::TlbMisses => "tlb_misses",
        }
    }

    /// The name in sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::NsPerCall => "ns per call",
            Metric::InstallsPer1000Allocations => "installs per 1 000 allocations",
            Metric::RssPeak => Figure::Rss.name(),
            Metric::Vmas => Figure::Vmas.name(),
            Metric::TlbMisses => Figure::TlbMisses.name(),
        }
    }

    /// Amounts of a row as text, with enough digits to distinguish different ones.
    pub fn texts(self, amounts: &[f64]) -> Vec<String> {
        match self {
            Metric::NsPerCall | Metric::InstallsPer1000Allocations => {
                units::apart(amounts, 2, |amount, digits| format!("{amount:.digits$}"), f64::to_string)
            }
            Metric::RssPeak => units::bytes_apart(&amounts.iter().map(|&amount| amount as u64).collect::<Vec<u64>>()),
            Metric::Vmas | Metric::TlbMisses => amounts.iter().map(|&amount| units::count(amount as u64)).collect(),
        }
    }

    /// The amount of a row; `None` if it is not known.
    pub fn amount(self, row: &Row) -> Option<f64> {
        match self {
            Metric::NsPerCall => row.figures.ns_per_call.map(|time| time.median),
            Metric::InstallsPer1000Allocations => {
                Some(row.figures.installs as f64 * 1000.0 / row.allocations.max(1) as f64)
            }
            Metric::RssPeak => Some(row.figures.rss_bytes_peak as f64),
            Metric::Vmas => Some(row.figures.vmas_peak as f64),
            Metric::TlbMisses => row.figures.tlb_misses.map(|misses| misses as f64),
        }
    }
}

/// The most of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Allowed {
    /// The metric.
    pub metric: Metric,
    /// The greatest allowed amount.
    pub most: f64,
}

/// A design on a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The trace, as the budget names it.
    pub trace: String,
    /// The trace's checksum.
    pub checksum: Option<String>,
    /// The design's name.
    pub design: String,
    /// Its policy.
    pub policy: Policy,
    /// Digest of every input: trace, policy, kernel, touches.
    pub inputs: crate::digest::Digest,
    /// Calls that allocate: malloc, calloc, realloc and aligned allocations.
    pub allocations: u64,
    /// Its figures.
    pub figures: Figures,
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
}

/// A limit and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The limit.
    #[serde(flatten)]
    pub allowed: Allowed,
    /// The amount; absent if it is not known.
    pub amount: Option<f64>,
    /// The amount in the stored result.
    pub stored: Option<f64>,
    /// Whether the limit is met. An amount that is not known does not meet it.
    pub is_within: bool,
}

/// A difference between a row and the stored one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Difference {
    /// There is no stored row.
    NotStored,
    /// The trace has another content.
    Trace {
        /// The checksum before.
        before: Option<String>,
        /// The checksum now.
        now: Option<String>,
    },
    /// A flag of the policy has another value.
    Flag {
        /// The flag.
        flag: String,
        /// The value before.
        before: String,
        /// The value now.
        now: String,
    },
    /// Another version of hksim.
    Version {
        /// The version before.
        before: String,
        /// The version now.
        now: String,
    },
    /// Another input: the kernel, or the rule of touches.
    OtherInput,
    /// A figure changed.
    Figure {
        /// The figure.
        figure: Figure,
        /// The amount before.
        before: f64,
        /// The amount now.
        now: f64,
    },
}

/// The check of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckedRow {
    /// The row.
    #[serde(flatten)]
    pub row: Row,
    /// Its limits.
    pub limits: Vec<Checked>,
    /// Whether a request failed, which no budget allows.
    pub has_failed_requests: bool,
    /// What changed since the stored result: inputs first, then figures.
    pub differences: Vec<Difference>,
}

impl CheckedRow {
    /// Checks a row against its limits and the stored result.
    pub fn of(row: Row, allowed: &[Allowed], stored: Option<&Stored>, version: &str) -> CheckedRow {
        let before = stored.and_then(|stored| {
            stored.rows.iter().find(|other| (&other.trace, &other.design) == (&row.trace, &row.design))
        });
        let check = |allowed: &Allowed| {
            let amount = allowed.metric.amount(&row);
            let stored = before.and_then(|before| allowed.metric.amount(before));
            Checked {
                allowed: *allowed,
                amount,
                stored,
                is_within: amount.is_some_and(|amount| amount <= allowed.most),
            }
        };
        let differences = match (before, stored) {
            (Some(before), Some(stored)) => differences(before, &row, &stored.hksim_version, version),
            _ => vec![Difference::NotStored],
        };
        let limits = allowed.iter().map(check).collect();
        CheckedRow { limits, has_failed_requests: row.figures.requests_failed > 0, differences, row }
    }

    /// Whether all limits are met and all requests were served.
    pub fn is_within(&self) -> bool {
        !self.has_failed_requests && self.limits.iter().all(|limit| limit.is_within)
    }
}

fn differences(before: &Row, now: &Row, version_before: &str, version: &str) -> Vec<Difference> {
    let mut found = Vec::new();
    if before.checksum != now.checksum {
        found.push(Difference::Trace { before: before.checksum.clone(), now: now.checksum.clone() });
    }
    for flag in FLAGS {
        let (before, now) = (flag.show(&before.policy).to_string(), flag.show(&now.policy).to_string());
        if before != now {
            found.push(Difference::Flag { flag: flag.name.to_string(), before, now });
        }
    }
    if version_before != version {
        found.push(Difference::Version { before: version_before.to_string(), now: version.to_string() });
    }
    if found.is_empty() && before.inputs != now.inputs {
        found.push(Difference::OtherInput);
    }
    for figure in Figure::MENTIONED {
        let amount = |row: &Row| row.figures.amount(figure).map(|amount| amount.middle);
        if let (Some(before), Some(now)) = (amount(before), amount(now))
            && before != now
        {
            found.push(Difference::Figure { figure, before, now });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_with_their_limits() {
        let text = "result = \"b.json\"\ntraces = [\"a.hkt\"]\n[design.today]\nrss_peak = \"64M\"\nvmas = 40\n\
                    tlb_misses = \"1M\"\ninstalls_per_1000_allocations = 2.5\n[design.small]\n\
                    policy = \"default+superslab=1M\"\nrss_peak = 4096\ntlb_misses = 7\n";
        let budget = Budget::parse(text).expect("a budget");
        let limits = budget.design["today"].limits("today").expect("limits");
        assert_eq!(limits.iter().map(|limit| limit.most).collect::<Vec<_>>(), [2.5, 67_108_864.0, 40.0, 1e6]);
        assert_eq!(budget.design["today"].policy, "default");
        let small = budget.design["small"].limits("small").expect("limits");
        assert_eq!(small.iter().map(|limit| limit.most).collect::<Vec<_>>(), [4096.0, 7.0]);
    }

    #[test]
    fn errors_name_the_line_or_the_limit() {
        for (text, part) in [
            ("", "line 1: missing field `result`"),
            ("result = \"r\"\ntraces = []\n[design.a]\n", "`traces` is empty"),
            ("result = \"r\"\ntraces = [\"a\"]\n[design]\n", "no design; add a section"),
            ("result = \"r\"\ntraces = [\"a\"]\n[design.a]\nrss = 1\n", "line 4: unknown field `rss`"),
            (
                "result = \"r\"\ntraces = [\"a\"]\n[design.a]\nrss_peak = \"x\"\n",
                "design.a: rss_peak = \"x\": expected a size",
            ),
            (
                "result = \"r\"\ntraces = [\"a\"]\n[design.a]\n",
                "design.a: no limit; set at least one of ns_per_call, installs_per",
            ),
            ("result = \"r\"\ntraces = [\"a\", \"a\"]\n[design.a]\nvmas = 1\n", "traces: a is there twice"),
            (
                "result = \"r\"\ntraces = [\"a\"]\n[design.a]\nrss_peak = -1\n",
                "rss_peak = \"-1\": expected a size from 0",
            ),
            (
                "result = \"r\"\ntraces = [\"a\"]\n[design.a]\nvmas = -1\n",
                "vmas = \"-1\": expected a whole number from 0 (100)",
            ),
            (
                "result = \"r\"\ntraces = [\"a\"]\n[design.a]\ntlb_misses = 1.5\n",
                "tlb_misses = \"1.5\": expected a whole number from 0 (1M)",
            ),
            ("result = \"r\"\ntraces = [\"a\"]\n[design.a]\nvmas = true\n", "line 4: expected a number"),
            (
                "result = \"r\"\ntraces = [\"a\"]\n[design.a]\nvmas = \"x\"\n",
                "vmas = \"x\": expected a whole number from 0 (100)",
            ),
            (
                "result = \"r\"\ntraces = [\"a\"]\n[design.a]\ninstalls_per_1000_allocations = \"x\"\n",
                "expected a number (2.5)",
            ),
        ] {
            let why = Budget::parse(text).expect_err(text).to_string();
            assert!(why.contains(part), "{why}");
        }
        for amount in ["nan", "inf", "-0.5"] {
            let text =
                format!("result = \"r\"\ntraces = [\"a\"]\n[design.a]\ninstalls_per_1000_allocations = {amount}\n");
            let why = Budget::parse(&text).expect_err(amount).to_string();
            assert!(why.contains("expected a number from 0"), "{why}");
        }
    }
}
