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
    let mut lines = head(explanation);
    lines.extend(totals(explanation));
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
    for table in tables(explanation) {
        lines.push(String::new());
        lines.extend(table.fitted(columns.unwrap_or(usize::MAX)));
    }
    if !explanation.skipped.is_empty() {
        lines.push(String::new());
        lines.extend(skipped(explanation));
    }
    lines
}

/// The installs, the floor and the peak RSS in sentences, and which faults no key contains.
pub fn totals(explanation: &LibraryExplanation) -> Vec<String> {
    let figures = format!(
        "{} installs. At its peak the live set needs at least {}, and {} for the bytes that are touched. Peak RSS {}.",
        count(explanation.installs_total),
        of(explanation.floor_pages, "page"),
        count(explanation.floor_touched_pages),
        bytes(explanation.rss_bytes_peak)
    );
    std::iter::once(figures).chain(not_contained(explanation)).collect()
}

/// The remedies that were tried, and the installs by each key that divides them.
pub fn tables(explanation: &LibraryExplanation) -> Vec<Table> {
    let remedies = (!explanation.tried.is_empty()).then(|| tried(explanation));
    let keys = explanation.by.lists().into_iter().filter_map(|(key, parts)| {
        // Only a fresh result has the callers; whole stacks do not fit.
        let parts = if key == "site" && !explanation.callers.is_empty() { &explanation.callers } else { parts };
        breakdown::says_something(parts).then(|| breakdown::table(key, parts, explanation.installs_total))
    });
    remedies.into_iter().chain(keys).collect()
}

/// What could not be recorded or tried.
pub fn skipped(explanation: &LibraryExplanation) -> Vec<String> {
    let skipped = explanation.skipped.iter();
    skipped.map(|one| format!("skipped  {}: {}", plain(&one.figure), plain(&one.reason))).collect()
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
