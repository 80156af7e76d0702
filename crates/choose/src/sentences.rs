//! The answer as sentences.

use hksim_explore::figures::Amount;
use hksim_explore::sentences::{percent, percent_signed};
use hksim_results::choice::{Choice, Row, Verdict};
use hksim_text::units::{of, time};

use crate::bench::Measurable;
use crate::decide::Picked;
use crate::search::Request;
use crate::table::Table;

/// Rows that a sentence names at most.
const NAMED_MAX: usize = 4;

/// What a verdict without a change begins with.
const NOTHING: &str = "Nothing is worth changing";

/// The answer.
pub(crate) fn answer(
    table: &Table,
    request: &Request<'_>,
    goal: Measurable,
    picked: Option<&Picked>,
    choice: &Choice,
) -> Vec<String> {
    let mut lines = Vec::new();
    match (choice.verdict, picked) {
        (Verdict::Change, Some(picked)) => lines.extend(change(table, goal, picked, choice)),
        (Verdict::NothingToChange, Some(picked)) => {
            lines.push(nothing(table, goal, picked, choice));
            lines.extend(picked.outweighed.and_then(|row| outweighed(table, row, choice)));
        }
        _ => lines.push(format!(
            "None of {} meets all limits on all traces, nor does the present allocator.",
            of(choice.rows.len() as u64 - 1, "other row")
        )),
    }
    for limit in request.limits {
        let within = (0..choice.rows.len()).filter(|&row| {
            table.tried[row].runs_on() && table.broken(std::slice::from_ref(limit), row, &table.traces()).is_empty()
        });
        lines.push(format!("Limit \"{}\": {} of {} rows meet it.", limit.text, within.count(), choice.rows.len()));
    }
    lines
}

/// The name of a row.
fn name(row: &Row) -> String {
    [row.allocator.as_str()].into_iter().chain(row.setting.as_deref()).collect::<Vec<_>>().join(" ")
}

