//! Checks of budgets as sentences.

use hksim_explore::sentences::{list, percent_signed};
use hksim_text::units;

use crate::checked::{Checked, CheckedRow, Difference};
use crate::metric::Metric;

/// What broke in a row, what changed since the stored result, and what grew; `None` if nothing broke.
pub fn broken(checked: &CheckedRow) -> Option<String> {
    let (design, trace) = (&checked.row.design, &checked.row.trace);
    let limits = broken_limits(checked)?;
    let sentences: Vec<String> = [Some(since(checked)), grew(checked)].into_iter().flatten().collect();
    Some(format!("broken: {design} on {trace}: {limits}. {}", sentences.join(" ")))
}

/// The limits that broke; `None` if none did.
fn broken_limits(checked: &CheckedRow) -> Option<String> {
    let mut broken: Vec<String> =
        checked.limits.iter().filter(|limit| !limit.is_within).map(|limit| broken_limit(checked, limit)).collect();
    if checked.has_failed_requests {
        broken.push(format!("{} failed", units::of(checked.row.figures.requests_failed, "request")));
    }
    let limit_bytes = checked.row.figures.killed_at_limit_bytes;
    broken.extend(limit_bytes.map(|limit| format!("killed at the memory limit of {}", units::bytes(limit))));
    (!broken.is_empty()).then(|| list(&broken))
}

fn broken_limit(checked: &CheckedRow, limit: &Checked) -> String {
    let name = limit.metric.name();
    let texts = limit.metric.texts(&[limit.most, limit.amount].into_iter().flatten().collect::<Vec<f64>>());
    let relative = limit.relative.as_ref().map(|relative| format!("the stored result {relative}"));
    match (limit.most, limit.amount, texts.as_slice()) {
        (Some(_), Some(_), [most, amount]) => {
            let range =
                checked.row.range(limit.metric).map(|range| limit.metric.texts(&[range.low, range.high]).join(" to "));
            let range = range.map_or(String::new(), |range| format!(", {range} in the runs"));
            let interval =
                limit.interval.map(|interval| limit.metric.texts(&[interval.low, interval.high]).join(" to "));
            let interval = interval.map_or(String::new(), |interval| format!(", 95 % interval {interval}"));
            let relative = relative.map_or(String::new(), |relative| format!(", {relative}"));
            format!("{amount} {name} (at most {most} allowed{relative}{range}{interval})")
        }
        (None, _, _) => {
            format!("{name} cannot be compared: no stored amount; store this result with --update")
        }
        (_, _, texts) => format!("{name} not known (at most {} allowed)", texts.concat()),
    }
}

/// What changed since the stored result.
fn since(checked: &CheckedRow) -> String {
    let shown = checked.differences.iter().filter(|difference| is_shown(checked, difference));
    let changes: Vec<String> = shown.map(difference).collect();
    match checked.differences.as_slice() {
        [] => "Nothing changed since the stored result.".into(),
        [Difference::NotStored] => "There was no stored result of this row.".into(),
        _ if changes.is_empty() => "No limited figure changed since the stored result.".into(),
        _ => format!("Since the stored result: {}.", list(&changes)),
    }
}

/// Whether a difference is worth words: figures that mostly follow others are left out unless they are limited.
fn is_shown(checked: &CheckedRow, difference: &Difference) -> bool {
    let Difference::Figure { figure, .. } = difference else { return true };
    let follows = [Metric::Faults, Metric::Traps, Metric::RssBytesEnd, Metric::LiveBytesEnd].contains(figure);
    !follows || checked.limits.iter().any(|limit| limit.metric == *figure)
}

/// What grew since the stored result; `None` if nothing is known about that.
fn grew(checked: &CheckedRow) -> Option<String> {
    if checked.differences.is_empty() || checked.differences.contains(&Difference::NotStored) {
        return None;
    }
    if let Some(why) = &checked.library_growth_skipped {
        return Some(format!("What grew in the library is not known: {why}."));
    }
    let grown = match &checked.growth {
        Some(grown) => grown.iter().map(crate::growth::Growth::words).collect::<Vec<String>>(),
        None if checked.limits.iter().all(|limit| limit.is_within) => return None,
        None => {
            return Some("The stored result does not state who uses the memory; store it again with --update.".into());
        }
    };
    Some(match grown.as_slice() {
        [] => "No function requests more than in the stored result.".into(),
        _ => format!("What grew most: {}.", grown.join("; ")),
    })
}

fn difference(difference: &Difference) -> String {
    let checksums = |before: &Option<String>, now: &Option<String>| {
        let text = |checksum: &Option<String>| checksum.clone().unwrap_or_else(|| "none".into());
        format!("checksum {} -> {}", text(before), text(now))
    };
    match difference {
        Difference::NotStored => "no stored row".into(),
        Difference::Trace { before, now } => format!("another trace ({})", checksums(before, now)),
        Difference::Flag { flag, before, now } => format!("--{flag} {before} -> {now}"),
        Difference::Subject { before, now } => format!("{before} -> {now}"),
        Difference::Library { before, now } => format!("another library ({})", checksums(before, now)),
        Difference::Version { before, now } => format!("hksim {before} -> {now}"),
        Difference::OtherInput => "another kernel or another rule of touches".into(),
        Difference::Figure { figure, before, now } => {
            let change =
                if *before > 0.0 { format!(" ({})", percent_signed(now / before - 1.0)) } else { String::new() };
            let texts = figure.texts(&[*before, *now]).join(" -> ");
            format!("{} {texts}{change}", figure.name())
        }
    }
}
