//! A trial of a program as text.

use hksim_replay::compare::{Outcome, Spread};
use hksim_results::trial::{AtMark, PRESENT, Row, TrialReport};
use hksim_text::plain;
use hksim_text::shell;
use hksim_text::table::{self, Table};
use hksim_text::units::{bytes, count, of};
use hksim_timing::{Ended, Estimate, ROUNDS_FOR_INTERVAL};

use crate::comparison::{counts, ended, interval, shared_core};
use crate::promises;
use crate::verdict::{self, Amount, Contender};

/// The columns of the table.
pub const COLUMNS: [&str; 13] = [
    "allocator",
    "setting",
    "CPU s",
    "ratio",
    "verdict",
    "wall s",
    "RSS peak",
    "all processes",
    "after load",
    "huge",
    "faults",
    "major",
    "output",
];
/// The columns that a narrow table leaves out, the least important first.
const OPTIONAL: [usize; 5] = [11, 8, 9, 7, 5];
/// What a budget has beyond the time that rounds are expected to take.
const MARGIN_OF_BUDGET: f64 = 1.25;
/// Columns of the table of RSS at marks.
const MARKS: usize = 5;

/// A result as text, in tables of at most this many columns.
pub fn text(report: &TrialReport, columns: Option<usize>) -> String {
    let trial = &report.trial;
    let mut lines = vec![
        format!(
            "program  {}",
            shell::line(report.program.iter().map(|word| plain(word)).collect::<Vec<_>>().iter().map(AsRef::as_ref))
        ),
        format!("present  {}", present(&trial.rows)),
        format!("timed    {}", rounds(report)),
        String::new(),
    ];
    let mut table = figures(&trial.rows);
    if let Some(again) = &trial.same_again {
        let mut cells = vec![String::new(); COLUMNS.len()];
        (cells[0], cells[3]) = (format!("{PRESENT} again"), interval(&Some(*again)));
        table.push(cells);
    }
    // The first row is the head.
    if table.rows().count() > 1 {
        lines.extend(shown(&table).fitted(columns.unwrap_or(usize::MAX)));
        lines.extend(legend(report));
        lines.extend(shared_core(trial.core_shared_share));
    }
    if let Some(at_marks) = at_marks(&trial.rows) {
        lines.push(String::new());
        lines.extend(at_marks.table.fitted(columns.unwrap_or(usize::MAX)));
        let more = match at_marks.more {
            0 => String::new(),
            more => format!("; {} in --format json", of(more as u64, "more mark")),
        };
        lines.push(format!("RSS at a mark: of all processes, shared pages once, over all runs{more}"));
    }
    lines.extend(
        report
            .environment
            .modes_changed
            .iter()
            .map(|change| format!("changed during the trial: {change}: rounds are not comparable; try again")),
    );
    lines.extend(missing(&trial.rows));
    lines.extend(verdict(report));
    if let Some(promises) = promises::table(&report.promises) {
        lines.push(String::new());
        lines.extend(promises.fitted(columns.unwrap_or(usize::MAX)));
        lines.extend(promises::sentences(report));
    }
    table::text(&lines)
}

/// Which row is best in time and in memory.
pub fn verdict(report: &TrialReport) -> Vec<String> {
    verdict::lines(&contenders(&report.trial.rows), report.trial.same_again.as_ref())
}

/// The measured rows, with the numbers of their rows in the table.
fn contenders(rows: &[Row]) -> Vec<Contender> {
    let named =
        |row: &Row| [row.allocator.as_str()].into_iter().chain(row.setting.as_deref()).collect::<Vec<_>>().join(" ");
    let names = verdict::distinct("row", timed(rows).map(named));
    let measured = names.into_iter().zip(timed(rows)).filter(|(_, row)| row.outcome == Outcome::Measured);
    let contender = |(name, row): (String, &Row)| Contender {
        name,
        ratio_to_first: row.ratio_to_first,
        amounts: vec![Amount::measured("least peak RSS", row.rss_bytes_peak)],
    };
    measured.map(contender).collect()
}

