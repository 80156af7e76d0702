//! A sweep as text: one table per trace, and which design is best.

mod answers;
mod columns;

use std::collections::{BTreeMap, BTreeSet};

use hksim_cost_model::system_time::states;
use hksim_explore::answers::missing_text;
use hksim_explore::described::{Described, Flags, cell, row_flags, some_flags};
use hksim_explore::flags::RunConfig;
use hksim_explore::flags::table::FLAGS;
use hksim_explore::origin::origin_text;
use hksim_explore::priced::Priced;
use hksim_policy::Policy;
use hksim_results::sweep::{Head, PricedSweep};
use hksim_sim::SimReport;
use hksim_text::table::Table;
use hksim_text::units::{bytes, count};
use serde::Serialize;

use crate::memory_limit;
use crate::simulation_head::{kernel_text, made_up_times, memory_policy_text, touch_rule_text};
use columns::{Column, LEAST, is_best};

/// Whether a column is shown although it distinguishes no rows.
pub type IsNamed<'a> = &'a dyn Fn(&str) -> bool;

/// The names of all columns of figures, in their order.
pub fn figure_names() -> impl Iterator<Item = &'static str> {
    columns::columns::<Policy>().into_iter().map(|column| column.head)
}

/// The names of all columns of settings: flags of designs and of the kernel.
pub fn setting_names() -> impl Iterator<Item = &'static str> {
    let settings = hksim_designs::all().into_iter().flat_map(|about| about.settings).map(|setting| setting.flag);
    FLAGS.iter().map(|flag| flag.name).chain(["design"]).chain(settings)
}

/// The table of each trace, with a heading.
pub fn tables<P: Described>(sweep: &PricedSweep<P>, head: &Head, is_named: IsNamed<'_>) -> Vec<(String, Table)> {
    let designs = head.rows_per_trace.max(1);
    let one = |(number, rows): (usize, &[Priced<P>])| {
        let heading = trace_head(rows).into_iter().next().unwrap_or_default();
        (heading, trace_table(rows, number * designs, sweep, is_named))
    };
    sweep.rows.chunks(designs).enumerate().map(one).collect()
}

/// The lines of all tables, with a legend, as wide as `width`; as wide as they are if that is `None`.
pub fn lines<P: Described>(sweep: &PricedSweep<P>, head: &Head, width: Option<usize>) -> Vec<String> {
    let width = width.unwrap_or(usize::MAX);
    let mut lines = answers::combined(&sweep.answers, width);
    let mut first = 0;
    for (rows, answer) in sweep.rows.chunks(head.rows_per_trace.max(1)).zip(&sweep.answers.per_trace) {
        lines.extend(trace_head(rows));
        lines.extend(trace_table(rows, first, sweep, &|_| false).fitted(width));
        lines.extend(twins(rows, first));
        lines.extend(answers::lines(answer));
        lines.push(String::new());
        first += rows.len();
    }
    lines.push("*  best of its column      P  Pareto front of installs and peak RSS: no row is better in one and as good in the other".into());
    lines.push(
        "in huge: peak bytes in huge pages / peak RSS      x floor: peak RSS / fewest pages that hold the live bytes"
            .into(),
    );
    lines.extend(memory_limit::killed(sweep.rows.iter().map(|row| row.report.memory_limit.as_ref())));
    if sweep.rows.iter().any(|row| row.report.huge_bytes_unasked.is_some()) {
        lines.push("unasked: pages that this kernel gives, though --huge never asks for no huge pages".into());
    }
    if let Some(time) = sweep.rows.iter().find_map(|row| row.time.as_ref()) {
        lines.push(format!("ns/call: {}", time.valid_for));
    }
    let skipped: BTreeSet<&String> = sweep.rows.iter().filter_map(|row| row.time_skipped.as_ref()).collect();
    lines.extend(skipped.into_iter().map(|why| format!("no ns/call: {why}")));
    if let Some(time) = sweep.rows.first().and_then(|row| row.system_time.as_ref()) {
        let figure = if sweep.pareto_time.is_some() { "ns/call" } else { "system time (its median)" };
        lines.push(format!("T  Pareto front of {figure} and peak RSS"));
        lines.push(format!("system time: from costs measured on {}, Linux {}", time.machine, time.kernel_release));
    }
    lines.extend(states(sweep.rows.iter().filter_map(|row| row.system_time.as_ref())));
    let asks_pool = |row: &&Priced<P>| RunConfig::of_report(&row.report).word("huge").starts_with("hugetlb");
    if let Some(row) = sweep.rows.iter().find(asks_pool).or(sweep.rows.first()) {
        lines.push(format!("kernel: {}", kernel_text(&row.report, head.modes)));
    }
    lines
}

