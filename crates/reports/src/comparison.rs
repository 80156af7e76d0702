//! A comparison of allocators as text.

use hksim_explore::origin::origin_text;
use hksim_replay::compare::{Code, Method, Outcome, Row, Sample, Spread};
use hksim_results::replay::ComparisonReport;
use hksim_text::plain;
use hksim_text::table::{self, Table};
use hksim_text::units::{bytes, count, of};
use hksim_timing::{Ended, Estimate, ROUNDS_FOR_INTERVAL, TOLD_SHARE};

use crate::verdict::{self, Amount, Contender};

/// Figures of the table; a note is printed if one is missing.
const SHOWN: [&str; 5] = ["faults", "traps", "rss_bytes_peak", "user_ns_per_call, system_ns_per_call", "apart"];

/// Moments of the table of RSS over time.
const POINTS: usize = 5;

/// The columns of the table.
pub const COLUMNS: [&str; 14] = [
    "allocator",
    "ns/call",
    "ratio",
    "verdict",
    "user",
    "system",
    "ns/alloc",
    "ns/free",
    "faults",
    "traps",
    "RSS peak",
    "RSS end",
    "M calls/s",
    "failed",
];
/// The columns of `--apart`.
const APART: [&str; 2] = ["ns/alloc", "ns/free"];
/// The columns that a narrow table leaves out, the least important first.
const OPTIONAL: [&str; 4] = ["M calls/s", "traps", "failed", "RSS end"];

/// A result as text, in tables of at most this many columns.
pub fn text(report: &ComparisonReport, columns: Option<usize>) -> String {
    let file = report.trace.file.as_deref().unwrap_or_default();
    let mode = format!("{:?}", report.mode).to_lowercase();
    let counted = of(u64::from(report.counted_runs), "run");
    let mut lines = vec![
        format!("trace    {file}, {}; {} events", origin_text(&report.trace.origin), count(report.events)),
        format!("touches  {}", report.touch.rule.word()),
        format!("counted  {counted} of each allocator, {mode}"),
        format!("timed    {}", rounds(report.runs, &report.timing)),
    ];
    let variables = &report.environment.variables;
    lines.extend(variables.iter().map(|(name, value)| format!("{:<9}{name}={}", "variable", plain(value))));
    lines.push(String::new());
    let mut table = figures(&report.rows);
    own_rows(report, &mut table);
    lines.extend(shown(&table, &report.rows).fitted(columns.unwrap_or(usize::MAX)));
    lines.extend(
        report
            .environment
            .modes_changed
            .iter()
            .map(|change| format!("changed during the comparison: {change}: rounds are not comparable; compare again")),
    );
    lines.extend(legend(report));
    lines.extend(shared_core(report.timing.core_shared_share));
    if let Some(over_time) = over_time(&report.rows) {
        lines.push(String::new());
        lines.extend(over_time.fitted(columns.unwrap_or(usize::MAX)));
    }
    lines.extend(report.rows.iter().filter_map(code_note));
    lines.extend(missing(&report.rows));
    lines.extend(verdict(report));
    table::text(&lines)
}

/// Which row is best in time and in memory.
pub fn verdict(report: &ComparisonReport) -> Vec<String> {
    // The rows of the table.
    let measured = || report.rows.iter().filter(|row| row.outcome == Outcome::Measured);
    let names = verdict::distinct("row", measured().map(|row| row.allocator.clone()));
    let contenders = names.into_iter().zip(measured()).map(|(name, row)| Contender {
        name,
        ratio_to_first: row.times.ratio_to_first,
        amounts: vec![
            Amount::measured("least peak RSS", row.figures.rss_bytes_peak),
            Amount::measured("least RSS at the end", row.figures.rss_bytes_end),
        ],
    });
    verdict::lines(&contenders.collect::<Vec<_>>(), report.timing.same_again.as_ref())
}

/// RSS at the first marks of the program, or over its events, and its live bytes; `None` if that was not measured.
pub fn over_time(rows: &[Row]) -> Option<Table> {
    let measured = rows.iter().filter(|row| row.timeline.iter().any(|sample| sample.rss_bytes.is_some()));
    let rows: Vec<_> = measured.map(|row| (vec![row.allocator.clone()], row.timeline.clone())).collect();
    residency(&["allocator"], &rows)
}