/// RSS at marks.
pub struct AtMarks {
    /// The first marks, each in a column.
    pub table: Table,
    /// Marks without a column.
    pub more: usize,
}

/// RSS at the marks of the program; `None` if no row has any.
pub fn at_marks(rows: &[Row]) -> Option<AtMarks> {
    let rows: Vec<(&Row, Vec<Moment<'_>>)> =
        rows.iter().map(|row| (row, moments(row))).filter(|(_, moments)| !moments.is_empty()).collect();
    let mut names: Vec<(&str, usize)> = Vec::new();
    for &(name, _) in rows.iter().flat_map(|(_, moments)| moments) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = names.len().saturating_sub(MARKS);
    names.truncate(MARKS);
    if names.is_empty() {
        return None;
    }
    let has_settings = rows.iter().any(|(row, _)| row.setting.is_some());
    let setting = |word: &str| has_settings.then(|| word.to_string());
    let head = ["allocator".to_string()].into_iter().chain(setting("setting"));
    let words: &[usize] = if has_settings { &[0, 1] } else { &[0] };
    let mut table = Table::new(head.chain(names.iter().map(|(name, _)| format!("RSS at {}", plain(name)))), words);
    for (row, moments) in rows {
        let at = |name| moments.iter().find(|(other, _)| other == name).map(|(_, at)| at.rss_bytes);
        let cells = names.iter().map(|name| counts(&at(name), bytes));
        let setting = setting(row.setting.as_deref().unwrap_or_default());
        table.push([row.allocator.clone()].into_iter().chain(setting).chain(cells));
    }
    Some(AtMarks { table, more })
}

/// A mark with its name and how often the run had set it before.
type Moment<'a> = ((&'a str, usize), &'a AtMark);

fn moments(row: &Row) -> Vec<Moment<'_>> {
    let marks = &row.rss_bytes_at_marks;
    let before = |place: usize, name: &str| marks[..place].iter().filter(|at| at.mark == name).count();
    marks.iter().enumerate().map(|(place, at)| ((at.mark.as_str(), before(place, &at.mark)), at)).collect()
}

/// The columns that have figures. A narrow table leaves out the least important ones.
fn shown(table: &Table) -> Table {
    let used: Vec<usize> = (0..COLUMNS.len()).filter(|&at| at == 0 || is_used(table, at)).collect();
    let place = |at: &usize| used.iter().position(|used| used == at);
    let optional = OPTIONAL.iter().filter_map(place).map(|column| vec![column]).collect();
    table.with_columns(&used, "").with_optional(optional)
}

/// Whether a column has a figure in some row.
fn is_used(table: &Table, at: usize) -> bool {
    table.rows().skip(1).any(|row| row.get(at).is_some_and(|cell| !["", "-", "0", "0 B"].contains(&cell.as_str())))
}

/// The allocator that the program has without hksim.
fn present(rows: &[Row]) -> String {
    let Some((row, path)) = rows.first().and_then(|row| Some((row, row.library.as_ref()?))) else {
        return "the program's own allocator".to_string();
    };
    let file = path.display().to_string();
    match &row.version {
        Some(version) => format!("{} ({})", plain(version), plain(&file)),
        None => plain(&file).into_owned(),
    }
}

/// How many timed rounds there were, and why no more.
fn rounds(report: &TrialReport) -> String {
    let trial = &report.trial;
    let runs = match trial.runs_per_round {
        1 => String::new(),
        runs => format!(" of {runs} runs"),
    };
    let rounds = of(u64::from(trial.rounds), "round");
    format!("{rounds}{runs} in random order (--seed {}), {}", trial.seed, ended(trial.ended, trial.precision))
}

