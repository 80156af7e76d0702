//! A validation as text: prediction and measurement side by side, then the verdict.

use crate::output::table::{Lines, Table, text};
use crate::output::units::{bytes, count, time};
use hksim_explore::described::{Described, Flags, cell, row_flags, varied_flags};
use hksim_validate::Row;

use hksim_results::validate::Validation;

/// One line per row, followed by the reason if there is one.
pub fn table<P: Described>(validation: &Validation<P>) -> String {
    let points: Vec<Flags> = validation.rows.iter().map(|row| row_flags(&row.predicted)).collect();
    let flags = varied_flags(&points);
    let figures = ["faults", "measured", "installs", "measured", "RSS peak", "measured", "pages +/-", "residual"];
    let head = ["trace"].into_iter().chain(flags.iter().copied()).chain(figures).chain(["class", "verdict"]);
    let columns = 1 + flags.len() + figures.len() + 2;
    let words: Vec<usize> = (0..=flags.len()).chain([columns - 2, columns - 1]).collect();
    // The faults, then the class: the verdict and the residual say what they mean.
    let optional = vec![vec![flags.len() + 1, flags.len() + 2], vec![columns - 2]];
    let mut table =
        Table::new(head, &words).with_optional(optional).with_joined(0..1 + flags.len(), "trace and design");
    for (row, config) in validation.rows.iter().zip(&points) {
        let mut cells = vec![row.trace_name.clone()];
        cells.extend(flags.iter().map(|flag| cell(config, flag)));
        cells.extend(figure_cells(row));
        cells.extend([row.class.word().to_string(), row.verdict.word().to_string()]);
        table.push(cells);
    }
    let mut lines = table.lines();
    lines.push(String::new());
    for (index, row) in validation.rows.iter().enumerate() {
        if let Some(reason) = &row.reason {
            lines.push(format!("row {index}: {}: {reason}", row.verdict.word()));
        }
    }
    lines.extend(layouts(&validation.rows));
    lines.extend(system_times(&validation.rows));
    lines.push(format!("verdict: {}", validation.verdict.word()));
    lines.push(
        "pages +/-: pages present (or in that state) in the prediction only / in the measurement only, over all marks"
            .into(),
    );
    lines.push("residual: sum over all compared figures of |prediction - measurement|".into());
    if let Some(row) = validation.rows.first() {
        lines.extend(environment(row));
    }
    text(&lines)
}

/// The effect of the addresses of mappings, if SuperSlabs have separate mappings. It is not part of the verdict.
fn layouts<P>(rows: &[Row<P>]) -> Vec<String> {
    let layouts = rows.iter().enumerate().filter_map(|(index, row)| Some((index, row.layout_residual?)));
    let differ = layouts.clone().filter(|(_, layout)| !layout.is_zero());
    let mut lines: Vec<String> =
        differ.map(|(index, layout)| format!("row {index}: layout: {}", layout.text())).collect();
    let rows = layouts.count();
    if rows > 0 {
        let same = rows - lines.len();
        lines.push(format!(
            "layout: {rows} rows are predicted at the replay's addresses; in {same} of them modelled addresses give the same figures"
        ));
    }
    lines
}

/// System times, if a profile was given. They are not part of the verdict.
fn system_times<P>(rows: &[Row<P>]) -> Vec<String> {
    let times = rows.iter().enumerate().filter_map(|(index, row)| Some((index, row.system_time.as_ref()?)));
    let mut lines: Vec<String> = times.clone().map(|(index, time)| format!("row {index}: {}", time.text())).collect();
    let judged: Vec<bool> = times.filter_map(|(_, time)| time.inside).collect();
    if !judged.is_empty() {
        let inside = judged.iter().filter(|&&inside| inside).count();
        lines.push(format!("system time inside the range in {inside} of {} judged rows", judged.len()));
    }
    lines
}

fn measured<T>(figure: Option<T>, show: impl Fn(T) -> String) -> String {
    figure.map_or_else(|| "-".into(), show)
}

fn figure_cells<P>(row: &Row<P>) -> [String; 8] {
    let (ours, theirs, residual) = (&row.predicted, &row.measured, &row.residual);
    let pages = residual.pages_only_predicted.zip(residual.pages_only_measured);
    [
        count(ours.faults),
        measured(theirs.faults, count),
        count(ours.installs.total),
        measured(theirs.installs.map(|installs| installs.total), count),
        bytes(ours.rss_bytes_peak),
        measured(theirs.rss_bytes_peak, bytes),
        measured(pages, |(ours, theirs)| format!("{ours}/{theirs}")),
        count(residual.magnitude()),
    ]
}

fn environment<P>(row: &Row<P>) -> Vec<String> {
    let environment = &row.environment;
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
    let number = |value: Option<u64>| value.map_or_else(|| "unknown".into(), |value| value.to_string());
    vec![format!(
        "environment: Linux {}, {}, THP {} (defrag {}; sizes below 2M: {}), hugetlb pool {}, swap {} bytes, numa_balancing {}, \
         perf {}, khugepaged collapses {}, failed allocations of huge pages {}, DAMON {}",
        or_unknown(&environment.kernel_release),
        or_unknown(&environment.cpu_model),
        or_unknown(&environment.thp_enabled),
        or_unknown(&environment.thp_defrag),
        if environment.mthp_enabled.is_empty() { "off".into() } else { environment.mthp_enabled.join(" ") },
        number(environment.nr_hugepages),
        number(environment.swap_bytes),
        number(environment.numa_balancing),
        environment.perf,
        number(environment.khugepaged_collapses),
        number(environment.thp_fallbacks),
        match environment.damon_ns {
            Some(0) => "did not run".into(),
            ns => ns.map_or_else(|| "unknown".into(), |ns| format!("ran {}", time(ns))),
        },
    )]
}
