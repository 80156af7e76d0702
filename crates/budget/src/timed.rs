//! Processor time of replays on real allocators: measured only if a budget limits it.

use std::time::{Duration, Instant};

use hksim_cost_model::MedianRange;
use hksim_replay::{ReplayError, ReplaySpec, TimedReplay};
use hksim_timing::{Estimate, Subject, median_with_interval};

/// The sufficient precision: half the length of the interval, as a share of the median.
const PRECISION: f64 = 0.01;
/// Timed replays at most, and the time after which there are no more than an interval needs.
const RUNS_MAX: usize = 41;
const TIME_MAX: Duration = Duration::from_secs(60);

/// Nanoseconds of a call on an allocator, touches included: the median of timed replays and its interval.
///
/// # Errors
/// A replay fails.
pub(crate) fn ns_per_call(spec: &ReplaySpec) -> Result<MedianRange, ReplayError> {
    let replay = TimedReplay::of(spec)?;
    // The first run warms the file cache.
    replay.run(None)?;
    let begin = Instant::now();
    let mut times = Vec::new();
    loop {
        times.push(replay.run(None)?.cpu_ns_per_call());
        if let Some(Estimate { median, low: Some(low), high: Some(high) }) = median_with_interval(times.iter().copied())
        {
            let is_precise = (high - low) / 2.0 <= median * PRECISION;
            if is_precise || times.len() >= RUNS_MAX || begin.elapsed() > TIME_MAX {
                return Ok(MedianRange { low, median, high });
            }
        }
    }
}
