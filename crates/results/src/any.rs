//! A result of any command.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::advise::Advised;
use crate::check::CheckedBudget;
use crate::choice::ChoiceReport;
use crate::error::ResultError;
use crate::explain::Explanation;
use crate::explain_library::LibraryExplanation;
use crate::inspect::InspectResult;
use crate::kind::Kind;
use crate::replay::ComparisonReport;
use crate::sim::{MemorySimResult, MemorySweepResult, SimResult};
use crate::sweep::PricedSweep;
use crate::trial::TrialReport;
use crate::validate::{MemoryValidation, TimeValidation, Validation};

/// A result of any command.
#[derive(Clone, Debug)]
pub enum AnyResult {
    /// One design on a trace.
    Sim(Box<SimResult>),
    /// Many designs on traces.
    Sweep(Box<PricedSweep>),
    /// The causes of one design's installs.
    Explain(Box<Explanation>),
    /// The causes of the installs of a replay on a malloc library.
    ExplainLibrary(Box<LibraryExplanation>),
    /// Designs, predicted and measured.
    Validate(Box<Validation>),
    /// The choice of a design.
    Advise(Box<Advised>),
    /// Designs held to a budget.
    Check(Box<CheckedBudget>),
    /// A choice among allocators that exist.
    Choice(Box<ChoiceReport>),
    /// A trace replayed on allocators.
    Compare(Box<ComparisonReport>),
    /// A program run under allocators.
    Trial(Box<TrialReport>),
    /// A memory recording under one setting.
    MemorySim(Box<MemorySimResult>),
    /// A memory recording under many settings.
    MemorySweep(Box<MemorySweepResult>),
    /// A memory recording, predicted and measured.
    MemoryValidate(Box<MemoryValidation>),
    /// Times of designs, predicted and measured.
    TimeValidate(Box<TimeValidation>),
    /// What memory a running process has.
    Inspect(Box<InspectResult>),
}

impl AnyResult {
    /// Reads a result. `file` names it in messages.
    ///
    /// # Errors
    /// It is none of these, or damaged.
    pub fn of(file: &str, result: &Value) -> Result<AnyResult, ResultError> {
        fn parsed<T: DeserializeOwned>(file: &str, result: &Value) -> Result<T, ResultError> {
            let damaged = |source| ResultError::Part { place: file.to_string(), what: "result", source };
            T::deserialize(result).map_err(damaged)
        }
        Ok(match Kind::of(file, result)? {
            Kind::Sim => AnyResult::Sim(parsed(file, result)?),
            Kind::Sweep => AnyResult::Sweep(parsed(file, result)?),
            Kind::Explain => AnyResult::Explain(parsed(file, result)?),
            Kind::ExplainLibrary => AnyResult::ExplainLibrary(parsed(file, result)?),
            Kind::Validate => AnyResult::Validate(parsed(file, result)?),
            Kind::Advise => AnyResult::Advise(parsed(file, result)?),
            Kind::Check => AnyResult::Check(parsed(file, result)?),
            Kind::Choice => AnyResult::Choice(parsed(file, result)?),
            Kind::Compare => AnyResult::Compare(parsed(file, result)?),
            Kind::Trial => AnyResult::Trial(parsed(file, result)?),
            Kind::MemorySim => AnyResult::MemorySim(parsed(file, result)?),
            Kind::MemorySweep => AnyResult::MemorySweep(parsed(file, result)?),
            Kind::MemoryValidate => AnyResult::MemoryValidate(parsed(file, result)?),
            Kind::TimeValidate => AnyResult::TimeValidate(parsed(file, result)?),
            Kind::Inspect => AnyResult::Inspect(parsed(file, result)?),
        })
    }

    /// The result as JSON, as its command writes it; without the command that made it.
    ///
    /// # Errors
    /// A value has no JSON form.
    pub fn to_value(&self) -> serde_json::Result<Value> {
        match self {
            AnyResult::Sim(result) => serde_json::to_value(result),
            AnyResult::Sweep(result) => serde_json::to_value(result),
            AnyResult::Explain(result) => serde_json::to_value(result),
            AnyResult::ExplainLibrary(result) => serde_json::to_value(result),
            AnyResult::Validate(result) => serde_json::to_value(result),
            AnyResult::Advise(result) => serde_json::to_value(result),
            AnyResult::Check(result) => serde_json::to_value(result),
            AnyResult::Choice(result) => serde_json::to_value(result),
            AnyResult::Compare(result) => serde_json::to_value(result),
            AnyResult::Trial(result) => serde_json::to_value(result),
            AnyResult::MemorySim(result) => serde_json::to_value(result),
            AnyResult::MemorySweep(result) => serde_json::to_value(result),
            AnyResult::MemoryValidate(result) => serde_json::to_value(result),
            AnyResult::TimeValidate(result) => serde_json::to_value(result),
            AnyResult::Inspect(result) => serde_json::to_value(result),
        }
    }
}
