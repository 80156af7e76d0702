//! `hksim trace`: tools that edit and check traces, one file per tool.

mod anonymise;
mod cut;
mod merge;
mod scale;
mod shrink;
mod symbolise;
mod verify;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use hksim_trace::header::Summary;
use hksim_trace::hkt::TraceReader;
use serde::Serialize;

use crate::output::trace::TraceOut;
use crate::output::warn;
use hksim_results::Stamp;

/// A tool with its arguments.
#[derive(Debug, clap::Subcommand)]
pub enum Tool {
    /// Extract part of a trace: a time span, a range between marks, some threads
    Cut(cut::Args),
    /// Merge several traces into one, side by side
    Merge(merge::Args),
    /// Scale times, sizes, or the number of copies
    Scale(scale::Args),
    /// Remove names: command, paths, process ids, marks, functions
    Anonymise(anonymise::Args),
    /// Look up functions and lines of call sites and store them
    Symbolise(symbolise::Args),
    /// Find a smaller trace that keeps a property
    Shrink(shrink::Args),
    /// Check every byte of a trace, and repair a damaged one
    Verify(verify::Args),
}

impl Tool {
    /// Runs the tool. The exit code is 1 for a damaged trace.
    ///
    /// # Errors
    /// Bad usage or input.
    pub fn run(self) -> Result<ExitCode> {
        let done = |()| ExitCode::SUCCESS;
        match self {
            Tool::Cut(args) => cut::run(&args).map(done),
            Tool::Merge(args) => merge::run(&args).map(done),
            Tool::Scale(args) => scale::run(&args).map(done),
            Tool::Anonymise(args) => anonymise::run(&args).map(done),
            Tool::Symbolise(args) => symbolise::run(&args).map(done),
            Tool::Shrink(args) => shrink::run(&args).map(done),
            Tool::Verify(args) => verify::run(&args),
        }
    }
}

/// Opens a trace, and prints a note if its end is missing.
fn open(path: &Path) -> Result<TraceReader> {
    let reader = TraceReader::open(path)?;
    if let Some(tail) = reader.tail() {
        warn(&format!("{}: {tail}", path.display()));
    }
    Ok(reader)
}

/// The result of a tool.
#[derive(Debug, Serialize)]
struct ToolReport<T> {
    #[serde(flatten)]
    stamp: Stamp,
    tool: &'static str,
    file: String,
    #[serde(flatten)]
    summary: Summary,
    #[serde(flatten)]
    counts: T,
}

impl<T: Serialize> ToolReport<T> {
    fn print(tool: &'static str, out: &TraceOut, summary: Summary, counts: T, table: &str) -> Result<()> {
        let file = out.output.display().to_string();
        let report = ToolReport { stamp: Stamp::here(), tool, file, summary, counts };
        out.print_report(&report, || out.line(&summary) + table)
    }
}

/// One line for each count that is not 0.
fn count_lines<const N: usize>(counts: [(u64, &str); N]) -> String {
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, what)| format!("{:<14}{what}\n", crate::output::units::count(count))).collect()
}
