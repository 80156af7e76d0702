//! Feeds one decoded trace to many simulations.
//!
//! While a chunk of events is simulated, the next one is decoded. All simulations of a pass take the same chunk at the
//! same time, so the trace is decoded once, and memory holds two chunks whatever its length. The chunks are those of the
//! file.

use hksim_trace::error::TraceError;
use hksim_trace::hkt::Batch;
use hksim_trace::source::EventSource;
use rayon::prelude::*;

use crate::simulate::SimError;

/// Takes the events of a trace, in order.
pub(crate) trait Consumer: Send {
    /// Performs the next events.
    fn consume(&mut self, batch: &Batch) -> Result<(), SimError>;
}

/// The next events of a trace, or why there are none.
#[derive(Default)]
struct Chunk {
    batch: Batch,
    error: Option<TraceError>,
}

impl Chunk {
    /// Replaces the chunk by the source's next events. Empty at the end.
    fn fill(&mut self, source: &mut (dyn EventSource + Send)) {
        let more = source.next_into(&mut self.batch);
        // A batch that is not cleared keeps what the next chunk may have in common with it.
        if !matches!(more, Ok(true)) {
            self.batch.clear();
        }
        self.error = more.err();
    }
}

/// Passes all events of a source to each consumer. Calls `progress` with the number of events passed on so far.
///
/// # Errors
/// The first error in the order of the events; of several consumers' errors, that of the first consumer.
pub(crate) fn pump<C: Consumer>(
    source: &mut (dyn EventSource + Send),
    consumers: &mut [C],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), SimError> {
    // All of it on the pool's threads: a thread outside the pool would wait for them to wake up at each chunk.
    rayon::scope(|_| pump_in_pool(source, consumers, progress))
}

fn pump_in_pool<C: Consumer>(
    source: &mut (dyn EventSource + Send),
    consumers: &mut [C],
    progress: &dyn Fn(u64),
) -> Result<(), SimError> {
    let (mut now, mut next) = (Chunk::default(), Chunk::default());
    let mut passed = 0;
    now.fill(source);
    while !now.batch.is_empty() {
        let (results, ()) = rayon::join(|| consume_all(consumers, &now.batch), || next.fill(source));
        results.into_iter().collect::<Result<(), SimError>>()?;
        passed += now.batch.len() as u64;
        progress(passed);
        std::mem::swap(&mut now, &mut next);
    }
    now.error.map_or(Ok(()), |error| Err(error.into()))
}

fn consume_all<C: Consumer>(consumers: &mut [C], batch: &Batch) -> Vec<Result<(), SimError>> {
    consumers.par_iter_mut().map(|consumer| consumer.consume(batch)).collect()
}
