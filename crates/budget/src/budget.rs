//! A budget, as its TOML file has it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::error::BudgetError;
use crate::limit::{Limit, Written};
use crate::metric::Metric;

/// A budget. Paths are relative to its file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The stored result.
    pub result: PathBuf,
    /// The traces, or the memory recordings.
    pub traces: Vec<PathBuf>,
    /// The core whose TLB is modelled.
    pub tlb: Option<String>,
    /// The profile that times are predicted from.
    pub profile: Option<PathBuf>,
    /// The designs, by name.
    pub design: BTreeMap<String, Section>,
}

/// A design and its limits. Absent limits are not checked.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// The policy: a preset or policy file, then any number of `+FLAG=VALUE`.
    pub policy: Option<String>,
    /// Another design than SuperSlab: its name, then any number of `+FLAG=VALUE`.
    pub design: Option<String>,
    /// A real allocator with its settings, on which traces are replayed.
    pub on: Option<String>,
    /// Settings of the kernel, `FLAG=VALUE` joined by `+`, under which memory recordings are simulated.
    pub setting: Option<String>,
    ns_per_call: Option<Written>,
    system_time_s: Option<Written>,
    installs: Option<Written>,
    installs_per_1000_allocations: Option<Written>,
    faults: Option<Written>,
    traps: Option<Written>,
    rss_peak: Option<Written>,
    rss_bytes_end: Option<Written>,
    live_bytes_end: Option<Written>,
    vmas: Option<Written>,
    tlb_misses: Option<Written>,
}

