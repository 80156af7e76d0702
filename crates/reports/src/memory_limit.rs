//! Whether a program survives the limit of its memory control group, in words.

use std::collections::BTreeSet;

use hksim_linux_mm::{LimitOutcome, MemoryLimit, OutOfMemory};
use hksim_memory_sim::{Prediction, UnseenWrites};
use hksim_policy::PAGE_BYTES;
use hksim_results::replay::LimitedReport;
use hksim_text::plain;
use hksim_text::table::Table;
use hksim_text::units::{bytes, count, of, time};
use hksim_validate::memory::{KillPlace, LimitFigures, LimitedRun, Row, RunOutcome, outcome_words};

/// The lines about a limit.
pub fn lines(limit: &MemoryLimit) -> Vec<String> {
    lines_with(limit, None)
}

/// The lines about a limit, and about what depends on writes that a recording does not have.
pub fn lines_with(limit: &MemoryLimit, unseen: Option<&UnseenWrites>) -> Vec<String> {
    let mut lines = vec![outcome(limit, unseen.and_then(|unseen| unseen.event_max))];
    let from = unseen.and_then(|unseen| unseen.least_limit_bytes_min);
    lines.extend(limit.least_limit_bytes.map(|least_bytes| least(from.unwrap_or(least_bytes), least_bytes)));
    let met = &limit.pressure;
    let refused = || format!("{} did not fit, and smaller ones were used", of(met.folios_refused, "large folio"));
    let reclaimed = || format!("{} freed by MADV_FREE were reclaimed", bytes(met.lazy_free_bytes_reclaimed));
    let split = || format!("{} split for their unmapped pages", of(met.folios_split, "large folio"));
    let pressure: Vec<String> = [
        (met.folios_refused > 0).then(refused),
        (met.lazy_free_bytes_reclaimed > 0).then(reclaimed),
        (met.folios_split > 0).then(split),
    ]
    .into_iter()
    .flatten()
    .collect();
    lines.extend((!pressure.is_empty()).then(|| format!("at the limit: {}", pressure.join("; "))));
    lines
}

/// What a limit does not count: programs that processes of the recording executed.
pub fn apart(limit: Option<&MemoryLimit>, programs: Option<u64>) -> Option<String> {
    limit?;
    let programs = of(programs?, "program");
    Some(format!(
        "not in this limit: {programs} of the same recording, executed by other processes; those that run at the same \
         time are charged to the same group"
    ))
}

/// The outcome in one word, for tables.
pub fn word(limit: Option<&MemoryLimit>) -> &'static str {
    match limit.map(|limit| limit.outcome) {
        None => "-",
        Some(LimitOutcome::Survives) => "survives",
        Some(LimitOutcome::Killed) => "killed",
        Some(LimitOutcome::Unknown) => "unknown",
    }
}

/// How many rows are killed at their memory limits, and so not compared; `None` if all survive.
pub fn killed<'a>(limits: impl Iterator<Item = Option<&'a MemoryLimit>>) -> Option<String> {
    let outcomes: Vec<Option<LimitOutcome>> = limits.map(|limit| limit.map(|limit| limit.outcome)).collect();
    let rows = of(outcomes.len() as u64, "row");
    let part = |outcome, words: &str| {
        let number = outcomes.iter().filter(|each| **each == Some(outcome)).count() as u64;
        (number > 0).then(|| format!("{words} in {} of {rows}", count(number)))
    };
    let killed = part(LimitOutcome::Killed, "killed at the memory limit");
    let unknown = part(LimitOutcome::Unknown, "unknown whether killed");
    let parts: Vec<String> = [killed, unknown].into_iter().flatten().collect();
    let note = "not compared with the others, and figures are those with the limit lifted at that event";
    (!parts.is_empty()).then(|| format!("outcome: {}: {note}", parts.join(", ")))
}

/// Why figures or an outcome are a range.
pub fn unseen(unseen: &UnseenWrites) -> String {
    format!(
        "ranges: MADV_FREE marked {} of present pages, and writing such a page again raises no fault, so the recording does \
         not show it; the ends of a range are for no such page written again and for all of them at once",
        bytes(unseen.marked_bytes)
    )
}

/// The same for the rows of a table, once.
pub fn unseen_in(rows: impl Iterator<Item = UnseenWrites>) -> Option<String> {
    let most = rows.max_by_key(|unseen| unseen.marked_bytes);
    let rule = "of ranges, the upper end counts for the front";
    most.map(|most| format!("{}; {rule}", unseen(&most)))
}

/// The outcome and the least limit in a table.
pub fn cells(prediction: &Prediction) -> [String; 2] {
    let limit = prediction.memory_limit.as_ref();
    let least_bytes = limit.and_then(|limit| limit.least_limit_bytes);
    let from = prediction.unseen_writes.and_then(|unseen| unseen.least_limit_bytes_min);
    let least = least_bytes.map_or("-".to_string(), |least| range(from.unwrap_or(least), least, bytes));
    [word(limit).to_string(), least]
}

/// A range of figures, or one if both are the same.
pub fn range(low: u64, high: u64, text: fn(u64) -> String) -> String {
    if text(low) == text(high) { text(low) } else { format!("{} to {}", text(low), text(high)) }
}

