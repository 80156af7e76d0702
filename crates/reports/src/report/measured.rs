//! The sections of measured results: comparisons, trials, choices among allocators, explained replays, and times beside
//! predictions.

use serde::Deserialize;
use serde_json::Value;

use super::html::{paragraph, table};
use crate::error::{Context, Result};
use crate::{
    choice as choices, comparison as comparisons, library_explanation as explanations, promises,
    time_validation as validations, trial as trials,
};
use hksim_results::choice::ChoiceReport;
use hksim_results::explain_library::LibraryExplanation;
use hksim_results::replay::ComparisonReport;
use hksim_results::trial::TrialReport;
use hksim_results::validate::TimeValidation;

/// A trace on allocators: the verdict, the figures, and RSS over the events.
///
/// # Errors
/// The result is damaged.
pub fn comparison(result: &Value) -> Result<String> {
    let report = ComparisonReport::deserialize(result).context("not a result of `compare`")?;
    let over_time = comparisons::over_time(&report.rows).map(|over_time| table(&over_time)).unwrap_or_default();
    Ok(paragraphs(&comparisons::verdict(&report))
        + &table(&comparisons::figures(&report.rows))
        + &over_time
        + &paragraphs(&comparisons::missing(&report.rows)))
}

/// A program on allocators.
///
/// # Errors
/// The result is damaged.
pub fn trial(result: &Value) -> Result<String> {
    let report = TrialReport::deserialize(result).context("not a result of `trial`")?;
    Ok(of_trial(&report))
}

fn of_trial(report: &TrialReport) -> String {
    let promises = promises::table(&report.promises)
        .map(|promises| table(&promises) + &paragraphs(&promises::sentences(report)))
        .unwrap_or_default();
    paragraphs(&trials::verdict(report))
        + &table(&trials::figures(&report.trial.rows))
        + &promises
        + &paragraphs(&trials::missing(&report.trial.rows))
}

/// A choice among allocators. Its sentences are those of every advice.
///
/// # Errors
/// The result is damaged.
pub fn choice(result: &Value) -> Result<String> {
    let report = ChoiceReport::deserialize(result).context("not a result of `advise --on`")?;
    let held_out = choices::held_out(&report.choice).map(|held_out| table(&held_out)).unwrap_or_default();
    Ok(paragraphs(&choices::applied(&report.choice))
        + &table(&choices::figures(&report.choice))
        + &held_out
        + &paragraphs(&choices::missing(&report.choice.rows))
        + &report.trial.as_ref().map(of_trial).unwrap_or_default())
}

/// Times of designs, predicted and measured: the figures of each trace.
///
/// # Errors
/// The result is damaged.
pub fn times(result: &Value) -> Result<String> {
    let report = TimeValidation::deserialize(result).context("not a result of `validate --time`")?;
    let of_trace = |timed| {
        paragraphs(&validations::method(timed))
            + &table(&validations::figures(timed))
            + &paragraphs(&validations::notes(timed))
    };
    Ok(report.timed_traces.iter().map(of_trace).collect())
}

/// An explained replay on a library: what was replayed, and the installs by every key. Its causes are sentences, as those
/// of every explanation.
///
/// # Errors
/// The result is damaged.
pub fn explanation(result: &Value) -> Result<String> {
    let explanation = LibraryExplanation::deserialize(result).context("not a result of `explain --on`")?;
    let tables = explanations::tables(&explanation);
    Ok(paragraphs(&explanations::totals(&explanation))
        + &tables.iter().map(table).collect::<String>()
        + &paragraphs(&explanations::skipped(&explanation)))
}

fn paragraphs(lines: &[String]) -> String {
    lines.iter().map(|line| paragraph(line)).collect()
}
