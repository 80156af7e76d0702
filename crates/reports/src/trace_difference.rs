//! What tells two traces apart, as text.

use hksim_results::info::difference::{Difference, SizeRow, ratio_text, totals};

use hksim_text::table::{Table, text as joined};
use hksim_text::units;

/// A comparison as text, in tables of at most this many columns.
pub fn text(difference: &Difference, columns: Option<usize>) -> String {
    let columns = columns.unwrap_or(usize::MAX);
    let mut lines: Vec<String> = difference.sentences.clone();
    lines.push(String::new());
    lines.extend([
        format!("first   {}", difference.traces[0]),
        format!("second  {}", difference.traces[1]),
        String::new(),
    ]);
    let mut figures = Table::new(["", "first", "second", "ratio"], &[0]);
    for figure in &difference.figures {
        let ratio = figure.ratio.map_or("-".into(), ratio_text);
        let [first, second] = figure.unit.pair(figure.first, figure.second);
        figures.push([figure.label.to_string(), first, second, ratio]);
    }
    lines.extend(figures.fitted(columns));
    if !difference.sizes.is_empty() {
        lines.push(String::new());
        lines.extend(size_table(&difference.sizes).fitted(columns));
    }
    for site in difference.sites.iter().flatten() {
        let [first, second] = [site.first, site.second].map(units::count);
        lines.extend([String::new(), format!("{first} in the first, {second} in the second")]);
        lines.extend(site.lines().iter().map(|frame| format!("    {frame}")));
    }
    joined(&lines)
}

fn size_table(sizes: &[SizeRow]) -> Table {
    let mut table = Table::new(["sizes up to", "calls, first", "share", "calls, second", "share"], &[]);
    let totals = totals(sizes);
    for row in sizes {
        let shares = [units::percent(row.calls_first, totals[0]), units::percent(row.calls_second, totals[1])];
        let [first, second] = shares;
        let [calls_first, calls_second] = [row.calls_first, row.calls_second].map(units::count);
        table.push([units::bytes(row.bytes_max), calls_first, first, calls_second, second]);
    }
    table
}
