//! Traces that commands write.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hksim_trace::error::TraceError;
use hksim_trace::header::Summary;
use serde::Serialize;

use super::file::{self, Staged, WriteError, same_file};
use super::{Format, print, render, units};

/// The destination of a trace, and the format of the report about it.
#[derive(Clone, Debug, clap::Args)]
pub struct TraceOut {
    /// Write the trace to this file
    #[arg(short, long, value_name = "FILE.hkt")]
    pub output: PathBuf,
    /// Print the report on standard output in this format
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

impl TraceOut {
    /// Checks that the trace can be written, before the work starts.
    ///
    /// # Errors
    /// The output is an input, or cannot be written.
    pub fn check(&self, inputs: &[&Path]) -> Result<()> {
        refuse_inputs(&self.output, inputs)?;
        file::check_trace(&self.output)
    }

    /// Calls `write` with a temporary path, and renames the file when it is complete. The trace never replaces one of
    /// the `inputs`.
    ///
    /// # Errors
    /// Those of `write`; the output is an input, or cannot be written.
    pub fn write<T, E: WriteError>(&self, inputs: &[&Path], write: impl FnOnce(&Path) -> Result<T, E>) -> Result<T> {
        write_new(&self.output, inputs, write)
    }

    /// Prints the report.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print_report<T: Serialize>(&self, report: &T, table: impl FnOnce() -> String) -> Result<()> {
        print(&render(self.format, report, &[report], table)?)
    }

    /// One line about the written trace.
    pub fn line(&self, summary: &Summary) -> String {
        format!("{}: {}\n", self.output.display(), totals(summary.events, summary.threads, summary.objects_peak))
    }
}

/// Calls `write` with a temporary path, and renames the file to `output` when it is complete. The trace never replaces
/// one of the `inputs`.
///
/// # Errors
/// Those of `write`; the output is an input, or cannot be written.
pub fn write_new<T, E: WriteError>(
    output: &Path,
    inputs: &[&Path],
    write: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<T> {
    refuse_inputs(output, inputs)?;
    file::refuse_other(output)?;
    let staged = Staged::new(output)?;
    let written = write(staged.path()).map_err(|why| staged.rename_error(why))?;
    staged.keep()?;
    Ok(written)
}

fn refuse_inputs(output: &Path, inputs: &[&Path]) -> Result<(), TraceError> {
    if let Some(input) = inputs.iter().copied().find(|input| same_file(input, output)) {
        return Err(TraceError::SameFile { path: input.to_path_buf() });
    }
    Ok(())
}

/// The size of a trace, as text.
pub fn totals(events: u64, threads: u32, objects_peak: u32) -> String {
    let [events, rest] = [units::of(events, "event"), rest_of_totals(threads, objects_peak)];
    format!("{events}, {rest}")
}

/// The size of a trace without its events, as text.
pub fn rest_of_totals(threads: u32, objects_peak: u32) -> String {
    let [threads, objects] =
        [(threads, "thread"), (objects_peak, "object")].map(|(n, thing)| units::of(n.into(), thing));
    format!("{threads}, up to {objects} live at once")
}
