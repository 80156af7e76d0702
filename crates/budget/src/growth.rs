//! What grew since the stored result: which function requests more, and of which sizes.

use std::collections::BTreeMap;

use hksim_text::units;
use serde::{Deserialize, Serialize};

use crate::consumers::{Consumer, Quantity};
use crate::metric::Metric;

/// At most this many consumers are named.
const NAMED_MAX: usize = 3;
/// A consumer is named if it has at least this share of the largest growth.
const NAMED_SHARE: f64 = 0.1;

/// A consumer that grew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// The quantity that grew.
    pub quantity: Quantity,
    /// The functions on the stack, innermost first.
    pub stack: Vec<String>,
    /// The function that asked for the memory.
    pub caller: String,
    /// The largest size of the requests; absent for mappings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// The amount in the stored result.
    pub before: u64,
    /// The amount now.
    pub now: u64,
}

/// The consumers that grew most, in the quantities that explain these metrics, leaks first. Each consumer is named once.
/// Where no consumer grew in the quantity that is closest to a metric, the next one counts.
pub fn growth(metrics: &[Metric], before: &[Consumer], now: &[Consumer]) -> Vec<Growth> {
    let mut all: Vec<Growth> = Vec::new();
    // A leak raises other figures, too.
    let leaks = [Metric::LiveBytesEnd, Metric::RssBytesEnd];
    let (first, later) = metrics.iter().partition::<Vec<Metric>, _>(|metric| leaks.contains(metric));
    for metric in first.into_iter().rev().chain(later) {
        let mut grown = quantities(metric).iter().map(|&quantity| grown(quantity, before, now));
        for growth in grown.find(|grown| !grown.is_empty()).unwrap_or_default() {
            if !all.iter().any(|known| known.is_of_same(&growth)) {
                all.push(growth);
            }
        }
    }
    largest(all)
}

/// The first of them, as many as are named.
pub(crate) fn largest(mut all: Vec<Growth>) -> Vec<Growth> {
    all.truncate(NAMED_MAX);
    all
}

/// The quantities that explain a metric, the closest first.
fn quantities(metric: Metric) -> &'static [Quantity] {
    match metric {
        Metric::NsPerCall => &[Quantity::Calls],
        Metric::SystemTimeS
        | Metric::Installs
        | Metric::InstallsPer1000Allocations
        | Metric::Faults
        | Metric::TlbMisses => &[Quantity::Installs, Quantity::BytesAtPeak, Quantity::AllocatedBytes],
        Metric::Traps => &[Quantity::Traps, Quantity::BytesAtPeak, Quantity::AllocatedBytes],
        Metric::RssPeak => &[Quantity::BytesAtPeak, Quantity::RssBytesEnd],
        Metric::RssBytesEnd => &[Quantity::RssBytesEnd, Quantity::BytesAtEnd, Quantity::BytesAtPeak],
        Metric::LiveBytesEnd => &[Quantity::BytesAtEnd],
        Metric::Vmas => &[Quantity::BytesAtPeak],
    }
}

/// The consumers that grew in a quantity, the largest growth first, without those that grew little.
pub(crate) fn grown(quantity: Quantity, before: &[Consumer], now: &[Consumer]) -> Vec<Growth> {
    let amount = |consumer: &Consumer| consumer.quantities.get(&quantity).copied().unwrap_or(0);
    let before: BTreeMap<_, u64> = before.iter().map(|consumer| (consumer.key(), amount(consumer))).collect();
    let growth = |consumer: &Consumer| {
        let stored = before.get(&consumer.key()).copied().unwrap_or(0);
        (amount(consumer) > stored).then(|| Growth {
            quantity,
            stack: consumer.stack.clone(),
            caller: consumer.caller.clone(),
            bytes_max: consumer.bytes_max,
            before: stored,
            now: amount(consumer),
        })
    };
    let mut grown: Vec<Growth> = now.iter().filter_map(growth).collect();
    grown.sort_by_key(|growth| std::cmp::Reverse(growth.more()));
    let least = grown.first().map_or(0.0, |first| first.more() as f64 * NAMED_SHARE);
    grown.retain(|growth| growth.more() as f64 >= least);
    grown
}

