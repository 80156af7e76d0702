//! A result as a section: its answer in words, its figures, and how to repeat them.

use anyhow::{Context, Result};
use serde_json::Value;

use super::html::{self, designs, escaped, figure, paragraph};
use super::kind::Kind;
use super::{Input, budget, memory, repeat};
use crate::chart::{Figure, Medium, Subject};
use crate::output::table::Table;
use crate::output::units;

/// The section of a result.
///
/// # Errors
/// The result is of a kind that a report does not show, or damaged.
pub fn section(input: &Input, subject: &Subject<'_>) -> Result<String> {
    let Input { name, result } = input;
    let kind = Kind::of(name, result)?;
    let mut text = format!("<section>\n<h2>{}: {}</h2>\n", kind.command(), escaped(name));
    text += &words(kind, result).into_iter().map(|line| paragraph(&line)).collect::<String>();
    text += &match kind {
        Kind::Validate => validation(result),
        Kind::Check => budget::body(result).with_context(|| name.clone())?,
        Kind::MemorySim => memory::sim(result).with_context(|| name.clone())?,
        Kind::MemorySweep => memory::sweep(&subject.panels),
        Kind::MemoryValidate => memory::validate(result).with_context(|| name.clone())?,
        Kind::Sweep | Kind::Sim | Kind::Explain | Kind::Advise => String::new(),
    };
    text += &figures(name, subject)?;
    if let Some(command) = repeat::command(kind, result) {
        text += &format!("<p class=\"repeat\">Repeat the result: <code>{}</code></p>\n", escaped(&command));
    }
    Ok(text + "</section>\n")
}

fn strings(value: &Value) -> impl Iterator<Item = String> + '_ {
    value.as_array().into_iter().flatten().filter_map(|line| line.as_str().map(str::to_string))
}

/// The answer in words.
fn words(kind: Kind, result: &Value) -> Vec<String> {
    match kind {
        Kind::Sweep => {
            let answers = &result["answers"];
            let combined = strings(&answers["combined"]["answer"]["text"]);
            let per_trace = answers["per_trace"].as_array().into_iter().flatten();
            match combined.collect::<Vec<_>>() {
                lines if lines.is_empty() => per_trace.flat_map(|answer| strings(&answer["text"])).collect(),
                lines => lines,
            }
        }
        Kind::Advise => strings(&result["text"]).collect(),
        Kind::Explain => {
            let causes = result["causes"].as_array().into_iter().flatten();
            let sentence = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_string();
            let of_cause = |cause| format!("{} {}", sentence(cause, "sentence"), sentence(cause, "remedy_sentence"));
            causes.map(of_cause).chain(strings(&result["against"]["sentences"])).collect()
        }
        Kind::Sim => vec![format!(
            "{} installs; peak RSS {}. The live set needs at least {} pages.",
            units::count(result["installs"]["total"].as_u64().unwrap_or(0)),
            units::bytes(result["rss_bytes_peak"].as_u64().unwrap_or(0)),
            units::count(result["floor_pages"].as_u64().unwrap_or(0))
        )],
        Kind::Validate => vec![format!(
            "Verdict: {}. Each row compares a prediction with a replay on this machine.",
            result["verdict"].as_str().unwrap_or("unknown")
        )],
        Kind::Check | Kind::MemorySim | Kind::MemorySweep | Kind::MemoryValidate => Vec::new(),
    }
}

/// Every figure that the result has data for.
fn figures(name: &str, subject: &Subject<'_>) -> Result<String> {
    let mut text = String::new();
    for drawn in Figure::ALL {
        let damaged = || format!("{name}: {}", drawn.title());
        let picture = |medium| drawn.sketch(subject, medium)?.map(|sketch| sketch.svg()).transpose();
        let Some(page) = picture(Medium::Page).with_context(damaged)? else { continue };
        let Some(phone) = picture(Medium::Phone).with_context(damaged)? else { continue };
        let command = format!("hksim plot {name} --figure {} -o {}.svg", drawn.word(), drawn.word());
        text += &figure(drawn.title(), [("wide", &page), ("narrow", &phone)], &command);
        if drawn == Figure::Designs {
            text += &designs(&page.hits);
        }
    }
    Ok(text)
}

/// The rows of a validation.
fn validation(result: &Value) -> String {
    let mut table = Table::new(
        ["trace", "huge", "installs", "measured", "RSS peak", "measured", "pages +/-", "class", "verdict"],
        &[0, 1, 7, 8],
    );
    let count = |value: &Value| value.as_u64().map_or("-".into(), units::count);
    let bytes = |value: &Value| value.as_u64().map_or("-".into(), units::bytes);
    let word = |value: &Value| value.as_str().unwrap_or("-").to_string();
    for row in result["rows"].as_array().into_iter().flatten() {
        let (predicted, measured, residual) = (&row["predicted"], &row["measured"], &row["residual"]);
        table.push([
            word(&row["trace_name"]),
            word(&row["policy"]["huge"]),
            count(&predicted["installs"]["total"]),
            count(&measured["installs"]["total"]),
            bytes(&predicted["rss_bytes_peak"]),
            bytes(&measured["rss_bytes_peak"]),
            format!("{}/{}", count(&residual["pages_only_predicted"]), count(&residual["pages_only_measured"])),
            word(&row["class"]),
            word(&row["verdict"]),
        ]);
    }
    html::table(&table)
}