fn trace_head<P: Described>(rows: &[Priced<P>]) -> Vec<String> {
    let Some(Priced { report: row, .. }) = rows.first() else { return Vec::new() };
    let trace = &row.trace;
    let file = trace.file.as_ref().map(|file| format!("{file}, ")).unwrap_or_default();
    let missing = missing_text(trace);
    let rules: Vec<&str> = rows.iter().map(|row| row.report.touch.rule.word()).collect();
    let rules = if rules.windows(2).all(|pair| pair[0] == pair[1]) { rules[0] } else { "as listed" };
    let (events, live, floor) = (count(row.events), bytes(row.live_bytes_peak), count(row.floor_pages));
    let mut lines = vec![
        format!("{file}{}", origin_text(&trace.origin)),
        format!(
            "{events} events{missing}, {live} live at the peak (floor {floor} pages); touches: {}",
            touch_rule_text(rules, trace.touch_source)
        ),
    ];
    // If the texts of several rows differ, use the most informative one.
    let most_changed = rows.iter().max_by_key(|row| row.report.memory_policy.installs_thp_denied);
    lines.extend(most_changed.and_then(|row| memory_policy_text(&row.report)));
    // Purge delays differ by row; the first row whose figures depend on times explains the others.
    lines.extend(rows.iter().find_map(|row| made_up_times(&row.report)).map(|text| format!("times {text}")));
    lines
}

/// The table of a trace: the settings and figures that distinguish its rows, and the named ones.
fn trace_table<P: Described>(rows: &[Priced<P>], first: usize, sweep: &PricedSweep<P>, is_named: IsNamed<'_>) -> Table {
    let points: Vec<Flags> = rows.iter().map(|row| row_flags(&row.report)).collect();
    let flags = some_flags(&points, |flag, varies| varies || is_named(flag));
    let columns: Vec<Column<P>> = columns::columns()
        .into_iter()
        .filter(|column| {
            !column.is_optional || is_named(column.head) || rows.iter().any(|row| (column.key)(row) != 0.0)
        })
        .collect();
    let head = ["#"].into_iter().chain(flags.iter().copied()).chain(columns.iter().map(|column| column.head));
    let words: Vec<usize> = (1..=flags.len()).collect();
    let optional = LEAST.iter().filter_map(|name| columns.iter().position(|column| column.head == *name));
    let optional = optional.map(|column| vec![1 + flags.len() + column]).collect();
    let mut table =
        Table::new(head.chain([""]), &words).with_optional(optional).with_joined(1..1 + flags.len(), "design");
    let shown: Vec<Vec<String>> = columns.iter().map(|column| column.show.cells(rows)).collect();
    for (index, (row, point)) in rows.iter().zip(&points).enumerate() {
        let number = [(first + index).to_string()];
        let values = flags.iter().map(|flag| cell(point, flag));
        let figures = columns.iter().zip(&shown).map(|(column, shown)| {
            let mark = if is_best(column, row, rows) { "*" } else { "" };
            format!("{mark}{}", shown[index])
        });
        let on = |front: &[usize], mark| if front.contains(&(first + index)) { mark } else { "" };
        let of_time = sweep.pareto_time.as_deref().or(sweep.pareto_system_time.as_deref()).unwrap_or_default();
        let fronts = on(&sweep.pareto, "P").to_string() + on(of_time, "T");
        table.push(number.into_iter().chain(values).chain(figures).chain([fronts]));
    }
    table
}

/// One line for each group of rows that are equal in all figures.
fn twins<P: Serialize>(rows: &[Priced<P>], first: usize) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        groups.entry(all_figures(&row.report)).or_default().push(first + index);
    }
    let mut twins: Vec<Vec<usize>> = groups.into_values().filter(|rows| rows.len() > 1).collect();
    twins.sort();
    let names = |rows: &[usize]| rows.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    twins.iter().map(|rows| format!("equal in all figures: {}", names(rows))).collect()
}

/// All simulated figures of a row, without its inputs.
fn all_figures<P: Serialize>(row: &SimReport<P>) -> String {
    let mut value = serde_json::to_value(row).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        for input in ["policy", "touch", "memory_policy", "kernel", "elapsed_s", "placement_digest"] {
            fields.remove(input);
        }
    }
    value.to_string()
}