impl Growth {
    /// Whether another growth is of the same consumer.
    fn is_of_same(&self, other: &Growth) -> bool {
        (&self.stack, &self.caller, self.bytes_max) == (&other.stack, &other.caller, other.bytes_max)
    }

    fn more(&self) -> u64 {
        self.now - self.before.min(self.now)
    }

    /// The growth in words: who, what, and how much.
    pub fn words(&self) -> String {
        let who = match self.stack.as_slice() {
            [] if self.caller.is_empty() => "an unknown call site (record with --stacks to name it)".to_string(),
            [] => self.caller.clone(),
            stack => {
                let above = stack.iter().position(|function| *function == self.caller).map_or(0, |at| at + 1);
                match stack.get(above) {
                    Some(caller) => format!("`{}`, called by `{caller}`", self.caller),
                    None => format!("`{}`", self.caller),
                }
            }
        };
        let whose = match self.bytes_max {
            None if self.quantity == Quantity::LibraryInstalls => format!("outside requests by {who}"),
            Some(bytes) => format!("of requests of up to {} by {who}", units::bytes(bytes)),
            None => format!("of the memory of {who}"),
        };
        let (name, is_bytes) = match self.quantity {
            Quantity::Calls => ("calls", false),
            Quantity::AllocatedBytes => ("bytes requested", true),
            Quantity::BytesAtPeak => ("bytes live at the peak", true),
            Quantity::BytesAtEnd => ("bytes never freed", true),
            Quantity::Installs => ("installs", false),
            Quantity::LibraryInstalls => ("installs in the library", false),
            Quantity::Traps => ("traps", false),
            Quantity::RssBytesEnd => ("bytes resident at the end", true),
        };
        let [before, now] =
            if is_bytes { units::bytes_pair(self.before, self.now) } else { [self.before, self.now].map(units::count) };
        format!("{name} {whose}: {before} -> {now}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer(stack: &[&str], bytes_max: u64, at_end: u64) -> Consumer {
        Consumer {
            stack: stack.iter().map(ToString::to_string).collect(),
            caller: stack.first().map(ToString::to_string).unwrap_or_default(),
            bytes_max: Some(bytes_max),
            quantities: [(Quantity::BytesAtEnd, at_end)].into(),
        }
    }

    #[test]
    fn the_largest_growth_is_named_first_and_small_ones_are_not() {
        let before = [consumer(&["keep", "main"], 128, 1_000), consumer(&["old", "main"], 64, 9_000)];
        let now = [
            consumer(&["keep", "main"], 128, 368_016),
            consumer(&["new", "main"], 64, 50_000),
            consumer(&["other", "main"], 64, 10),
            consumer(&["old", "main"], 64, 8_000),
        ];
        let grown = growth(&[Metric::LiveBytesEnd], &before, &now);
        let found: Vec<(&str, u64, u64)> =
            grown.iter().map(|growth| (growth.caller.as_str(), growth.before, growth.now)).collect();
        assert_eq!(found, [("keep", 1_000, 368_016), ("new", 0, 50_000)]);
        assert_eq!(
            grown[0].words(),
            "bytes never freed of requests of up to 128 B by `keep`, called by `main`: 1000 B -> 359.4 KiB"
        );
        assert!(growth(&[Metric::LiveBytesEnd], &now, &now).is_empty());
        let all = growth(&[Metric::RssPeak, Metric::LiveBytesEnd], &before, &now);
        assert_eq!(all, grown, "each consumer once, by what is closest");
        assert!(growth(&[Metric::RssPeak], &before, &now).is_empty(), "none of its quantities is known");
    }
}
