//! The conversion alone, for benches.

use std::path::Path;
use std::sync::Arc;

use crate::clock::{ClockPair, TickRate};
use crate::convert::{How, ImageEnd, convert};
use crate::error::RecordError;
use crate::spool_reader::SpoolReader;
use crate::touch_full::Merging;

/// Converts one spool, whose ticks are taken for nanoseconds, and leaves it as it is; how many events it held.
///
/// # Errors
/// The spool cannot be read or the trace not be written.
pub fn convert_spool(spool: &Path, output: &Path) -> Result<u64, RecordError> {
    let bad = |why: &str| RecordError::BadSession { path: spool.to_path_buf(), why: why.to_string() };
    let spool_reader = SpoolReader::open(spool, false)?.ok_or_else(|| bad("it is no spool"))?;
    let (start, end) = (ClockPair { ticks: 0, ns: 0 }, ClockPair { ticks: 1, ns: 1 });
    let rate = TickRate::between(start, end).ok_or_else(|| bad("no rate"))?;
    let how = How { rate, merging: Merging::default(), clock_events: 1 };
    let partial = output.with_extension("partial");
    Ok(convert(&Arc::new(spool_reader), how, ImageEnd::Process, &[], &partial, output)?.summary.events)
}
