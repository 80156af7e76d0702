//! Rows held to their limits, and compared with the stored result.

use hksim_explore::described::Described;
use hksim_policy::flags::FLAGS;
use serde::{Deserialize, Serialize};

use crate::consumers::{Consumer, Consumers};
use crate::growth::{Growth, growth};
use crate::limit::Limit;
use crate::metric::Metric;
use crate::row::{Interval, Row, Stored, Subject};

/// A limit and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The metric.
    pub metric: Metric,
    /// The greatest allowed amount; absent if it is relative to a stored result that does not have it.
    pub most: Option<f64>,
    /// The limit as the budget has it, if it is relative to the stored result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<String>,
    /// The amount; absent if it is not known.
    pub amount: Option<f64>,
    /// The interval of a measured time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The amount in the stored result.
    pub stored: Option<f64>,
    /// Whether the limit is met. An amount or a limit that is not known does not meet it; a time whose interval contains
    /// the limit does.
    pub is_within: bool,
}

impl Checked {
    /// Whether a measured time is neither above the limit nor below it: its interval contains the limit.
    pub fn is_tie(&self) -> bool {
        self.interval.zip(self.most).is_some_and(|(interval, most)| interval.low <= most && most < interval.high)
    }
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
    /// Another allocator, other settings, or a policy instead of an allocator.
    Subject {
        /// Its words before.
        before: String,
        /// Its words now.
        now: String,
    },
    /// The allocator's library has another content.
    Library {
        /// The checksum before.
        before: Option<String>,
        /// The checksum now.
        now: Option<String>,
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
        figure: Metric,
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
    /// What grew since the stored result, if a limit is broken; absent if that does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<Vec<Growth>>,
    /// Why it is not known what grew in the allocator's library, if only that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library_growth_skipped: Option<String>,
}

/// What rows are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Baseline<'a> {
    /// The stored result.
    pub stored: Option<&'a Stored>,
    /// Whether this result replaces it: changes are then allowed from this result.
    pub is_replaced: bool,
    /// Who uses the memory now.
    pub consumers: &'a [Consumers],
    /// The version of hksim.
    pub version: &'a str,
}

impl CheckedRow {
    /// Checks a row against its limits and the stored result.
    pub fn of(row: Row, limits: &[Limit], baseline: &Baseline<'_>) -> CheckedRow {
        let Baseline { stored, is_replaced, version, .. } = *baseline;
        let before = stored.and_then(|stored| {
            stored.rows.iter().find(|other| (&other.trace, &other.design) == (&row.trace, &row.design))
        });
        let check = |limit: &Limit| {
            let amount = row.amount(limit.metric);
            let interval = row.interval(limit.metric);
            let stored = before.and_then(|before| before.amount(limit.metric));
            let base = if is_replaced { Some(&row) } else { before }.and_then(|from| from.base(limit.metric));
            let most = limit.most(base);
            // Above a limit is what is above it for certain.
            let least = interval.map(|interval| interval.low).or(amount);
            Checked {
                metric: limit.metric,
                most,
                relative: limit.is_change().then(|| limit.text.clone()),
                amount,
                interval,
                stored,
                is_within: least.zip(most).is_some_and(|(least, most)| least <= most),
            }
        };
        let limits: Vec<Checked> = limits.iter().map(check).collect();
        let differences = match (before, stored) {
            (Some(before), Some(stored)) => differences(before, &row, &stored.hksim_version, version),
            _ => vec![Difference::NotStored],
        };
        let broken: Vec<Metric> = limits.iter().filter(|limit| !limit.is_within).map(|limit| limit.metric).collect();
        let growth = if broken.is_empty() { None } else { grown(&broken, &row, baseline) };
        let has_failed_requests = row.figures.requests_failed > 0;
        CheckedRow { limits, has_failed_requests, differences, growth, library_growth_skipped: None, row }
    }

    /// Whether all limits are met, all requests were served, and no memory limit kills the program.
    pub fn is_within(&self) -> bool {
        let is_served = !self.has_failed_requests && self.row.figures.killed_at_limit_bytes.is_none();
        is_served && self.limits.iter().all(|limit| limit.is_within)
    }
}

/// What grew of what a row uses; `None` if the stored result does not have it.
fn grown(broken: &[Metric], row: &Row, baseline: &Baseline<'_>) -> Option<Vec<Growth>> {
    let before = consumers(&baseline.stored?.consumers, row)?;
    Some(growth(broken, before, consumers(baseline.consumers, row)?))
}

fn consumers<'a>(all: &'a [Consumers], row: &Row) -> Option<&'a [Consumer]> {
    let found = all.iter().find(|consumers| consumers.are_of(&row.trace, &row.design))?;
    Some(&found.consumers)
}