/// What a section names, as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words<'a> {
    /// A policy.
    Policy(&'a str),
    /// Another design than SuperSlab.
    Design(&'a str),
    /// A real allocator.
    On(&'a str),
    /// Settings of the kernel.
    Setting(&'a str),
}

impl Budget {
    /// Parses a budget.
    ///
    /// # Errors
    /// The text is no budget, or an amount is invalid.
    pub fn parse(text: &str) -> Result<Budget, BudgetError> {
        let budget: Budget = toml::from_str(text).map_err(|why| BudgetError::Toml {
            line: why.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
            why: why.message().replace('\n', ", "),
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
        for (name, section) in &budget.design {
            section.words(name)?;
            if section.limits(name)?.is_empty() {
                return Err(BudgetError::NoLimit(name.clone()));
            }
        }
        Ok(budget)
    }
}

impl Section {
    /// What the section with this name names; the default policy if it names nothing.
    ///
    /// # Errors
    /// It names several things.
    pub fn words(&self, name: &str) -> Result<Words<'_>, BudgetError> {
        let given = [
            ("policy", self.policy.as_deref().map(Words::Policy)),
            ("design", self.design.as_deref().map(Words::Design)),
            ("on", self.on.as_deref().map(Words::On)),
            ("setting", self.setting.as_deref().map(Words::Setting)),
        ];
        let mut given = given.into_iter().filter_map(|(key, words)| Some((key, words?)));
        match (given.next(), given.next()) {
            (Some((one, _)), Some((other, _))) => Err(BudgetError::Several(name.to_string(), one, other)),
            (Some((_, words)), None) => Ok(words),
            (None, _) => Ok(Words::Policy("default")),
        }
    }

    /// The limits of the section with this name, in the order of [`Metric::ALL`].
    ///
    /// # Errors
    /// An amount is invalid.
    pub fn limits(&self, name: &str) -> Result<Vec<Limit>, BudgetError> {
        let given = Metric::ALL.into_iter().filter_map(|metric| Some((metric, self.written(metric)?)));
        let limit = |(metric, written): (Metric, &Written)| {
            Limit::of(metric, written).map_err(|expected| BudgetError::Amount {
                design: name.to_string(),
                name: metric.word(),
                text: match written {
                    Written::Number(number) => number.to_string(),
                    Written::Text(text) => text.clone(),
                },
                expected,
            })
        };
        given.map(limit).collect()
    }

    fn written(&self, metric: Metric) -> Option<&Written> {
        let written = match metric {
            Metric::NsPerCall => &self.ns_per_call,
            Metric::SystemTimeS => &self.system_time_s,
            Metric::Installs => &self.installs,
            Metric::InstallsPer1000Allocations => &self.installs_per_1000_allocations,
            Metric::Faults => &self.faults,
            Metric::Traps => &self.traps,
            Metric::RssPeak => &self.rss_peak,
            Metric::RssBytesEnd => &self.rss_bytes_end,
            Metric::LiveBytesEnd => &self.live_bytes_end,
            Metric::Vmas => &self.vmas,
            Metric::TlbMisses => &self.tlb_misses,
        };
        written.as_ref()
    }
}

/// The line of a design's section in a budget's text, from 1; `None` if it is written in another form than
/// `[design.NAME]`.
pub fn line_of(text: &str, design: &str) -> Option<usize> {
    let heads = [format!("[design.{design}]"), format!("[design.\"{design}\"]")];
    let is_head = |line: &str| heads.iter().any(|head| line.trim_start().starts_with(head.as_str()));
    text.lines().position(is_head).map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Most;

    const HEAD: &str = "result = \"r\"\ntraces = [\"a\"]\n";

    #[test]
    fn budgets_are_read_with_their_limits() {
        let text = "result = \"b.json\"\ntraces = [\"a.hkt\"]\n[design.today]\nrss_peak = \"64M\"\nvmas = 40\n\
                    tlb_misses = \"1M\"\ninstalls_per_1000_allocations = 2.5\n[design.small]\n\
                    policy = \"default+superslab=1M\"\nrss_peak = 4096\ntlb_misses = 7\n\
                    [design.shipped]\non = \"jemalloc:dirty_decay_ms=0\"\ntraps = \"+1%\"\n";
        let budget = Budget::parse(text).expect("a budget");
        let most = |name: &str| {
            let limits = budget.design[name].limits(name).expect("limits");
            limits.iter().map(|limit| limit.most).collect::<Vec<Most>>()
        };
        assert_eq!(most("today"), [2.5, 67_108_864.0, 40.0, 1e6].map(Most::Amount));
        assert_eq!(most("small"), [4096.0, 7.0].map(Most::Amount));
        assert_eq!(most("shipped"), [Most::Share(0.01)]);
        let words = |name: &str| budget.design[name].words(name).expect("words");
        assert_eq!(words("today"), Words::Policy("default"));
        assert_eq!(words("small"), Words::Policy("default+superslab=1M"));
        assert_eq!(words("shipped"), Words::On("jemalloc:dirty_decay_ms=0"));
        assert_eq!(line_of(text, "small"), Some(8));
        assert_eq!(line_of(text, "none"), None);
    }

    #[test]
    fn errors_name_the_line_or_the_limit() {
        for (text, part) in [
            ("", "line 1: missing field `result`"),
            ("result = \"r\"\ntraces = []\n[design.a]\n", "`traces` is empty"),
            ("result = \"r\"\ntraces = [\"a\"]\n[design]\n", "no design; add a section"),
            ("result = \"r\"\ntraces = [\"a\", \"a\"]\n[design.a]\nvmas = 1\n", "traces: a is there twice"),
        ] {
            let why = Budget::parse(text).expect_err(text).to_string();
            assert!(why.contains(part), "{why}");
        }
        for (limit, part) in [
            ("", "design.a: no limit; set at least one of ns_per_call, system_time_s, installs"),
            ("rss = 1", "line 4: unknown field `rss`"),
            ("rss_peak = \"x\"", "design.a: rss_peak = \"x\": expected a size"),
            ("rss_peak = -1", "rss_peak = \"-1\": expected a size from 0"),
            ("vmas = -1", "vmas = \"-1\": expected a whole number from 0 (100)"),
            ("tlb_misses = 1.5", "tlb_misses = \"1.5\": expected a whole number from 0 (100)"),
            ("vmas = true", "line 4: expected a number"),
            ("vmas = \"x\"", "vmas = \"x\": expected a whole number from 0 (100)"),
            ("installs_per_1000_allocations = \"x\"", "expected a number from 0 (2.5)"),
            ("installs_per_1000_allocations = nan", "expected a number from 0"),
            ("installs_per_1000_allocations = inf", "expected a number from 0"),
            ("installs_per_1000_allocations = -0.5", "expected a number from 0"),
            ("policy = \"default\"\non = \"glibc\"\nvmas = 1", "design.a: `policy` and `on`: set one of them"),
            ("on = \"glibc\"\ndesign = \"bump\"\nvmas = 1", "design.a: `design` and `on`: set one of them"),
        ] {
            let why = Budget::parse(&format!("{HEAD}[design.a]\n{limit}\n")).expect_err(limit).to_string();
            assert!(why.contains(part), "{limit}: {why}");
        }
    }
}