/// RSS at the first marks of the program, or over its events, and its live bytes: one row for each allocator, which these
/// columns name. `None` without samples.
pub fn residency(head: &[&str], rows: &[(Vec<String>, Vec<Sample>)]) -> Option<Table> {
    let (_, samples) = rows.first()?;
    let marks: Vec<usize> = (0..samples.len()).filter(|&at| samples[at].mark.is_some()).take(POINTS).collect();
    let last = samples.len().checked_sub(1)?;
    let even = || match last {
        0 => vec![0],
        _ => (1..=POINTS.min(last)).map(|point| point * last / POINTS.min(last)).collect(),
    };
    let shown: Vec<usize> = if marks.is_empty() { even() } else { marks };
    let name = |&at: &usize| {
        let share = || format!("RSS at {:.0} %", samples[at].event as f64 * 100.0 / samples[last].event.max(1) as f64);
        samples[at].mark.as_ref().map_or_else(share, |mark| format!("RSS at {}", plain(mark)))
    };
    let names = head.iter().map(ToString::to_string).chain(shown.iter().map(name));
    let mut table = Table::new(names, &(0..head.len()).collect::<Vec<_>>());
    for (words, timeline) in rows {
        let cell = |&at: &usize| timeline.get(at).and_then(|sample| sample.rss_bytes).map_or("-".to_string(), bytes);
        table.push(words.iter().cloned().chain(shown.iter().map(cell)));
    }
    let live = shown.iter().map(|&at| bytes(samples[at].live_bytes));
    let name = ["(live bytes)"].into_iter().chain(head.iter().skip(1).map(|_| "")).map(str::to_string);
    table.push(name.chain(live));
    Some(table)
}

/// How many timed rounds there were, and why no more.
pub(crate) fn rounds(runs: u32, method: &Method) -> String {
    let Method { precision, ended, seed, is_duet, .. } = method;
    let how = if *is_duet { "in duets with the first allocator" } else { "in random order" };
    let rounds = of(u64::from(runs), "round");
    format!("{rounds} {how} (--seed {seed}), {}", self::ended(*ended, *precision))
}

/// Why there are no more timed rounds.
pub(crate) fn ended(ended: Ended, precision: Option<f64>) -> String {
    match ended {
        Ended::Precise => format!("until every ratio was known to {}", percent(precision.unwrap_or_default())),
        Ended::Time => "until the time of --budget was spent".to_string(),
        Ended::Rounds => "as many as --runs allows".to_string(),
        Ended::Failed => "until the first allocator failed".to_string(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0).replace("00 %", " %").replace(". %", " %")
}

/// The first measured row.
fn first(report: &ComparisonReport) -> Option<&Row> {
    report.rows.iter().find(|row| row.outcome == Outcome::Measured)
}

/// The rows of the method itself: the first allocator a second time, and the replay without an allocator.
fn own_rows(report: &ComparisonReport, table: &mut Table) {
    let Some(first) = first(report) else { return };
    let Method { same_again, harness, .. } = &report.timing;
    let mut push = |name: String, time: &Option<Estimate>, ratio: &Option<Estimate>| {
        let mut cells = vec!["".to_string(); COLUMNS.len()];
        (cells[0], cells[1], cells[2]) = (name, nanoseconds(time), interval(ratio));
        table.push(cells);
    };
    push(format!("{} again", first.allocator), &None, same_again);
    push("(no allocator)".to_string(), &harness.cpu_ns_per_call, &harness.ratio_to_first);
}

/// What the columns mean.
fn legend(report: &ComparisonReport) -> Vec<String> {
    let name = first(report).map_or("the first", |row| &row.allocator);
    let mut lines = vec![
        format!(
            "ns/call: processor time per allocator call, touches included; ratio: to {name}, median of the rounds \
             and 95 % interval"
        ),
        format!(
            "{name} again: a second run in each round, so its interval is the method's own error; tie: no larger \
             difference than that"
        ),
        "no allocator: the replay alone, without touches; user, system: shares of samples, with their 95 % error"
            .into(),
        "faults, traps, RSS: medians; +-: half the interquartile range, if it is not 0".into(),
    ];
    if report.runs < ROUNDS_FOR_INTERVAL {
        lines.push(format!("no intervals and verdicts: they need {ROUNDS_FOR_INTERVAL} rounds"));
    }
    lines
}

/// What other work on the processor's core did to measured times, if it is worth a word.
pub(crate) fn shared_core(share: Option<f64>) -> Option<String> {
    let percent = share.filter(|&share| share >= TOLD_SHARE)? * 100.0;
    Some(format!(
        "other work shared the processor's core in {percent:.0} % of the looks before runs: times are up to three times as long as on a \
         core alone, and ratios may differ, too"
    ))
}

/// What is special about the code of a row.
fn code_note(row: &Row) -> Option<String> {
    let note = match row.code? {
        Code::Constant => return None,
        Code::RunTime => {
            "sizes of slices and SuperSlabs are read at run time, as in `hksim run`; the default's are \
             constants (docs/lab/timing.md)"
        }
        Code::InReplay => {
            "no program can run on this policy, so the replay contains the allocator: its times are not those \
             of a preloaded one"
        }
    };
    Some(format!("{}: {note}", row.allocator))
}

/// The rows and figures that are missing, with the reasons.
pub fn missing(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        if let Some(reason) = &row.reason {
            let verdict = if row.outcome == Outcome::Failed { "failed" } else { "skipped" };
            lines.push(format!("{verdict}: {}: {reason}", row.allocator));
        }
        for skipped in row.skipped.iter().filter(|skipped| SHOWN.contains(&skipped.figure.as_str())) {
            lines.push(format!("skipped: {}: {}: {}", row.allocator, skipped.figure, skipped.reason));
        }
    }
    lines
}

