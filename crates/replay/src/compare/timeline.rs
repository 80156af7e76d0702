//! Residency of allocators over the events of a trace, beside its live bytes.

use std::path::Path;

use hksim_trace::event::Op;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use serde::{Deserialize, Serialize};

use super::Spread;
use crate::{ReplayError, Replayed};

/// Memory after some events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Events done.
    pub event: u64,
    /// The mark of the program after which this is; absent at other events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// Requested bytes of live objects.
    pub live_bytes: u64,
    /// Resident bytes, the median of the runs, counted as those of [`Figures`](super::Figures).
    pub rss_bytes: Option<u64>,
}

/// The program's memory after some events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Events done.
    pub event: u64,
    /// The mark of the program after which this is.
    pub mark: Option<String>,
    /// Requested bytes of live objects.
    pub bytes: u64,
}

/// The samples of an allocator at the marks of its runs.
pub(super) fn timeline(runs: &[Replayed], live: &[Live]) -> Vec<Sample> {
    let rss_bytes = |mark: usize| {
        let bytes = runs.iter().map(|run| run.marks.get(mark).and_then(|mark| mark.rss_bytes));
        Spread::of(bytes).map(|spread| spread.median)
    };
    let sample = |(at, live): (usize, &Live)| Sample {
        event: live.event,
        mark: live.mark.clone(),
        live_bytes: live.bytes,
        rss_bytes: rss_bytes(at),
    };
    live.iter().enumerate().map(sample).collect()
}

/// Requested bytes of live objects after each of these numbers of events, which must be ascending.
///
/// # Errors
/// The trace cannot be read.
pub fn live_bytes(trace: &Path, events: &[u64]) -> Result<Vec<Live>, ReplayError> {
    let mut reader = TraceReader::open(trace)?;
    let mut sizes = vec![0u64; reader.summary().objects_peak as usize];
    let (mut done, mut live) = (0, 0);
    let mut wanted = events.iter().copied().peekable();
    let names = reader.footer().mark_names.clone();
    let mut found = Vec::with_capacity(events.len());
    while let Some(batch) = reader.next_batch()? {
        for event in batch {
            if let (Some(object), Some(bytes)) = (event.op.object(), bytes_after(&event.op)) {
                let size = &mut sizes[object.0 as usize];
                live = live - *size + bytes;
                *size = bytes;
            }
            done += 1;
            if wanted.next_if_eq(&done).is_some() {
                let mark = match event.op {
                    Op::Mark { name } => names.get(name as usize).cloned(),
                    _ => None,
                };
                found.push(Live { event: done, mark, bytes: live });
            }
        }
    }
    Ok(found)
}

/// The object and its size after an event that changes the size.
fn bytes_after(op: &Op) -> Option<u64> {
    match *op {
        Op::Alloc { size, .. } | Op::Realloc { size, .. } | Op::ReallocUnknown { size, .. } => Some(size),
        Op::Free { .. } | Op::ReallocFree { .. } => Some(0),
        _ => None,
    }
}
