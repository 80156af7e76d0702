//! Installs of replays by call site of their trace, side by side: a row for each site, a column for each allocator.

use std::collections::BTreeMap;

use hksim_results::explain::Part;
use hksim_results::site_installs::SiteInstalls;
use hksim_text::plain;
use hksim_text::table::Table;
use hksim_text::units::count;

use crate::breakdown::{ROWS_MAX, shortened};
use crate::verdict::distinct;

/// What the tables count, and what they do not.
pub const NOTE: &str = "By call site: installs of a further replay on each allocator, those of `explain --on`. They are measured from \
                        the first event; what the allocator took before is start-up. Rows above are predicted for the whole \
                        replay, so their installs differ. Of the settings, only --thp changes these replays; without it they \
                        run under the machine's mode.";

/// A table for each trace, then what has no column and why; at most this many columns of text. Nothing without replays.
pub fn lines(replays: &[SiteInstalls], columns: Option<usize>) -> Vec<String> {
    if replays.is_empty() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for (trace, table) in tables(replays) {
        lines.extend([String::new(), trace]);
        lines.extend(table.fitted(columns.unwrap_or(usize::MAX)));
    }
    lines.push(if lines.is_empty() { String::new() } else { NOTE.to_string() });
    lines.extend(skipped(replays));
    lines
}

/// A table for each trace with an explained replay, with a title.
pub fn tables(replays: &[SiteInstalls]) -> Vec<(String, Table)> {
    let is_explained = |replay: &SiteInstalls| replay.installs_total.is_some();
    let of_traces = replays.chunk_by(|one, other| one.trace == other.trace);
    let of_traces = of_traces.filter(|replays| replays.iter().any(is_explained));
    let titled = |replays: &[SiteInstalls]| {
        let trace = replays.first().map(|replay| replay.trace.display().to_string()).unwrap_or_default();
        (format!("trace      {}: installs by call site", plain(&trace)), table(replays))
    };
    of_traces.map(titled).collect()
}

/// Replays without a column, and why.
pub fn skipped(replays: &[SiteInstalls]) -> Vec<String> {
    let line = |replay: &SiteInstalls| {
        let why = replay.skipped.as_deref()?;
        Some(format!("skipped  {} by call site: {}", plain(&name(replay)), plain(why)))
    };
    replays.iter().filter_map(line).collect()
}

fn name(replay: &SiteInstalls) -> String {
    match &replay.thp {
        Some(mode) => format!("{} thp={mode}", replay.allocator),
        None => replay.allocator.clone(),
    }
}

/// The sites of most installs, the rest, and the total.
fn table(replays: &[SiteInstalls]) -> Table {
    let columns = || replays.iter().filter(|replay| replay.installs_total.is_some());
    let names = distinct("column", columns().map(name));
    let head = ["call site".to_string()].into_iter().chain(names.iter().map(|name| plain(name).into_owned()));
    let mut table = Table::new(head, &[0]);
    let mut sites: Vec<(&str, Vec<u64>)> = sites(&columns().collect::<Vec<_>>()).into_iter().collect();
    sites.sort_by_key(|(_, installs)| std::cmp::Reverse(installs.iter().sum::<u64>()));
    let rest = sites.split_off(sites.len().min(ROWS_MAX));
    for (site, installs) in sites {
        table.push([shortened(site)].into_iter().chain(installs.into_iter().map(count)));
    }
    if !rest.is_empty() {
        let sum = |column: usize| count(rest.iter().map(|(_, installs)| installs[column]).sum());
        table.push([format!("{} more", rest.len())].into_iter().chain((0..columns().count()).map(sum)));
    }
    let totals = columns().map(|replay| count(replay.installs_total.unwrap_or_default()));
    table.push(["total".to_string()].into_iter().chain(totals));
    table
}

/// The installs of each site in each column.
fn sites<'a>(replays: &[&'a SiteInstalls]) -> BTreeMap<&'a str, Vec<u64>> {
    let mut sites: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (column, replay) in replays.iter().enumerate() {
        for part in parts(replay) {
            sites.entry(&part.name).or_insert_with(|| vec![0; replays.len()])[column] += part.installs;
        }
    }
    sites
}

/// Only a fresh result has the callers.
fn parts(replay: &SiteInstalls) -> &[Part] {
    if replay.callers.is_empty() { &replay.site } else { &replay.callers }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(allocator: &str, sites: &[(&str, u64)]) -> SiteInstalls {
        let part = |&(name, installs): &(&str, u64)| Part { name: name.into(), installs, kernel_ns_per_call: None };
        SiteInstalls {
            trace: "a.hkt".into(),
            allocator: allocator.into(),
            thp: None,
            installs_total: Some(sites.iter().map(|(_, installs)| installs).sum()),
            site: sites.iter().map(part).collect(),
            callers: Vec::new(),
            skipped: None,
        }
    }

    #[test]
    fn sites_are_rows_in_the_order_of_their_sums_and_every_column_has_its_total() {
        let small: Vec<(String, u64)> = (0..9).map(|number| (format!("small{number}"), 10 - number)).collect();
        let small: Vec<(&str, u64)> = small.iter().map(|(name, installs)| (name.as_str(), *installs)).collect();
        let mut second = replay("glibc", &[("main", 1), ("only here", 100)]);
        second.thp = Some("never".into());
        let without = SiteInstalls { installs_total: None, skipped: Some("no perf".into()), ..replay("native", &[]) };
        let replays = [replay("glibc", &[&small[..], &[("main", 40)]].concat()), second, without];
        let tables = tables(&replays);
        let [(title, table)] = tables.as_slice() else { panic!("one trace") };
        assert_eq!(title, "trace      a.hkt: installs by call site");
        let rows: Vec<Vec<String>> = table.rows().map(<[String]>::to_vec).collect();
        assert_eq!(rows[0], ["call site", "glibc", "glibc thp=never"]);
        assert_eq!(rows[1], ["only here", "0", "100"]);
        assert_eq!(rows[2], ["main", "40", "1"]);
        assert_eq!(rows[3], ["small0", "10", "0"]);
        assert_eq!(rows[9], ["3 more", "9", "0"], "4, 3 and 2");
        assert_eq!(rows[10], ["total", "94", "101"]);
        assert_eq!(skipped(&replays), ["skipped  native by call site: no perf"]);
    }

    #[test]
    fn columns_of_one_allocator_have_numbers_and_traces_tables_of_their_own() {
        let other = SiteInstalls { trace: "b.hkt".into(), ..replay("glibc", &[("main", 1)]) };
        let tables = tables(&[replay("glibc", &[("main", 1)]), replay("glibc", &[("main", 2)]), other]);
        let heads: Vec<&[String]> = tables.iter().map(|(_, table)| table.head()).collect();
        assert_eq!(heads, [&["call site", "glibc (column 1)", "glibc (column 2)"][..], &["call site", "glibc"]]);
        assert!(lines(&[], None).is_empty());
    }

    #[test]
    fn what_has_no_explanation_has_no_table_and_no_column() {
        let without =
            || SiteInstalls { installs_total: None, skipped: Some("no perf".into()), ..replay("native", &[]) };
        let skipped = "skipped  native by call site: no perf";
        assert_eq!(lines(&[without()], None), ["", skipped]);
        let found = lines(&[replay("glibc", &[("main", 1)]), without(), replay("glibc", &[("main", 2)])], None);
        assert!(found[2].ends_with("glibc (column 1)  glibc (column 2)"), "{found:?}");
        assert_eq!(found.last().map(String::as_str), Some(skipped));
    }
}
