//! Exports traces to formats of other programs.
//!
//! All formats are streamed. Events that a format cannot represent are left out or written as the nearest equivalent,
//! and counted.

mod addresses;
mod android;
mod csv;
#[cfg(feature = "parquet")]
mod parquet;
mod rep;

use crate::error::TraceError;
use crate::source::EventSource;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

/// A format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Android's `record_allocs` text.
    Android,
    /// One line per event with all fields; can be imported without loss.
    Csv,
    /// Apache Parquet with the columns of the CSV format.
    #[cfg(feature = "parquet")]
    Parquet,
    /// The `.rep` text of university allocator assignments (malloc lab).
    Rep,
}

impl Kind {
    /// All formats.
    pub const ALL: &[Kind] = &[
        Kind::Android,
        Kind::Csv,
        #[cfg(feature = "parquet")]
        Kind::Parquet,
        Kind::Rep,
    ];

    /// Whether the format is binary.
    pub fn is_binary(self) -> bool {
        #[cfg(feature = "parquet")]
        return self == Kind::Parquet;
        #[cfg(not(feature = "parquet"))]
        false
    }

    /// The name, as in `hksim export --to`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Android => "android",
            Kind::Csv => "csv",
            #[cfg(feature = "parquet")]
            Kind::Parquet => "parquet",
            Kind::Rep => "rep",
        }
    }
}

/// The result of an export.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExportReport {
    /// The format.
    pub format: Kind,
    /// Events of the trace.
    pub events: u64,
    /// Number of lines or rows written.
    pub rows: u64,
    /// What the format cannot represent, with the number of events affected. Empty if the export is lossless.
    pub losses: BTreeMap<&'static str, u64>,
}

/// Rewinds a source and writes all its events to `out`; `name` is the output's name in errors.
///
/// # Errors
/// The trace cannot be read, or the output cannot be written. The output is then incomplete.
pub fn export(
    source: &mut dyn EventSource,
    kind: Kind,
    name: &Path,
    out: &mut (dyn Write + Send),
) -> Result<ExportReport, TraceError> {
    source.rewind()?;
    let mut to = Target { name, out, losses: BTreeMap::new(), rows: 0 };
    let events = source.summary().events;
    match kind {
        Kind::Android => android::write(source, &mut to)?,
        Kind::Csv => csv::write(source, &mut to)?,
        #[cfg(feature = "parquet")]
        Kind::Parquet => parquet::write(source, &mut to)?,
        Kind::Rep => rep::write(source, &mut to)?,
    }
    to.out.flush().map_err(|why| to.error(why))?;
    Ok(ExportReport { format: kind, events, rows: to.rows, losses: to.losses })
}

/// The output of an export, and the losses so far.
struct Target<'a> {
    name: &'a Path,
    out: &'a mut (dyn Write + Send),
    losses: BTreeMap<&'static str, u64>,
    rows: u64,
}

impl Target<'_> {
    /// Writes a line and its end.
    fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), TraceError> {
        self.rows += 1;
        writeln!(self.out, "{line}").map_err(|why| self.error(why))
    }

    /// Counts an event that is not written in full.
    fn lose(&mut self, what: &'static str) {
        *self.losses.entry(what).or_default() += 1;
    }

    fn error(&self, why: io::Error) -> TraceError {
        TraceError::io(self.name, "write", why)
    }
}
