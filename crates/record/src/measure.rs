//! The conversion of a log by itself, for benchmarks.

use std::path::Path;
use std::sync::Arc;

use crate::clock::{ClockPair, TickRate};
use crate::convert::{ConversionConfig, ImageEnd, convert};
use crate::error::RecordError;
use crate::log_reader::LogReader;
use crate::missing::Missing;
use crate::touch_full::Merging;

/// Converts one log without changing it, as if its ticks were nanoseconds. Returns the number of events.
///
/// # Errors
/// The log cannot be read, or the trace cannot be written.
pub fn convert_log(log: &Path, output: &Path) -> Result<u64, RecordError> {
    let bad = |why: &str| RecordError::BadSession { path: log.to_path_buf(), why: why.to_string() };
    let log_reader = LogReader::open(log, false)?.ok_or_else(|| bad("it is not a log"))?;
    let (start, end) = (ClockPair { ticks: 0, ns: 0 }, ClockPair { ticks: 1, ns: 1 });
    let rate = TickRate::between(start, end).ok_or_else(|| bad("no rate"))?;
    let how = ConversionConfig { rate, merging: Merging::default(), clock_events: 1, missing: Missing::default() };
    let partial = output.with_extension("partial");
    Ok(convert(&Arc::new(log_reader), how, ImageEnd::Process, &[], &partial, output)?.summary.events)
}
