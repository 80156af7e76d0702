//! A result as a section: its answer in words, its figures, and how to repeat them.

use crate::error::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::html::{self, designs, escaped, figure, paragraph};
use super::{Input, about, budget, inspect, measured, memory};
use crate::chart::{Figure, Medium, Subject};
use crate::memory_limit;
use hksim_explore::flags::row::Inputs;
use hksim_explore::flags::{RunConfig, varied};
use hksim_linux_mm::MemoryLimit;
use hksim_results::Kind;
use hksim_results::predictions::is_of_replays;
use hksim_text::shell::line;
use hksim_text::table::Table;
use hksim_text::units;

/// The section of a result.
///
/// # Errors
/// The result is of a kind that a report does not show, or damaged.
pub fn section(input: &Input, subject: &Subject<'_>) -> Result<String> {
    let Input { name, result, .. } = input;
    let kind = Kind::of(name, result)?;
    let mut text = format!("<section>\n<h2>{}: {}</h2>\n", kind.command(), escaped(name));
    let about = about::line(result, input.written);
    if !about.is_empty() {
        text += &format!("<p class=\"about\">{}</p>\n", escaped(&about));
    }
    text += &words(kind, result).into_iter().map(|line| paragraph(&line)).collect::<String>();
    text += &match kind {
        Kind::Validate => validation(result),
        Kind::Check => budget::body(result).with_context(|| name.clone())?,
        Kind::Compare => measured::comparison(result).with_context(|| name.clone())?,
        Kind::Trial => measured::trial(result).with_context(|| name.clone())?,
        Kind::Choice => measured::choice(result).with_context(|| name.clone())?,
        Kind::ExplainLibrary => measured::explanation(result).with_context(|| name.clone())?,
        Kind::MemorySim => memory::sim(result).with_context(|| name.clone())?,
        Kind::MemorySweep => memory::sweep(result, &subject.panels).with_context(|| name.clone())?,
        Kind::MemoryValidate => memory::validate(result).with_context(|| name.clone())?,
        Kind::TimeValidate => measured::times(result).with_context(|| name.clone())?,
        Kind::Inspect => inspect::body(result).with_context(|| name.clone())?,
        Kind::Sweep | Kind::Sim | Kind::Explain | Kind::Advise => String::new(),
    };
    text += &figures(name, subject)?;
    let is_measured =
        matches!(kind, Kind::Compare | Kind::Trial | Kind::Choice | Kind::ExplainLibrary | Kind::TimeValidate)
            || is_of_replays(result);
    let again = match &input.command {
        _ if kind == Kind::Inspect => "Read from a running process, which cannot be repeated.".to_string(),
        _ if is_measured => "Measured: another machine, and another run, has its own figures.".to_string(),
        Some(command) => format!("Repeat the result: <code>{}</code>", escaped(command)),
        None => "This result does not state the arguments that made it; make it again with this hksim.".to_string(),
    };
    Ok(text + &format!("<p class=\"repeat\">{again}</p>\n</section>\n"))
}

fn strings(value: &Value) -> impl Iterator<Item = String> + '_ {
    value.as_array().into_iter().flatten().filter_map(|line| line.as_str().map(str::to_string))
}

/// The answer in words.
fn words(kind: Kind, result: &Value) -> Vec<String> {
    match kind {
        Kind::Sweep => {
            let answers = &result["answers"];
            let killed = killed(rows(result));
            let combined = strings(&answers["combined"]["answer"]["text"]);
            let per_trace = answers["per_trace"].as_array().into_iter().flatten();
            let lines = match combined.collect::<Vec<_>>() {
                lines if lines.is_empty() => {
                    let lines: Vec<String> = per_trace.flat_map(|answer| strings(&answer["text"])).collect();
                    if lines.is_empty() { rows(result).iter().map(of_design).collect() } else { lines }
                }
                lines => lines,
            };
            lines.into_iter().chain(killed).collect()
        }
        Kind::Advise | Kind::Choice => strings(&result["text"]).collect(),
        Kind::Explain | Kind::ExplainLibrary => {
            let causes = result["causes"].as_array().into_iter().flatten();
            let sentence = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_string();
            let of_cause = |cause| format!("{} {}", sentence(cause, "sentence"), sentence(cause, "remedy_sentence"));
            causes.map(of_cause).chain(strings(&result["against"]["sentences"])).collect()
        }
        Kind::Sim => [of_design(result)].into_iter().chain(limits(std::slice::from_ref(result))).collect(),
        Kind::Validate => vec![format!(
            "Verdict: {}. Each row compares a prediction with a replay on this machine.",
            result["verdict"].as_str().unwrap_or("unknown")
        )],
        Kind::Check
        | Kind::Compare
        | Kind::Trial
        | Kind::MemorySim
        | Kind::MemorySweep
        | Kind::MemoryValidate
        | Kind::TimeValidate
        | Kind::Inspect => Vec::new(),
    }
}

