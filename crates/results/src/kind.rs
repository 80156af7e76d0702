//! What a result is: the command that wrote it.

use serde_json::Value;

use crate::error::ResultError;

/// The kind of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Many designs on traces.
    Sweep,
    /// One design on a trace.
    Sim,
    /// The causes of one design's installs.
    Explain,
    /// The causes of the installs of a replay on a malloc library.
    ExplainLibrary,
    /// Designs, predicted and measured.
    Validate,
    /// The choice of a design.
    Advise,
    /// Designs held to a budget.
    Check,
    /// A choice among allocators that exist.
    Choice,
    /// A trace replayed on allocators.
    Compare,
    /// A program run under allocators.
    Trial,
    /// A memory recording under many settings.
    MemorySweep,
    /// A memory recording under one setting.
    MemorySim,
    /// A memory recording, predicted and measured.
    MemoryValidate,
    /// Times of designs, predicted and measured.
    TimeValidate,
    /// What memory a running process has.
    Inspect,
}

impl Kind {
    /// Recognises a result by its fields.
    ///
    /// # Errors
    /// The result is none of these.
    pub fn of(name: &str, result: &Value) -> Result<Kind, ResultError> {
        let has = |field: &str| result.get(field).is_some();
        let row_has = |field: &str| result["rows"].get(0).is_some_and(|row| row.get(field).is_some());
        Ok(if has("choice") && has("stages") {
            Kind::Choice
        } else if has("counted_runs") && has("timing") {
            Kind::Compare
        } else if has("program") && has("runs_per_round") {
            Kind::Trial
        } else if has("timed_traces") {
            Kind::TimeValidate
        } else if has("verdict") && has("rows") {
            if row_has("setting") { Kind::MemoryValidate } else { Kind::Validate }
        } else if has("is_within") && has("rows") {
            Kind::Check
        } else if has("rows") && has("pareto") {
            if row_has("recording") { Kind::MemorySweep } else { Kind::Sweep }
        } else if has("by") && has("causes") && has("allocator") {
            Kind::ExplainLibrary
        } else if has("by") && has("causes") {
            Kind::Explain
        } else if has("winner") && has("front") {
            Kind::Advise
        } else if has("installs") && has("timeline") {
            if has("recording") { Kind::MemorySim } else { Kind::Sim }
        } else if has("regions") && has("remedies") && has("map") {
            Kind::Inspect
        } else if has("counts") && has("hypotheses") {
            return Err(ResultError::Fit(name.to_string()));
        } else {
            return Err(ResultError::Kind(name.to_string()));
        })
    }

    /// The command that writes it.
    pub fn command(self) -> &'static str {
        match self {
            Kind::Sweep | Kind::MemorySweep => "sweep",
            Kind::Sim | Kind::MemorySim => "sim",
            Kind::Explain | Kind::ExplainLibrary => "explain",
            Kind::Validate | Kind::MemoryValidate | Kind::TimeValidate => "validate",
            Kind::Advise | Kind::Choice => "advise",
            Kind::Compare => "compare",
            Kind::Trial => "trial",
            Kind::Check => "check",
            Kind::Inspect => "inspect",
        }
    }
}
