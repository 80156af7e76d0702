//! A choice among allocators as text.

use hksim_explore::sentences::{percent, percent_signed};
use hksim_replay::compare::Outcome;
use hksim_results::choice::{Choice, ChoiceReport, HeldOut, Row, Verdict};
use hksim_text::plain;
use hksim_text::table::{self, Table};
use hksim_text::units::of;

use crate::comparison::{interval, shared_core};
use crate::trial;

/// The columns of the table.
pub const COLUMNS: [&str; 9] =
    ["allocator", "setting", "version", "time", "RSS peak", "RSS end", "rounds", "within limits", "front"];
/// The columns that a narrow table leaves out, the least important first.
const OPTIONAL: [usize; 3] = [6, 2, 8];

/// A result as text, in tables of at most this many columns.
pub fn text(report: &ChoiceReport, columns: Option<usize>) -> String {
    let choice = &report.choice;
    let goal = report.question.goal.0;
    let stages = choice.stages.iter().map(|stage| format!("{} in {} rounds", stage.rows, stage.rounds_max));
    let mut lines = vec![
        format!("{}; goal: the least {}", of(report.traces.len() as u64, "trace"), goal.name()),
        format!(
            "tried {} and the present allocator, {}; timed (--seed {}): {} at most",
            of(choice.rows.len() as u64 - 1, "row"),
            choice.rows.first().map_or("", |row| &row.allocator),
            report.seed,
            stages.collect::<Vec<_>>().join(", ")
        ),
        String::new(),
        format!("advice: {}", advice(choice)),
    ];
    lines.extend(choice.text.iter().cloned());
    lines.extend(applied(choice));
    lines.push(String::new());
    let columns = columns.unwrap_or(usize::MAX);
    lines.extend(shown(choice, report.limits.is_empty()).fitted(columns));
    lines.push(
        "time (of the calls), RSS: relative to the present allocator, the mean over traces; front: no other row is better in \
         one of the three and as good in the others"
            .to_string(),
    );
    lines.extend(shared_core(choice.core_shared_share));
    lines.extend(missing(&choice.rows));
    let changed = report.environment.modes_changed.iter();
    lines.extend(changed.map(|change| format!("changed during the replays: {change}: rounds are not comparable")));
    if let Some(held_out) = held_out(choice) {
        lines.push(String::new());
        lines.extend(held_out.fitted(columns));
    }
    if let Some(tried) = &report.trial {
        lines.push(String::new());
        lines.extend(trial::text(tried, Some(columns)).lines().map(str::to_string));
    }
    table::text(&lines)
}

/// The choice in a few words.
fn advice(choice: &Choice) -> String {
    match (choice.verdict, choice.choice.and_then(|row| choice.rows.get(row))) {
        (Verdict::Change, Some(row)) => name(row),
        (Verdict::NothingToChange, Some(row)) => format!("{} stays", name(row)),
        _ => "none within the limits".to_string(),
    }
}

fn name(row: &Row) -> String {
    [row.allocator.as_str()].into_iter().chain(row.setting.as_deref()).collect::<Vec<_>>().join(" ")
}

/// How to run a program on the choice.
pub fn applied(choice: &Choice) -> Vec<String> {
    let mut lines = Vec::new();
    if !choice.apply.is_empty() {
        let words = choice.apply.iter().map(|word| plain(word).into_owned()).collect::<Vec<_>>().join(" ");
        lines.push(format!("To use it: {words} PROGRAM"));
    }
    let setting = choice.choice.and_then(|row| choice.rows.get(row)?.setting.as_deref());
    if let Some(mode) = setting.and_then(|setting| setting.strip_prefix("thp=")) {
        let word = if choice.apply.is_empty() { "To use it" } else { "and" };
        lines.push(format!(
            "{word}: write {mode} to /sys/kernel/mm/transparent_hugepage/enabled as root{}",
            if mode == "never" { ", or start the program with prctl(PR_SET_THP_DISABLE)" } else { "" }
        ));
    }
    lines
}

/// The table of all columns, [`COLUMNS`], with the rows that were measured, or whose pages were predicted.
pub fn figures(choice: &Choice) -> Table {
    let mut table = Table::new(COLUMNS, &[0, 1, 2, 7, 8]);
    let yes = |is: bool, word: &str| if is { word.to_string() } else { String::new() };
    let change = |ratio: Option<f64>| ratio.map_or("-".to_string(), |ratio| percent_signed(ratio - 1.0));
    let has_pages = |row: &&Row| matches!(row.outcome, Outcome::Measured | Outcome::Predicted);
    for row in choice.rows.iter().filter(has_pages) {
        let setting = row.setting.clone().unwrap_or_default();
        let setting = if row.outcome == Outcome::Predicted { format!("{setting} (predicted)") } else { setting };
        let rounds = row.traces.iter().map(|trace| trace.rounds).max().unwrap_or(0);
        table.push([
            row.allocator.clone(),
            setting,
            row.version.clone().unwrap_or_default(),
            interval(&row.ratio_to_present),
            change(row.rss_ratio),
            change(row.rss_end_ratio),
            rounds.to_string(),
            yes(row.is_within_limits, "yes"),
            yes(row.is_on_front, "front"),
        ]);
    }
    table
}

/// The columns that say something.
fn shown(choice: &Choice, is_without_limits: bool) -> Table {
    let has_modes = choice.rows.iter().any(|row| row.setting.is_some());
    let kept: Vec<usize> = (0..COLUMNS.len())
        .filter(|&at| match COLUMNS[at] {
            "setting" => has_modes,
            "within limits" => !is_without_limits,
            _ => true,
        })
        .collect();
    let place = |at: &usize| kept.iter().position(|kept| kept == at);
    let optional = OPTIONAL.iter().filter_map(place).map(|column| vec![column]).collect();
    figures(choice).with_columns(&kept, "").with_optional(optional)
}

/// The rows without figures, or with predicted ones, with the reasons.
pub fn missing(rows: &[Row]) -> Vec<String> {
    let verdict = |row: &Row| match row.outcome {
        Outcome::Failed => "failed",
        Outcome::Predicted => "predicted",
        Outcome::Skipped | Outcome::Measured => "skipped",
    };
    let line = |row: &Row| Some(format!("{}: {}: {}", verdict(row), plain(&name(row)), plain(row.reason.as_deref()?)));
    rows.iter().filter_map(line).collect()
}

/// The traces held out; `None` if there is only one.
pub fn held_out(choice: &Choice) -> Option<Table> {
    if choice.held_out.is_empty() {
        return None;
    }
    let head = ["trace held out", "chosen on the others", "regret", "to the present", "limits broken"];
    let mut table = Table::new(head, &[0, 1, 4]);
    for HeldOut { trace, chosen, regret, ratio_to_present, limits_broken } in &choice.held_out {
        let chosen = chosen.and_then(|row| choice.rows.get(row)).map_or("none within the limits".to_string(), name);
        table.push([
            trace.clone(),
            chosen,
            regret.map_or("-".to_string(), percent),
            ratio_to_present.map_or("-".to_string(), |ratio| percent_signed(ratio - 1.0)),
            limits_broken.join(", "),
        ]);
    }
    Some(table)
}