fn rows(result: &Value) -> &[Value] {
    result["rows"].as_array().map_or(&[], Vec::as_slice)
}

/// The memory limit of each row; `None` for rows without one.
fn memory_limits(rows: &[Value]) -> Vec<Option<MemoryLimit>> {
    rows.iter().map(|row| MemoryLimit::deserialize(row.get("memory_limit")?).ok()).collect()
}

/// Whether the program survives its limits.
fn limits(rows: &[Value]) -> Vec<String> {
    memory_limits(rows).iter().flatten().flat_map(memory_limit::lines).collect()
}

/// How many rows are killed.
fn killed(rows: &[Value]) -> Option<String> {
    memory_limit::killed(memory_limits(rows).iter().map(Option::as_ref))
}

/// The figures of one design.
fn of_design(row: &Value) -> String {
    let trace = row["trace"]["file"].as_str().map(|file| format!("{file}: ")).unwrap_or_default();
    format!(
        "{trace}{} installs; peak RSS {}. The live set needs at least {} pages.",
        units::count(row["installs"]["total"].as_u64().unwrap_or(0)),
        units::bytes(row["rss_bytes_peak"].as_u64().unwrap_or(0)),
        units::count(row["floor_pages"].as_u64().unwrap_or(0))
    )
}

/// Every figure that the result has data for.
fn figures(name: &str, subject: &Subject<'_>) -> Result<String> {
    let mut text = String::new();
    for drawn in Figure::ALL {
        let damaged = || format!("{name}: {}", drawn.title());
        let picture = |medium| drawn.sketch(subject, medium)?.map(|sketch| sketch.svg()).transpose();
        let Some(page) = picture(Medium::Page).with_context(damaged)? else { continue };
        let Some(phone) = picture(Medium::Phone).with_context(damaged)? else { continue };
        let picture = format!("{}.svg", drawn.word());
        let command = line(["hksim", "plot", name, "--figure", drawn.word(), "-o", &picture]);
        text += &figure(drawn.title(), [("wide", &page), ("narrow", &phone)], &command);
        if drawn == Figure::Designs {
            text += &designs(&page.hits);
        }
    }
    Ok(text)
}

/// The rows of a validation, with the flags in which they differ.
fn validation(result: &Value) -> String {
    let config = |row: &Value| Inputs::deserialize(&row["predicted"]).ok()?.config();
    let configs: Vec<RunConfig> = rows(result).iter().filter_map(config).collect();
    let flags = if configs.len() == rows(result).len() { varied(&configs) } else { Vec::new() };
    let figures = ["installs", "measured", "RSS peak", "measured", "pages +/-", "class", "verdict"];
    let words: Vec<usize> = (0..=flags.len()).chain([flags.len() + 6, flags.len() + 7]).collect();
    let mut table = Table::new(std::iter::once("trace").chain(flags.iter().copied()).chain(figures), &words);
    let count = |value: &Value| value.as_u64().map_or("-".into(), units::count);
    let bytes = |value: &Value| value.as_u64().map_or("-".into(), units::bytes);
    let word = |value: &Value| value.as_str().unwrap_or("-").to_string();
    for (number, row) in rows(result).iter().enumerate() {
        let (predicted, measured, residual) = (&row["predicted"], &row["measured"], &row["residual"]);
        let values = flags.iter().map(|flag| configs[number].word(flag));
        let figures = [
            count(&predicted["installs"]["total"]),
            count(&measured["installs"]["total"]),
            bytes(&predicted["rss_bytes_peak"]),
            bytes(&measured["rss_bytes_peak"]),
            format!("{}/{}", count(&residual["pages_only_predicted"]), count(&residual["pages_only_measured"])),
            word(&row["class"]),
            word(&row["verdict"]),
        ];
        table.push(std::iter::once(word(&row["trace_name"])).chain(values).chain(figures));
    }
    html::table(&table)
}
