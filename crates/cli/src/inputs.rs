//! Trace files that commands open, with notes about them.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hksim_explore::inputs::Trace;
use hksim_explore::origin::origin_text;

use crate::output::{detail, units, warn};

/// A trace in a file, because replays read files.
pub struct Replayable {
    /// The trace.
    pub trace: Trace,
    /// The file.
    pub path: PathBuf,
    /// Its name in results.
    pub label: String,
}

/// Opens a trace file. Prints a note if it is truncated, or if its recorder lost events.
///
/// # Errors
/// The file cannot be read as a trace.
pub fn file(path: &Path) -> Result<Trace> {
    let trace = Trace::file(path)?;
    let events = units::count(trace.summary.events);
    if trace.events_lost > 0 {
        warn(&format!("{}: the recorder lost {}", path.display(), units::of(trace.events_lost, "event")));
    }
    if let Some(tail) = &trace.tail {
        warn(&format!("{}: {tail}; continuing with the {} events before it", path.display(), trace.summary.events));
    }
    detail(&format!("reading {}: {events} events; {}", path.display(), origin_text(&trace.header.origin)));
    Ok(trace)
}

/// Opens trace files. Prints a note for each file that is given twice.
///
/// # Errors
/// As for [`file()`].
pub fn files(paths: &[PathBuf]) -> Result<Vec<Trace>> {
    for (index, path) in paths.iter().enumerate() {
        if paths[..index].contains(path) {
            warn(&format!("{}: given twice, so it counts twice", path.display()));
        }
    }
    paths.iter().map(|path| file(path)).collect()
}
