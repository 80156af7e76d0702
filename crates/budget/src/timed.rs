//! Processor time of replays on real allocators: measured only if a budget limits it.

use std::time::Instant;

use hksim_cost_model::MedianRange;
use hksim_replay::{ReplayError, ReplaySpec, TimedReplay};
use hksim_timing::{Effort, Estimate, Subject, median_with_interval};

/// Timed replays at most.
const RUNS_MAX: u32 = 41;

/// Nanoseconds of a call on an allocator, touches included: the median of timed replays and its interval.
///
/// # Errors
/// A replay fails.
pub(crate) fn ns_per_call(spec: &ReplaySpec) -> Result<MedianRange, ReplayError> {
    let effort = Effort { rounds_max: RUNS_MAX, ..Effort::default() };
    let replay = TimedReplay::of(spec)?;
    // The first run warms the file cache.
    replay.run(None)?;
    let begin = Instant::now();
    let mut times = Vec::new();
    loop {
        times.push(replay.run(None)?.cpu_ns_per_call());
        let estimate = median_with_interval(times.iter().copied());
        let is_over = effort.ended(times.len() as u32, begin.elapsed(), || estimate?.precision()).is_some();
        // However long they take, there are enough for an interval.
        if let Some(Estimate { median, low: Some(low), high: Some(high) }) = estimate.filter(|_| is_over) {
            return Ok(MedianRange { low, median, high });
        }
    }
}
