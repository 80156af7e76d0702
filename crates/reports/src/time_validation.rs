//! Predicted times beside measured ones, as text and CSV.

use hksim_explore::described::{Described, Flags, cell, varied_flags};
use hksim_policy::Policy;
use hksim_results::validate::TimeValidation;
use hksim_text::plain;
use hksim_text::table::{self, Table};
use hksim_text::units::{count, of};
use hksim_timing::Estimate;
use hksim_validate::call_time::{MeasuredTime, PredictedTime, TimeRow, TimedTrace};
use serde_json::{Map, Value, json};

use crate::comparison::{interval, nanoseconds, rounds, shared_core};

/// The columns after the design's flags. Each prediction has its measurement beside it.
const COLUMNS: [&str; 11] = [
    "ns/call", "measured", "user", "measured", "kernel", "measured", "ratio", "measured", "faults", "measured",
    "verdict",
];

/// The result as text, in tables of at most this many columns.
pub fn text(report: &TimeValidation, columns: Option<usize>) -> String {
    let mut lines = Vec::new();
    for timed in &report.timed_traces {
        lines.extend(method(timed));
        lines.push(String::new());
        lines.extend(figures(timed).fitted(columns.unwrap_or(usize::MAX)));
        lines.extend(notes(timed));
        lines.push(String::new());
    }
    lines.extend(legend(report));
    table::text(&lines)
}

/// How the designs of a trace were timed.
pub fn method(timed: &TimedTrace) -> Vec<String> {
    let mut lines = vec![format!("trace    {}", plain(&timed.trace_name)), format!("touches  {}", timed.touch.word())];
    if timed.threads > 1 {
        let threads = of(u64::from(timed.threads), "thread");
        lines.push(format!("threads  one makes the calls of all {threads}, in the replay and in the prediction"));
    }
    if let Some(method) = &timed.timing {
        lines.push(format!("timed    {}", rounds(timed.rounds, method)));
    }
    if let Some(own) = &timed.own_ns_per_call {
        lines.push(format!("replay   {} ns per call of its own are taken away", nanoseconds(&Some(*own))));
    }
    lines
}

/// The designs of a trace.
pub fn figures(timed: &TimedTrace) -> Table {
    let points: Vec<Flags> = timed.rows.iter().map(|row| row.policy.flags()).collect();
    let flags = varied_flags(&points);
    let head = ["row"].into_iter().chain(flags.iter().copied()).chain(COLUMNS);
    let design = 1 + flags.len();
    let words: Vec<usize> = (0..design).chain([design + COLUMNS.len() - 1]).collect();
    let faults = vec![design + 8, design + 9];
    let mut table = Table::new(head, &words).with_optional(vec![faults]).with_joined(1..design, "design");
    for (number, (row, point)) in timed.rows.iter().zip(&points).enumerate() {
        let mut cells = vec![number.to_string()];
        cells.extend(flags.iter().map(|flag| cell(point, flag)));
        cells.extend(cells_of(row));
        table.push(cells);
    }
    table
}

/// The number of the design that the others are compared with.
fn reference(timed: &TimedTrace) -> Option<usize> {
    timed.rows.iter().position(|row| row.measured.is_some())
}

fn cells_of(row: &TimeRow) -> [String; 11] {
    let nothing = String::new;
    let TimeRow { predicted, measured, verdict, .. } = row;
    let ns = |of: fn(&PredictedTime) -> f64| predicted.as_ref().map_or_else(nothing, |time| format!("{:.1}", of(time)));
    let timed = |of: fn(&MeasuredTime) -> Option<Estimate>| nanoseconds(&measured.as_ref().and_then(of));
    [
        ns(|time| time.time.ns_per_call.median),
        timed(|time| Some(time.ns_per_call)),
        ns(|time| time.time.parts_ns_per_call.instructions + time.time.parts_ns_per_call.memory),
        timed(|time| time.user_ns_per_call),
        ns(|time| time.time.parts_ns_per_call.kernel),
        timed(|time| time.system_ns_per_call),
        predicted.as_ref().and_then(|time| time.ratio_to_first).map_or_else(nothing, |ratio| format!("{ratio:.3}")),
        interval(&measured.as_ref().and_then(|time| time.ratio_to_first)),
        predicted.as_ref().map_or_else(nothing, |time| count(time.faults)),
        measured.as_ref().and_then(|time| time.faults).map_or_else(nothing, count),
        verdict.word().to_string(),
    ]
}

