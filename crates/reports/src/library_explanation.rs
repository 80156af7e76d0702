//! An explained replay on a malloc library as text.

use hksim_explore::answers::missing_text;
use hksim_explore::origin::origin_text;
use hksim_results::explain_library::LibraryExplanation;
use hksim_text::plain;
use hksim_text::table::Table;
use hksim_text::units::{bytes, count, of};

use crate::breakdown;

/// The inputs, the causes in sentences, then a table for each key, of at most this many columns.
pub fn lines(explanation: &LibraryExplanation, columns: Option<usize>) -> Vec<String> {
    let fitted = |table: Table| table.fitted(columns.unwrap_or(usize::MAX));
    let mut lines = head(explanation);
    lines.push(format!(
        "{} installs. At its peak the live set needs at least {}, and {} for the bytes that are touched. Peak RSS {}.",
        count(explanation.installs_total),
        of(explanation.floor_pages, "page"),
        count(explanation.floor_touched_pages),
        bytes(explanation.rss_bytes_peak)
    ));
    lines.extend(not_contained(explanation));
    for (number, cause) in explanation.causes.iter().enumerate() {
        lines.push(String::new());
        lines.push(format!("{}. {}", number + 1, plain(&cause.sentence)));
        lines.push(format!("   {}", plain(&cause.remedy_sentence)));
    }
    if let Some(against) = &explanation.against {
        lines.push(String::new());
        lines.push(format!("against {}", plain(&against.allocator)));
        lines.extend(against.sentences.iter().map(|sentence| format!("  {}", plain(sentence))));
    }
    if !explanation.tried.is_empty() {
        lines.push(String::new());
        lines.extend(fitted(tried(explanation)));
    }
    for (key, parts) in explanation.by.lists() {
        let parts = if key == "site" { &explanation.callers } else { parts };
        if breakdown::says_something(parts) {
            lines.push(String::new());
            lines.extend(fitted(breakdown::table(key, parts, explanation.installs_total)));
        }
    }
    if !explanation.skipped.is_empty() {
        lines.push(String::new());
        let skipped = explanation.skipped.iter();
        lines.extend(skipped.map(|one| format!("skipped  {}: {}", plain(&one.figure), plain(&one.reason))));
    }
    lines
}

fn head(explanation: &LibraryExplanation) -> Vec<String> {
    let inputs = &explanation.inputs;
    let file = inputs.trace.file.as_ref().map(|file| format!("{file}, ")).unwrap_or_default();
    let trace = format!("{file}{}; {} events", origin_text(&inputs.trace.origin), count(inputs.events));
    let path = inputs.library.as_ref().map(|path| path.display().to_string());
    let named_apart = path.filter(|path| !inputs.allocator.starts_with(path));
    let library = named_apart.map(|path| format!(", {path}")).unwrap_or_default();
    let version = inputs.version.as_ref().map(|version| format!(", version {version}")).unwrap_or_default();
    vec![
        format!("trace    {}{}", plain(&trace), missing_text(&inputs.trace)),
        format!("on       {}", plain(&format!("{}{library}{version}", inputs.allocator))),
        format!("touches  {}", inputs.touch.rule.word()),
    ]
}

/// Faults that no key contains.
fn not_contained(explanation: &LibraryExplanation) -> Vec<String> {
    let mut lines = Vec::new();
    if explanation.faults != explanation.installs_total {
        let faults = count(explanation.faults);
        lines.push(format!("The kernel charged {faults} faults: the difference was taken inside system calls."));
    }
    for (number, what) in [
        (explanation.faults_of_other_threads, "of threads that the library started"),
        (explanation.traps_lost, "that the kernel did not record, as its buffer was full"),
    ] {
        if number > 0 {
            lines.push(format!("Not contained: {} {what}.", of(number, "fault")));
        }
    }
    lines
}

/// All remedies, the most effective first.
fn tried(explanation: &LibraryExplanation) -> Table {
    let mut tried: Vec<_> = explanation.tried.iter().collect();
    tried.sort_by_key(|tried| tried.installs);
    let mut table = Table::new(["tried", "", "installs", "RSS peak"], &[0, 1]);
    for one in tried {
        let kind = one.kind.replace('_', " ");
        table.push([kind, plain(&one.change).into_owned(), count(one.installs), bytes(one.rss_bytes_peak)]);
    }
    table
}
