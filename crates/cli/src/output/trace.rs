//! Traces that commands write.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hksim_trace::error::TraceError;
use hksim_trace::header::Summary;
use serde::Serialize;

use super::file::{self, Staged, same_file};
use super::{Format, print, render, units};

/// Where a trace goes, and how the report about it looks.
#[derive(Clone, Debug, clap::Args)]
pub struct TraceOut {
    /// Trace to write
    #[arg(short, long, value_name = "FILE.hkt")]
    pub output: PathBuf,
    /// Form of the report on standard output
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

impl TraceOut {
    /// Makes sure that the trace can be written, before the work that makes it.
    ///
    /// # Errors
    /// The output is an input, or cannot be written.
    pub fn check(&self, inputs: &[&Path]) -> Result<()> {
        refuse_inputs(&self.output, inputs)?;
        file::check_trace(&self.output)
    }

    /// Lets `write` make the trace under a passing name, and gives it its own when it is whole. `inputs` are not replaced.
    ///
    /// # Errors
    /// Those of `write`; the output is an input, or cannot be written.
    pub fn write<T>(&self, inputs: &[&Path], write: impl FnOnce(&Path) -> Result<T, TraceError>) -> Result<T> {
        write_new(&self.output, inputs, write)
    }

    /// Prints what was done.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn tell<T: Serialize>(&self, report: &T, table: impl FnOnce() -> String) -> Result<()> {
        print(&render(self.format, report, &[report], table)?)
    }

    /// One line about the trace written.
    pub fn line(&self, summary: &Summary) -> String {
        format!("{}: {}\n", self.output.display(), totals(summary.events, summary.threads, summary.objects_peak))
    }
}

/// Lets `write` make a trace under a passing name, and gives it the name `output` when it is whole. `inputs` are not replaced.
///
/// # Errors
/// Those of `write`; the output is an input, or cannot be written.
pub fn write_new<T>(output: &Path, inputs: &[&Path], write: impl FnOnce(&Path) -> Result<T, TraceError>) -> Result<T> {
    refuse_inputs(output, inputs)?;
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

/// How large a trace is, in words.
pub fn totals(events: u64, threads: u32, objects_peak: u32) -> String {
    let [events, rest] = [units::of(events, "event"), rest_of_totals(threads, objects_peak)];
    format!("{events}, {rest}")
}

/// The same without its events.
pub fn rest_of_totals(threads: u32, objects_peak: u32) -> String {
    let [threads, objects] =
        [(threads, "thread"), (objects_peak, "object")].map(|(n, thing)| units::of(n.into(), thing));
    format!("{threads}, up to {objects} live at once")
}
