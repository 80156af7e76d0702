//! Checks of budgets as sentences.

use super::{list, percent_signed};
use crate::budget::{CheckedRow, Difference};
use crate::figures::Amount;
use hksim_text::units;

/// What broke in a row, and what changed since the stored result; `None` if nothing broke.
pub fn broken(checked: &CheckedRow) -> Option<String> {
    let mut broken: Vec<String> = Vec::new();
    for limit in checked.limits.iter().filter(|limit| !limit.is_within) {
        let metric = limit.allowed.metric;
        let amounts: Vec<f64> = [limit.allowed.most].into_iter().chain(limit.amount).collect();
        broken.push(match metric.texts(&amounts).as_slice() {
            [most, amount] => format!("{amount} {} (at most {most} allowed)", metric.name()),
            most => format!("{} not known (at most {} allowed)", metric.name(), most.concat()),
        });
    }
    if checked.has_failed_requests {
        broken.push(format!("{} failed", units::of(checked.row.figures.requests_failed, "request")));
    }
    let (design, trace) = (&checked.row.design, &checked.row.trace);
    (!broken.is_empty()).then(|| format!("broken: {design} on {trace}: {}. {}", list(&broken), since(checked)))
}

/// What changed since the stored result.
pub fn since(checked: &CheckedRow) -> String {
    let changes: Vec<String> = checked.differences.iter().map(difference).collect();
    match checked.differences.as_slice() {
        [] => "Nothing changed since the stored result.".into(),
        [Difference::NotStored] => "There was no stored result of this row.".into(),
        _ => format!("Since the stored result: {}.", list(&changes)),
    }
}

fn difference(difference: &Difference) -> String {
    let none = || "none".to_string();
    match difference {
        Difference::NotStored => "no stored row".into(),
        Difference::Trace { before, now } => format!(
            "another trace (checksum {} -> {})",
            before.clone().unwrap_or_else(none),
            now.clone().unwrap_or_else(none)
        ),
        Difference::Flag { flag, before, now } => format!("--{flag} {before} -> {now}"),
        Difference::Version { before, now } => format!("hksim {before} -> {now}"),
        Difference::OtherInput => "another kernel or another rule of touches".into(),
        Difference::Figure { figure, before, now } => {
            let change =
                if *before > 0.0 { format!(" ({})", percent_signed(now / before - 1.0)) } else { String::new() };
            let [before, now] = figure.pair(Amount::exact(*before), Amount::exact(*now));
            format!("{} {before} -> {now}{change}", figure.name())
        }
    }
}