fn named(choice: &Choice, rows: &[usize]) -> String {
    let names = rows.iter().take(NAMED_MAX).map(|&row| name(&choice.rows[row])).collect::<Vec<_>>().join(", ");
    match rows.len().saturating_sub(NAMED_MAX) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

fn change(table: &Table, goal: Measurable, picked: &Picked, choice: &Choice) -> Vec<String> {
    let (row, present) = (&choice.rows[picked.row], name(&choice.rows[0]));
    let mut lines = vec![format!("{} instead of {present} (present): {}.", name(row), figure(table, goal, picked.row))];
    let others = Measurable::ALL.into_iter().filter(|&what| what != goal);
    let (same, differing): (Vec<Measurable>, Vec<Measurable>) =
        others.partition(|&what| table.is_tied(what, picked.row, 0, &table.traces()));
    let told: Vec<String> = differing.iter().map(|&what| figure(table, what, picked.row)).collect();
    if !told.is_empty() {
        lines.push(format!("Also: {}.", told.join("; ")));
    }
    if !same.is_empty() {
        let names: Vec<&str> = same.iter().map(|what| what.figure().name()).collect();
        lines.push(format!("No difference beyond the error in {}.", names.join(" and ")));
    }
    if !picked.tied.is_empty() {
        lines.push(format!(
            "A tie with: {}. The choice needs the fewest changes of these.",
            named(choice, &picked.tied)
        ));
    }
    lines.extend(start_and_end(table, picked.row, choice));
    if is_timed_purge(&row.allocator) {
        lines.push(
            "Its delay runs in the replay's time, which has none of the program's pauses: try it on the program (--trial)."
                .to_string(),
        );
    }
    lines
}

/// Whether a setting purges after a time.
fn is_timed_purge(word: &str) -> bool {
    ["decay_ms=", "purge_delay=", "decommit_delay="]
        .iter()
        .any(|key| word.split_once(key).is_some_and(|(_, value)| !value.starts_with('0') && !value.starts_with('-')))
}

fn nothing(table: &Table, goal: Measurable, picked: &Picked, choice: &Choice) -> String {
    let present = name(&choice.rows[0]);
    let tried = of(choice.rows.len() as u64 - 1, "other row");
    let least = table.tie.max(table.own_error(goal, &table.traces()));
    let tie = match &picked.tied[..] {
        [] => String::new(),
        tied => format!(" A tie with: {}.", named(choice, tied)),
    };
    format!(
        "{NOTHING}: none of {tried} is better than {present} (present) in {} by more than the error, {}.{tie}",
        goal.figure().name(),
        percent(least)
    )
}

/// A run in which the start and the end of a process are a hundredth has so many times their length.
const RUNS_OF_A_HUNDREDTH: f64 = 100.0;

/// By how many seconds the process of a row takes longer to start and to end: the mean over traces, if that is known on all
/// and beyond the error on one.
fn start_end_s(table: &Table, row: usize) -> Option<f64> {
    let changes: Vec<_> =
        table.traces().into_iter().map(|trace| Some(table.changes_s(row, trace)?[1])).collect::<Option<_>>()?;
    let is_known = changes.iter().any(|change| change.contains(0.0) == Some(false));
    is_known.then(|| changes.iter().map(|change| change.median).sum::<f64>() / changes.len() as f64)
}

/// What the times leave out.
fn start_and_end(table: &Table, row: usize, choice: &Choice) -> Option<String> {
    let seconds = start_end_s(table, row)?;
    let than = if seconds > 0.0 { "more" } else { "less" };
    Some(format!(
        "Time is that of the calls. Besides, a process takes {} {than} to start and to end with {} than with {}: above 1 % of a \
         run that takes less than {}.",
        length(seconds),
        name(&choice.rows[row]),
        name(&choice.rows[0]),
        length(seconds * RUNS_OF_A_HUNDREDTH)
    ))
}

/// Why a row is not chosen whose calls take less time.
fn outweighed(table: &Table, row: usize, choice: &Choice) -> Option<String> {
    let ratio = table.ratio(Measurable::Time, row, 0, &table.traces())?;
    Some(format!(
        "The calls take {} with {}, but its process takes {} more to start and to end, which is more than that saves.",
        percent_signed(ratio.median - 1.0),
        name(&choice.rows[row]),
        length(start_end_s(table, row)?)
    ))
}

/// A length of time.
fn length(seconds: f64) -> String {
    time((seconds.abs() * 1e9) as u64)
}

/// A figure of a row against the present one: the amounts if there is one trace, and the ratio.
fn figure(table: &Table, what: Measurable, row: usize) -> String {
    let figure = what.figure();
    let Some(ratio) = table.ratio(what, row, 0, &table.traces()) else { return format!("{} not known", figure.name()) };
    let interval = match (what, ratio.interval()) {
        (Measurable::Time, Some((low, high))) => {
            format!(", {} to {}", percent_signed(low - 1.0), percent_signed(high - 1.0))
        }
        _ => String::new(),
    };
    let change = format!("{}{interval}", percent_signed(ratio.median - 1.0));
    match amounts(table, what, row) {
        Some((own, present)) => {
            let [own, present] = figure.pair(Amount::exact(own), Amount::exact(present));
            format!("{} {own} instead of {present} ({change})", figure.name())
        }
        None => format!("{} {change}", figure.name()),
    }
}

/// The amounts of a row and of the present one, if there is one trace.
fn amounts(table: &Table, what: Measurable, row: usize) -> Option<(f64, f64)> {
    if table.weights.len() != 1 {
        return None;
    }
    let amount = |row: usize| match what {
        Measurable::Time => Some(table.tried[row].times.first()?.cpu_ns_per_call()?.median),
        bytes => table.bytes(bytes, row, 0).map(|bytes| bytes as f64),
    };
    Some((amount(row)?, amount(0)?))
}
