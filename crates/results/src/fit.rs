//! The result of `explain --fit`, and its inputs.

use std::path::{Path, PathBuf};

use hksim_explore::fit::{COUNTS_MIN, Demand, Fit};
use hksim_explore::inputs::Trace;
use hksim_policy::Policy;
use hksim_policy::classes::{Classes, STRIDE_MAX};
use hksim_policy::vocabulary::Header;
use hksim_trace::error::TraceError;
use hksim_trace::event::Op;
use hksim_trace::hkt::TraceReader;
use hksim_trace::named_file;
use hksim_trace::source::EventSource;
use serde::{Deserialize, Serialize};

use crate::error::ResultError;
use crate::stamp::Stamp;

/// A count of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Count {
    /// The trace.
    pub trace: String,
    /// The count measured elsewhere.
    pub count: u64,
    /// Installs of the given design on the trace.
    pub installs_predicted: u64,
}

/// Which hypotheses explain counts measured elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fitted {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The design that is simulated.
    pub policy: Policy,
    /// The counts.
    pub counts: Vec<Count>,
    /// The hypotheses.
    #[serde(flatten)]
    pub fit: Fit,
}

/// Reads lines of `TRACE,COUNT`. Paths are relative to the file. A head is skipped.
///
/// # Errors
/// The file cannot be read, or has too few counts.
pub fn read(file: &Path) -> Result<Vec<(PathBuf, u64)>, ResultError> {
    let name = file.display();
    let text = named_file::read_text(file)
        .map_err(|why| ResultError::file_by(format!("{name}: cannot read the counts"), why))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut counts = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = || ResultError::file(format!("{name}: line {}: expected TRACE.hkt,COUNT", index + 1));
        let (trace, count) = line.rsplit_once(',').ok_or_else(wrong)?;
        match unquoted(count).parse() {
            Ok(count) => counts.push((folder.join(unquoted(trace)), count)),
            Err(_) if index == 0 => {}
            Err(_) => return Err(wrong()),
        }
    }
    if counts.len() < COUNTS_MIN {
        return Err(ResultError::file(format!(
            "{name}: {} counts; two parameters fit anything below {COUNTS_MIN}, so give more traces",
            counts.len()
        )));
    }
    Ok(counts)
}

/// A CSV field without its quotes.
fn unquoted(field: &str) -> String {
    let field = field.trim();
    let inner = field.strip_prefix('"').and_then(|field| field.strip_suffix('"'));
    inner.map_or_else(|| field.to_string(), |inner| inner.replace("\"\"", "\""))
}

/// Refuses a file that gives several counts for one trace: no hypothesis explains a difference between them.
///
/// # Errors
/// It does.
pub fn refuse_repeated(file: &Path, traces: &[Trace]) -> Result<(), ResultError> {
    for (number, trace) in traces.iter().enumerate() {
        let checksum = trace.label().checksum;
        let same = |earlier: &&Trace| checksum.is_some() && earlier.label().checksum == checksum;
        if let Some(earlier) = traces[..number].iter().find(same) {
            return Err(ResultError::file(format!(
                "{}: {} is the same trace as {}; give one count for each trace, such as the median of several runs",
                file.display(),
                trace.name(),
                earlier.name()
            )));
        }
    }
    Ok(())
}

/// What a trace demands of an allocator with these size classes.
///
/// # Errors
/// The trace cannot be read.
pub fn demand(path: &Path, classes: &Classes, policy: &Policy) -> Result<Demand, TraceError> {
    let header_bytes = if policy.header == Header::None { 0 } else { policy.header_bytes };
    let class_bytes = |size: u64| {
        let bytes = u32::try_from(size).ok()?.checked_add(header_bytes).filter(|&bytes| bytes <= STRIDE_MAX)?;
        Some(u64::from(classes.stride(classes.class_of(bytes))))
    };
    let mut source = TraceReader::open(path)?;
    let mut demand = Demand::default();
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            match event.op {
                Op::Alloc { size, .. } | Op::ReallocUnknown { size, .. } | Op::Realloc { size, .. } => {
                    demand.allocate(size, class_bytes(size));
                }
                Op::Free { .. } | Op::ReallocFree { .. } => demand.frees += 1,
                _ => {}
            }
        }
    }
    Ok(demand)
}
