//! Installs by the values of a key, as a table.

use hksim_results::explain::{Part, START};
use hksim_text::plain;
use hksim_text::table::Table;
use hksim_text::units::{count, percent};

/// Number of rows of each breakdown; JSON and CSV have all.
pub(crate) const ROWS_MAX: usize = 8;
/// Characters of a name.
const NAME_MAX: usize = 60;

/// Whether a breakdown divides the installs of the trace itself.
pub fn says_something(parts: &[Part]) -> bool {
    parts.iter().filter(|part| part.installs > 0 && part.name != START).count() > 1
}

/// The largest entries; those of time in their order.
pub fn table(key: &str, parts: &[Part], total: u64) -> Table {
    let mut shown: Vec<&Part> = parts.iter().collect();
    let is_time = key == "time";
    if !is_time {
        shown.sort_by_key(|part| std::cmp::Reverse(part.installs));
    }
    let rest = if is_time { Vec::new() } else { shown.split_off(shown.len().min(ROWS_MAX)) };
    let by = format!("by {}", key.replace('_', " "));
    let has_time = parts.iter().any(|part| part.kernel_ns_per_call.is_some());
    let head = [by.as_str(), "installs", "share"].into_iter().chain(has_time.then_some("kernel ns/call"));
    let mut table = Table::new(head, &[0]);
    let mut push = |name: String, parts: &[&Part]| {
        let installs = parts.iter().map(|part| part.installs).sum();
        let ns: f64 = parts.iter().filter_map(|part| part.kernel_ns_per_call).sum();
        let time = has_time.then(|| format!("{ns:.2}"));
        table.push([name, count(installs), percent(installs, total)].into_iter().chain(time));
    };
    for part in shown {
        // Words of results have underscores; names of the program stay as they are.
        let name = if key == "reason" { part.name.replace('_', " ") } else { shortened(&part.name) };
        push(name, &[part]);
    }
    if !rest.is_empty() {
        push(format!("{} more", count(rest.len() as u64)), &rest);
    }
    table
}

/// A name without control characters and, in the middle, without what is too long.
pub(crate) fn shortened(name: &str) -> String {
    let name = plain(name);
    let characters: Vec<char> = name.chars().collect();
    let Some(rest) = characters.len().checked_sub(NAME_MAX).filter(|&rest| rest > 0) else { return name.into_owned() };
    let (before, after) = (NAME_MAX / 2, NAME_MAX / 2 + rest + 3);
    characters[..before].iter().chain(&['.'; 3]).chain(&characters[after..]).collect()
}