/// The method's own error, what was changed, by how much parts are off, and why rows are skipped.
pub fn notes(timed: &TimedTrace) -> Vec<String> {
    let first = reference(timed);
    let mut lines = Vec::new();
    let same_again = timed.timing.as_ref().map(|method| method.same_again).filter(Option::is_some);
    if let Some((number, same_again)) = first.zip(same_again) {
        lines.push(format!("row {number} again: ratio {}, the method's own error", interval(&same_again)));
    }
    let share = timed.timing.as_ref().and_then(|method| method.core_shared_share);
    lines.extend(beside_other_work(share, timed.rows.iter().any(|row| row.verdict.is_off())));
    for (number, row) in timed.rows.iter().enumerate() {
        if let Some(reason) = &row.reason {
            lines.push(format!("row {number}: {}: {reason}", row.verdict.word()));
        }
        if let Some(residual) = row.residual.filter(|_| row.verdict.is_off()) {
            let of_what = if first == Some(number) { "the measured time" } else { "the first design's time" };
            lines.push(format!(
                "row {number}: predicted minus measured, as shares of {of_what}: user {:+.1} %, kernel {:+.1} %",
                residual.user_share * 100.0,
                residual.kernel_share * 100.0
            ));
        }
    }
    let mut changes: Vec<&String> = timed.rows.iter().filter_map(|row| row.changed.as_ref()).collect();
    changes.sort_unstable();
    changes.dedup();
    for change in changes {
        let rows = timed.rows.iter().enumerate().filter(|(_, row)| row.changed.as_ref() == Some(change));
        let numbers: Vec<String> = rows.map(|(number, _)| number.to_string()).collect();
        let word = if numbers.len() == 1 { "row" } else { "rows" };
        lines.push(format!("{word} {}: {change}", numbers.join(", ")));
    }
    lines.extend(unsplit(timed));
    let changes = timed.environment.iter().flat_map(|environment| &environment.modes_changed);
    lines.extend(changes.map(|change| format!("changed meanwhile: {change}: times are not comparable; time again")));
    lines
}

/// What other work on the core did, if it was there often, and whether that may be why a row is off.
fn beside_other_work(share: Option<f64>, is_off: bool) -> Option<String> {
    let due = if is_off { ", so `off` may be due to that" } else { "" };
    shared_core(share).map(|shared| format!("{shared}; times are predicted for a core alone{due}"))
}

/// Says that the parts were not measured, if so.
fn unsplit(timed: &TimedTrace) -> Option<String> {
    let is_unsplit =
        timed.rows.iter().filter_map(|row| row.measured.as_ref()).any(|time| time.user_ns_per_call.is_none());
    is_unsplit.then(|| {
        "skipped: user and kernel: the processor's mode cannot be sampled (run as root, or set \
         kernel.perf_event_paranoid to 1 or less)"
            .to_string()
    })
}

/// What the columns mean.
fn legend(report: &TimeValidation) -> Vec<String> {
    let mut lines = vec![
        "ns/call: processor time per call of the allocator, touches included; user: instructions and memory".to_string(),
        "ratio: to the first design that was measured, median of the rounds and 95 % interval; again: its second run in each \
         round"
            .to_string(),
        "ok: both agree within their errors; tie: neither separates the design from the first; off: they do not, mostly \
         because of that part. The first design is judged by its ns/call"
            .to_string(),
    ];
    if let Some(predicted) =
        report.timed_traces.iter().flat_map(|timed| &timed.rows).find_map(|row| row.predicted.as_ref())
    {
        lines.push(format!("profile: {}", plain(&predicted.time.profile)));
    }
    lines
}

/// One row per trace and design.
pub fn csv(report: &TimeValidation) -> Vec<Map<String, Value>> {
    let design = |policy: &Policy| -> String {
        let changed = policy.flags().into_iter().zip(Policy::DEFAULT.flags()).filter(|(own, default)| own != default);
        changed.map(|((flag, word), _)| format!("{flag}={word}")).collect::<Vec<_>>().join(" ")
    };
    let ends = |estimate: Option<Estimate>| {
        let [low, high] = [estimate.and_then(|one| one.low), estimate.and_then(|one| one.high)];
        json!({"median": estimate.map(|one| one.median), "low": low, "high": high})
    };
    let line = |timed: &TimedTrace, row: &TimeRow| {
        let (predicted, measured) = (row.predicted.as_ref(), row.measured.as_ref());
        let parts = predicted.map(|time| time.time.parts_ns_per_call);
        let line = json!({
            "trace_name": timed.trace_name, "design": design(&row.policy), "verdict": row.verdict, "reason": row.reason,
            "changed": row.changed,
            "predicted_ns_per_call": predicted.map(|time| time.time.ns_per_call.median),
            "predicted_instructions_ns_per_call": parts.map(|parts| parts.instructions),
            "predicted_memory_ns_per_call": parts.map(|parts| parts.memory),
            "predicted_kernel_ns_per_call": parts.map(|parts| parts.kernel),
            "predicted_ratio_to_first": predicted.and_then(|time| time.ratio_to_first),
            "predicted_faults": predicted.map(|time| time.faults),
            "measured_ns_per_call": ends(measured.map(|time| time.ns_per_call)),
            "measured_user_ns_per_call": ends(measured.and_then(|time| time.user_ns_per_call)),
            "measured_system_ns_per_call": ends(measured.and_then(|time| time.system_ns_per_call)),
            "measured_ratio_to_first": ends(measured.and_then(|time| time.ratio_to_first)),
            "measured_faults": measured.and_then(|time| time.faults),
            "measured_rounds": measured.map(|time| time.rounds),
            "residual_user_share": row.residual.map(|residual| residual.user_share),
            "residual_kernel_share": row.residual.map(|residual| residual.kernel_share),
        });
        line.as_object().cloned().unwrap_or_default()
    };
    report.timed_traces.iter().flat_map(|timed| timed.rows.iter().map(|row| line(timed, row))).collect()
}

#[cfg(test)]
mod tests {
    use super::beside_other_work;

    #[test]
    fn other_work_on_the_core_may_be_why_a_row_is_off() {
        assert_eq!(beside_other_work(Some(0.05), true), None);
        let [right, off] = [false, true].map(|is_off| beside_other_work(Some(0.5), is_off).expect("half of the looks"));
        assert!(right.ends_with("for a core alone"), "{right}");
        assert_eq!(off, right + ", so `off` may be due to that");
    }
}