/// The table of all columns, [`COLUMNS`], with the rows that were measured.
pub fn figures(rows: &[Row]) -> Table {
    let mut table = Table::new(COLUMNS, &[0, 2, 3]);
    for row in rows.iter().filter(|row| row.outcome == Outcome::Measured) {
        let Row { figures, times, .. } = row;
        table.push([
            row.allocator.clone(),
            nanoseconds(&times.cpu_ns_per_call),
            interval(&times.ratio_to_first),
            times.verdict.map_or(String::new(), |verdict| verdict.word().to_string()),
            nanoseconds(&times.user_ns_per_call),
            nanoseconds(&times.system_ns_per_call),
            nanoseconds(&times.apart.map(|apart| apart.ns_per_allocation)),
            nanoseconds(&times.apart.and_then(|apart| apart.ns_per_free)),
            counts(&figures.faults, count),
            counts(&figures.traps, count),
            counts(&figures.rss_bytes_peak, bytes),
            counts(&figures.rss_bytes_end, bytes),
            rates(&figures.ops_per_s, |ops| format!("{:.2}", ops / 1e6)),
            counts(&figures.requests_failed, count),
        ]);
    }
    table
}

/// The columns that have figures. A narrow table leaves out the least important ones.
fn shown(table: &Table, rows: &[Row]) -> Table {
    let is_apart = rows.iter().any(|row| row.times.apart.is_some());
    let shown: Vec<usize> = (0..COLUMNS.len()).filter(|&at| is_apart || !APART.contains(&COLUMNS[at])).collect();
    let place = |name: &&str| shown.iter().position(|&at| COLUMNS[at] == *name);
    let optional = OPTIONAL.iter().filter_map(place).map(|column| vec![column]).collect();
    table.with_columns(&shown, "").with_optional(optional)
}

/// `median +-half`, where half is half the interval, if there is one.
pub(crate) fn nanoseconds(time: &Option<Estimate>) -> String {
    time.as_ref().map_or(String::new(), hksim_results::replay::nanoseconds)
}

/// `median (low-high)`.
pub(crate) fn interval(ratio: &Option<Estimate>) -> String {
    let Some(ratio) = ratio else { return String::new() };
    match ratio.interval() {
        Some((low, high)) => format!("{:.3} ({low:.3}-{high:.3})", ratio.median),
        None => format!("{:.3}", ratio.median),
    }
}

pub(crate) fn counts(spread: &Option<Spread<u64>>, show: fn(u64) -> String) -> String {
    with_spread(spread, |spread| (spread.quartile_high - spread.quartile_low) / 2, show)
}

fn rates(spread: &Option<Spread<f64>>, show: fn(f64) -> String) -> String {
    with_spread(spread, |spread| (spread.quartile_high - spread.quartile_low) / 2.0, show)
}

/// `median +-half`, where half is half the interquartile range and is left out if it would print as 0; `-` if the
/// figure was not measured.
fn with_spread<T: Copy + Default>(
    spread: &Option<Spread<T>>,
    half: fn(&Spread<T>) -> T,
    show: fn(T) -> String,
) -> String {
    let Some(spread) = spread else { return "-".to_string() };
    let half = show(half(spread));
    if half == show(T::default()) { show(spread.median) } else { format!("{} +-{half}", show(spread.median)) }
}

#[cfg(test)]
mod tests {
    use super::shared_core;

    #[test]
    fn other_work_on_the_core_is_told_if_it_was_there_often() {
        assert_eq!((shared_core(None), shared_core(Some(0.09))), (None, None));
        let told = shared_core(Some(0.634)).expect("often");
        assert!(told.starts_with("other work shared the processor's core in 63 % of the looks"), "{told}");
    }
}