/// What became of a replay under a limit.
pub fn replayed(report: &LimitedReport) -> String {
    let size = bytes(report.limit_bytes);
    let outcome = match (&report.skipped, report.event) {
        (Some(reason), _) => format!("skipped: {reason}"),
        (None, Some(event)) => format!("killed at event {}", count(event)),
        (None, None) => "survives".to_string(),
    };
    format!("{} on a memory limit of {size} for its heap: {outcome}\n", report.allocator)
}

/// The rows of a validation that are about a limit; `None` without any.
pub fn validated(rows: &[Row]) -> Option<Table> {
    let figures = ["predicted", "runs", "killed in", "least limit", "kernel's own", "peak charge", "measured"];
    let names = ["recording", "setting"].into_iter().chain(figures).chain(["class", "verdict"]);
    let mut table = Table::new(names, &[0, 1, 2, 3, 4, 9, 10]);
    let limited: Vec<&Row> = rows.iter().filter(|row| row.has_limit()).collect();
    for row in &limited {
        let setting: Vec<String> = row.setting.iter().map(|(flag, value)| format!("{flag} {value}")).collect();
        let mut cells = vec![plain(&row.file).into_owned(), setting.join(", ")];
        cells.extend(row.memory_limit.as_ref().map_or_else(|| vec![String::new(); figures.len()], limit_cells));
        cells.push(row.class.map_or("", |class| class.word()).to_string());
        cells.push(row.verdict.word().to_string());
        table.push(cells);
    }
    (!limited.is_empty()).then_some(table)
}

/// Why it is not known where programs are killed, once each.
pub fn places_unknown(rows: &[Row]) -> Vec<String> {
    let places = rows.iter().filter_map(|row| row.memory_limit.as_ref()?.killed.as_ref());
    let reasons: BTreeSet<&String> = places.filter_map(|place| place.reason.as_ref()).collect();
    reasons.into_iter().map(|reason| format!("where it is killed cannot be compared: {reason}")).collect()
}

fn limit_cells(figures: &LimitFigures) -> Vec<String> {
    let least_bytes = figures.predicted.least_limit_bytes;
    let from = figures.least_limit_bytes_min;
    let least = least_bytes.map_or("-".to_string(), |least| range(from.unwrap_or(least), least, bytes));
    let peak = figures.peak.map(|peak| [peak.predicted_bytes, peak.measured_bytes].map(bytes));
    let [peak, measured] = peak.unwrap_or(["-", "-"].map(str::to_string));
    vec![
        word(Some(&figures.predicted)).to_string(),
        runs(&figures.runs),
        figures.killed.as_ref().map_or("-".to_string(), KillPlace::words),
        least,
        bytes(figures.kernel_bytes),
        peak,
        measured,
    ]
}

/// How runs ended: those under the predicted limit, and after an arrow those under the second one.
fn runs(runs: &[LimitedRun]) -> String {
    let under = |runs: &[LimitedRun]| outcome_words(&runs.iter().map(|run| run.outcome).collect::<Vec<RunOutcome>>());
    let by_limit = runs.chunk_by(|one, other| one.limit_bytes == other.limit_bytes);
    by_limit.map(under).collect::<Vec<_>>().join(" -> ")
}

fn outcome(limit: &MemoryLimit, event_max: Option<u64>) -> String {
    let size = bytes(limit.limit_bytes);
    let Some(OutOfMemory { page, bytes: needed }) = limit.pressure.out_of_memory else {
        return format!("memory limit {size}: survives; at most {} charged", bytes(limit.pressure.charged_bytes_peak));
    };
    let event = limit.event.map_or(String::new(), |event| format!(" at event {}", count(event)));
    let latest = event_max.filter(|latest| Some(*latest) != limit.event);
    let latest = latest.map_or(String::new(), |event| format!(" or later, at the latest at event {}", count(event)));
    let outcome = match limit.outcome {
        LimitOutcome::Unknown => {
            "unknown: it depends on which pages freed by MADV_FREE were written again; in one case killed"
        }
        LimitOutcome::Survives | LimitOutcome::Killed => "killed",
    };
    let moment = limit.moment_ns.map_or(String::new(), |ns| format!(", {}", time(ns)));
    let by = limit.by.as_ref().map_or(String::new(), |by| format!(", by {by}"));
    let page = page.map_or(String::new(), |page| format!(" for the page at {:#x}", page * PAGE_BYTES));
    let others = match limit.outcome {
        LimitOutcome::Unknown => "for no such page written again",
        LimitOutcome::Survives | LimitOutcome::Killed => "those with the limit lifted there",
    };
    format!(
        "memory limit {size}: {outcome}{event}{latest}{moment}{by}: {} would be charged{page}; other figures are {others}",
        bytes(needed)
    )
}

fn least(from_bytes: u64, least_bytes: u64) -> String {
    let pages = |bytes: u64| count(bytes / PAGE_BYTES);
    match from_bytes == least_bytes {
        true => format!("limits from {} ({} pages) on are survived", bytes(least_bytes), pages(least_bytes)),
        false => format!(
            "limits from {} ({} pages) on are survived in any case; at best, from {} ({} pages) on",
            bytes(least_bytes),
            pages(least_bytes),
            bytes(from_bytes),
            pages(from_bytes)
        ),
    }
}