/// What the columns mean.
fn legend(report: &TrialReport) -> Vec<String> {
    let of_what = if report.is_server { "of the load" } else { "of a run" };
    let mut lines = vec![
        format!(
            "CPU s: processor time {of_what}, of all processes; ratio: to {PRESENT}, median of the rounds and 95 % \
             interval"
        ),
        format!(
            "{PRESENT} again: a second run in each round, so its interval is the method's own error; tie: no larger \
             difference than that"
        ),
        "RSS peak: of the largest process; all processes, huge: highest sum seen in one sampled run, shared pages once"
            .to_string(),
    ];
    if report.trial.rounds < ROUNDS_FOR_INTERVAL {
        lines.push(format!(
            "too few rounds for intervals and verdicts: they need {ROUNDS_FOR_INTERVAL}{}",
            more_rounds(report)
        ));
    }
    let first = report.trial.rows.first();
    if first.is_some_and(|row| row.outcome == Outcome::Measured && row.equal_output.is_none()) {
        lines.push(format!(
            "output: differs from run to run under {PRESENT} already, so outputs of other rows say nothing"
        ));
    }
    let status = first.and_then(|row| row.status.as_deref()).filter(|status| *status != "exit status: 0");
    lines.extend(status.map(|status| format!("every run ended with {status}, as the first one did")));
    lines
}

/// The flag that gives as many rounds as intervals need.
fn more_rounds(report: &TrialReport) -> String {
    let trial = &report.trial;
    let wall_s = |row: &Row| row.wall_s.map(|wall| wall.median);
    // The first row runs twice in each round.
    let round_s: f64 = trial.rows.iter().take(1).chain(&trial.rows).filter_map(wall_s).sum();
    let needed_s = round_s * f64::from(trial.runs_per_round * ROUNDS_FOR_INTERVAL) * MARGIN_OF_BUDGET;
    match trial.ended {
        // The times of a server are those of its load alone.
        Ended::Time if report.is_server => "; give a longer --budget".to_string(),
        Ended::Time => format!("; give --budget {:.0}s", needed_s.ceil()),
        Ended::Rounds => format!("; give --runs {ROUNDS_FOR_INTERVAL} or more"),
        Ended::Precise | Ended::Failed => String::new(),
    }
}

/// The rows and figures that are missing, with the reasons, and what else was seen.
pub fn missing(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        let name = [row.allocator.as_str()].into_iter().chain(row.setting.as_deref()).collect::<Vec<_>>().join(" ");
        let verdict = if row.outcome == Outcome::Failed { "failed" } else { "skipped" };
        lines.extend(row.reason.iter().map(|why| format!("{verdict}: {}: {}", plain(&name), plain(why))));
        lines.extend(row.notes.iter().map(|note| format!("note: {}: {}", plain(&name), plain(note))));
    }
    lines
}

/// The rows that have times, also those whose output differs.
fn timed(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.cpu_s.is_some())
}

/// The table of all columns, [`COLUMNS`], with the rows that have times.
pub fn figures(rows: &[Row]) -> Table {
    let mut table = Table::new(COLUMNS, &[0, 1, 3, 4, 12]);
    for row in timed(rows) {
        let size = |figure: Option<u64>| figure.map_or("-".to_string(), bytes);
        let counted = |figure: &Option<Spread<u64>>| counts(figure, count);
        table.push([
            row.allocator.clone(),
            row.setting.clone().unwrap_or_default(),
            seconds(&row.cpu_s),
            interval(&row.ratio_to_first),
            row.verdict.map_or(String::new(), |verdict| verdict.word().to_string()),
            seconds(&row.wall_s),
            counts(&row.rss_bytes_peak, bytes),
            size(row.tree_rss_bytes_peak),
            size(row.tree_rss_bytes_loaded),
            size(row.huge_bytes_peak),
            counted(&row.faults),
            counted(&row.major_faults),
            output(row).to_string(),
        ]);
    }
    table
}

/// Whether the program wrote the same.
fn output(row: &Row) -> &'static str {
    match (row.equal_output, row.equal_stderr) {
        (None, _) => "varies",
        (Some(false), _) => "DIFFERS",
        (Some(true), Some(false)) => "equal, not stderr",
        (Some(true), _) => "equal",
    }
}

/// `median +-half`, where half is half the interval, if there is one, with four digits of the median.
fn seconds(time: &Option<Estimate>) -> String {
    let Some(time) = time else { return "-".to_string() };
    let digits = (3 - time.median.max(1e-6).log10().floor() as i32).clamp(0, 6) as usize;
    match time.half_width() {
        Some(half) => format!("{:.digits$} +-{half:.digits$}", time.median),
        None => format!("{:.digits$}", time.median),
    }
}

