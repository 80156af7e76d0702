//! A result as a section: its answer in words, its figures, and how to repeat them.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::html::{designs, escaped, figure, paragraph, table};
use super::{Input, repeat};
use crate::chart::{Figure, Hit, Subject};
use crate::output::units;

/// The kind of a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sweep,
    Sim,
    Explain,
    Validate,
    Advise,
}

impl Kind {
    /// Recognises a result by its fields.
    fn of(result: &Value) -> Option<Kind> {
        let has = |name: &str| result.get(name).is_some();
        Some(if has("verdict") && has("rows") {
            Kind::Validate
        } else if has("rows") && has("pareto") {
            Kind::Sweep
        } else if has("by") && has("causes") {
            Kind::Explain
        } else if has("winner") && has("front") {
            Kind::Advise
        } else if has("installs") && has("timeline") {
            Kind::Sim
        } else {
            return None;
        })
    }

    fn command(self) -> &'static str {
        match self {
            Kind::Sweep => "sweep",
            Kind::Sim => "sim",
            Kind::Explain => "explain",
            Kind::Validate => "validate",
            Kind::Advise => "advise",
        }
    }
}

/// Whether a result has figures. Validations have tables only.
pub fn has_figures(result: &Value) -> bool {
    Kind::of(result).is_some_and(|kind| kind != Kind::Validate)
}

/// The section of a result.
///
/// # Errors
/// The result is of another kind, or damaged.
pub fn section(input: &Input, subject: &Subject<'_>) -> Result<String> {
    let Input { name, result } = input;
    let Some(kind) = Kind::of(result) else {
        bail!("{name}: not a JSON result of sweep, sim, explain, validate or advise");
    };
    let mut text = format!("<section>\n<h2>{}: {}</h2>\n", kind.command(), escaped(name));
    text += &words(kind, result).into_iter().map(|line| paragraph(&line)).collect::<String>();
    text += &match kind {
        Kind::Validate => validation(result),
        Kind::Sweep | Kind::Sim | Kind::Explain | Kind::Advise => figures(name, subject)?,
    };
    let rows: Vec<&Value> = match kind {
        Kind::Sweep => result["rows"].as_array().map(|rows| rows.iter().collect()).unwrap_or_default(),
        Kind::Validate => {
            result["rows"].as_array().map(|rows| rows.iter().map(|row| &row["predicted"]).collect()).unwrap_or_default()
        }
        Kind::Sim | Kind::Explain => vec![result],
        Kind::Advise => Vec::new(),
    };
    if let Some(command) =
        Some(&rows).filter(|rows| !rows.is_empty()).and_then(|rows| repeat::command(kind.command(), rows))
    {
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
    }
}

/// Every figure that the result has data for.
fn figures(name: &str, subject: &Subject<'_>) -> Result<String> {
    let mut text = String::new();
    for drawn in Figure::ALL {
        let damaged = || format!("{name}: {}", drawn.title());
        let Some(sketch) = drawn.sketch(subject).with_context(damaged)? else { continue };
        let picture = sketch.svg().with_context(damaged)?;
        let command = format!("hksim plot {name} --figure {} -o {}.svg", drawn.word(), drawn.word());
        let hits: &[Hit] = &picture.hits;
        text += &figure(drawn.title(), &picture, &command);
        text += &designs(hits);
    }
    Ok(text)
}

/// The rows of a validation.
fn validation(result: &Value) -> String {
    let head = ["trace", "huge", "installs", "measured", "RSS peak", "measured", "pages +/-", "class", "verdict"];
    let count = |value: &Value| value.as_u64().map_or("-".into(), units::count);
    let bytes = |value: &Value| value.as_u64().map_or("-".into(), units::bytes);
    let word = |value: &Value| value.as_str().unwrap_or("-").to_string();
    let row = |row: &Value| {
        let (predicted, measured, residual) = (&row["predicted"], &row["measured"], &row["residual"]);
        vec![
            word(&row["trace_name"]),
            word(&row["policy"]["huge"]),
            count(&predicted["installs"]["total"]),
            count(&measured["installs"]["total"]),
            bytes(&predicted["rss_bytes_peak"]),
            bytes(&measured["rss_bytes_peak"]),
            format!("{}/{}", count(&residual["pages_only_predicted"]), count(&residual["pages_only_measured"])),
            word(&row["class"]),
            word(&row["verdict"]),
        ]
    };
    let rows: Vec<Vec<String>> = result["rows"].as_array().into_iter().flatten().map(row).collect();
    table(&head, &rows)
}