fn differences(before: &Row, now: &Row, version_before: &str, version: &str) -> Vec<Difference> {
    let mut found = Vec::new();
    if before.checksum != now.checksum {
        found.push(Difference::Trace { before: before.checksum.clone(), now: now.checksum.clone() });
    }
    found.extend(subjects(&before.subject, &now.subject));
    if version_before != version {
        found.push(Difference::Version { before: version_before.to_string(), now: version.to_string() });
    }
    if found.is_empty() && before.inputs != now.inputs {
        found.push(Difference::OtherInput);
    }
    // Its changes are those of the installs.
    for figure in Metric::ALL.into_iter().filter(|metric| *metric != Metric::InstallsPer1000Allocations) {
        if let (Some(amount_before), Some(amount_now)) = (before.amount(figure), now.amount(figure))
            && amount_before != amount_now
            && !may_be_equal(before.interval(figure), now.interval(figure))
        {
            found.push(Difference::Figure { figure, before: amount_before, now: amount_now });
        }
    }
    found
}

/// Whether two measured times have intervals that overlap.
fn may_be_equal(one: Option<Interval>, other: Option<Interval>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one.low <= other.high && other.low <= one.high)
}

fn subjects(before: &Subject, now: &Subject) -> Vec<Difference> {
    match (before, now) {
        (Subject::Policy { policy: before }, Subject::Policy { policy: now }) => {
            let values = FLAGS.iter().map(|flag| (flag, flag.show(before).to_string(), flag.show(now).to_string()));
            let changed = values.filter(|(_, before, now)| before != now);
            changed.map(|(flag, before, now)| Difference::Flag { flag: flag.name.to_string(), before, now }).collect()
        }
        (Subject::Design { policy: before }, Subject::Design { policy: now }) if before.design == now.design => {
            let (before, now) = (before.flags(), now.flags());
            let changed = before.into_iter().zip(now).filter(|(before, now)| before != now);
            changed.map(|((flag, before), (_, now))| Difference::Flag { flag: flag.to_string(), before, now }).collect()
        }
        (
            Subject::Allocator { on: before, library_checksum: checksum_before, .. },
            Subject::Allocator { on: now, library_checksum: checksum_now, .. },
        ) if before == now => {
            let library = || Difference::Library { before: checksum_before.clone(), now: checksum_now.clone() };
            if checksum_before == checksum_now { Vec::new() } else { vec![library()] }
        }
        (before, now) if before == now => Vec::new(),
        (before, now) => vec![Difference::Subject { before: words(before), now: words(now) }],
    }
}

fn words(subject: &Subject) -> String {
    match subject {
        Subject::Design { policy } => policy.design.clone(),
        Subject::Policy { .. } => "a policy".into(),
        Subject::Allocator { on, .. } => on.clone(),
        Subject::Setting { setting } => setting.clone(),
    }
}

#[cfg(test)]
mod tests {
    use hksim_cost_model::MedianRange;
    use hksim_explore::digest::Digest;
    use serde_json::json;

    use super::*;
    use crate::limit::Written;
    use crate::row::Figures;

    /// A row of a library whose calls take these nanoseconds.
    fn row([low, median, high]: [f64; 3]) -> Row {
        Row {
            trace: "a.hkt".into(),
            checksum: None,
            design: "shipped".into(),
            subject: Subject::Allocator { on: "./my.so".into(), library: None, library_checksum: None },
            inputs: Digest::of(&json!({})),
            allocations: 1,
            figures: Figures { ns_per_call: Some(MedianRange { low, median, high }), ..Figures::default() },
            measured: None,
        }
    }

    /// What comes of a limit: met, a tie.
    fn check(now: [f64; 3], limit: &str, before: Option<[f64; 3]>) -> (bool, bool) {
        let limit = Limit::of(Metric::NsPerCall, &Written::Text(limit.into())).expect("a limit");
        let rows = before.map(row).into_iter().collect();
        let stored =
            Stored { schema: 2, hksim_version: "1".into(), rows, consumers: Vec::new(), libraries: Vec::new() };
        let baseline = Baseline { stored: before.map(|_| &stored), is_replaced: false, consumers: &[], version: "1" };
        let checked = CheckedRow::of(row(now), &[limit], &baseline);
        let limit = &checked.limits[0];
        assert_eq!(checked.is_within(), limit.is_within);
        (limit.is_within, limit.is_tie())
    }

    #[test]
    fn a_measured_time_breaks_a_limit_below_its_whole_interval_only() {
        let time = [19.0, 20.0, 21.0];
        for (limit, expected) in [
            ("18.9", (false, false)),
            ("19", (true, true)),
            ("19.5", (true, true)),
            ("20.9", (true, true)),
            ("21", (true, false)),
            ("40", (true, false)),
        ] {
            assert_eq!(check(time, limit, None), expected, "{limit}");
        }
        // A change counts from the most that the stored time can have been: 20.
        let before = Some([18.0, 19.0, 20.0]);
        assert_eq!(check(time, "+0", before), (true, true));
        assert_eq!(check(time, "+10%", before), (true, false));
        assert_eq!(check([20.1, 21.0, 22.0], "+0", before), (false, false));
        assert_eq!(check([20.1, 21.0, 22.0], "+0", None), (false, false), "there is nothing to compare with");
    }

    #[test]
    fn times_that_may_be_equal_are_no_difference() {
        let differ = |before, now| differences(&row(before), &row(now), "1", "1").len();
        assert_eq!(differ([18.0, 19.0, 20.0], [19.9, 21.0, 22.0]), 0);
        assert_eq!(differ([18.0, 19.0, 20.0], [20.1, 21.0, 22.0]), 1);
    }
}