#[cfg(test)]
mod tests {
    use hksim_linux_mm::ThpMode;

    use super::*;

    #[test]
    fn marks_are_columns_of_a_table_of_their_own() {
        let mib = |median: u64| Spread::of([Some(median << 20)]).expect("a run");
        let marked = |allocator: &str, marks: &[(&str, u64)]| {
            let at = |&(mark, rss): &(&str, u64)| AtMark { mark: mark.to_string(), rss_bytes: mib(rss) };
            Row { rss_bytes_at_marks: marks.iter().map(at).collect(), ..Row::new(allocator, None) }
        };
        let rows = [
            marked(PRESENT, &[("loaded", 64), ("freed", 2)]),
            marked("other", &[("freed", 32)]),
            marked("third", &[("loaded", 65), ("freed", 9), ("freed", 8)]),
            marked("none", &[]),
        ];
        let AtMarks { table, more } = at_marks(&rows).expect("marks");
        let expected = [
            ["allocator", "RSS at loaded", "RSS at freed", "RSS at freed"],
            [PRESENT, "64.0 MiB", "2.0 MiB", "-"],
            ["other", "-", "32.0 MiB", "-"],
            ["third", "65.0 MiB", "9.0 MiB", "8.0 MiB"],
        ];
        assert_eq!(table.rows().map(<[String]>::to_vec).collect::<Vec<_>>(), expected);
        assert_eq!(more, 0);
        let many: Vec<String> = (0..8).map(|number| number.to_string()).collect();
        let many: Vec<(&str, u64)> = many.iter().map(|name| (name.as_str(), 1)).collect();
        assert_eq!(at_marks(&[marked(PRESENT, &many)]).map(|at_marks| at_marks.more), Some(3));
        assert!(at_marks(&[Row::new(PRESENT, None)]).is_none());
    }

    #[test]
    fn columns_without_figures_are_not_shown() {
        let time = |median| Some(Estimate { median, low: None, high: None });
        let row = |allocator: &str| Row { cpu_s: time(1.0), wall_s: time(1.5), ..Row::new(allocator, None) };
        let table = shown(&figures(&[row(PRESENT), row("other")]));
        assert_eq!(table.head(), ["allocator", "CPU s", "wall s", "output"]);
        let with_mode = Row { major_faults: Spread::of([Some(3)]), ..Row::new("other", Some(ThpMode::Never)) };
        let table = shown(&figures(&[row(PRESENT), Row { cpu_s: time(1.0), ..with_mode }]));
        assert_eq!(table.head(), ["allocator", "setting", "CPU s", "wall s", "major", "output"]);
    }

    /// The table also has a row whose output differs.
    #[test]
    fn the_numbers_of_equal_rows_are_those_of_the_table() {
        let time = Some(Estimate { median: 1.0, low: None, high: None });
        let rss = |mib: u64| Spread::of([Some(mib << 20)]);
        let row = |allocator: &str, mib| Row { cpu_s: time, rss_bytes_peak: rss(mib), ..Row::new(allocator, None) };
        let mut rows = [row(PRESENT, 9), row("a", 1), row("a", 2), row("a", 3)];
        rows[1].outcome = Outcome::Failed;
        let names: Vec<String> = contenders(&rows).into_iter().map(|contender| contender.name).collect();
        assert_eq!(names, [PRESENT, "a (row 3)", "a (row 4)"]);
    }

    #[test]
    fn times_have_four_digits() {
        let shown = |median| seconds(&Some(Estimate { median, low: None, high: None }));
        assert_eq!([12.345_67, 1.234_56, 0.012_345_6, 0.0].map(shown), ["12.35", "1.235", "0.01235", "0.000000"]);
        let time = Estimate { median: 1.5, low: Some(1.25), high: Some(1.75) };
        assert_eq!(seconds(&Some(time)), "1.500 +-0.250");
    }
}
