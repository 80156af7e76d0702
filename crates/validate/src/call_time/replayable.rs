//! What a replay in trace order can time: designs that need no waiting, and the calls of one thread.

use std::path::Path;

use hksim_explore::described::{Described, word};
use hksim_explore::inputs::Trace;
use hksim_policy::Policy;
use hksim_policy::vocabulary::Purge;
use hksim_sim::Input;
use hksim_trace::error::TraceError;
use hksim_trace::event::{Event, Op, ThreadId};
use hksim_trace::header::{Footer, Header, Summary};
use hksim_trace::source::{BATCH_EVENTS_MAX, EventSource};

/// The design that a replay can time, and what was changed, if anything. A replay does not wait, so no memory is unused
/// for the delay of a purge.
pub fn timeless(policy: &Policy) -> (Policy, Option<String>) {
    if policy.purge_delay_ns().is_none() {
        return (*policy, None);
    }
    let flags = policy.flags();
    let [purge, delay] = ["purge", "purge-delay"].map(|flag| word(&flags, flag));
    let changed = format!(
        "--purge none instead of --purge {purge} --purge-delay {delay}: a replay does not wait, so it would hardly purge; \
         for times with purges use --purge-delay 0"
    );
    (Policy { purge: Purge::None, ..*policy }, Some(changed))
}

/// Whether two designs do the same: without purges, their delay has no effect.
pub(super) fn is_same(one: &Policy, other: &Policy) -> bool {
    let effective = |policy: &Policy| match policy.purge {
        Purge::None => Policy { purge_delay_ns: 0, ..*policy },
        _ => *policy,
    };
    effective(one) == effective(other)
}

/// The trace as a replay in trace order performs it on a malloc library: one thread makes all calls.
///
/// # Errors
/// The file cannot be read as a trace.
pub(super) fn on_one_thread(path: &Path) -> Result<Input, TraceError> {
    let trace = Trace::file(path)?;
    if trace.summary.threads <= 1 {
        return Ok(trace.input);
    }
    let Input { file, open } = trace.input;
    Ok(Input { file, open: Box::new(move || Ok(Box::new(OneThread::new(open()?)))) })
}

/// A source whose events are all those of the first thread, which does not end before the last of them.
struct OneThread {
    source: Box<dyn EventSource + Send>,
    summary: Summary,
    batch: Vec<Event>,
}

impl OneThread {
    fn new(source: Box<dyn EventSource + Send>) -> OneThread {
        let summary = Summary { threads: 1, ..*source.summary() };
        OneThread { source, summary, batch: Vec::with_capacity(BATCH_EVENTS_MAX) }
    }
}

impl EventSource for OneThread {
    fn next_batch(&mut self) -> Result<Option<&[Event]>, TraceError> {
        let Some(events) = self.source.next_batch()? else { return Ok(None) };
        self.batch.clear();
        self.batch.extend(events.iter().map(|event| {
            // The start of a thread does nothing.
            let op = if event.op == Op::ThreadExit { Op::ThreadStart } else { event.op };
            Event { thread: ThreadId(0), op, ..*event }
        }));
        Ok(Some(&self.batch))
    }

    fn header(&self) -> &Header {
        self.source.header()
    }

    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn checksum(&self) -> Option<u32> {
        self.source.checksum()
    }

    fn footer(&self) -> &Footer {
        self.source.footer()
    }

    fn rewind(&mut self) -> Result<(), TraceError> {
        self.source.rewind()
    }
}

#[cfg(test)]
mod tests {
    use hksim_trace::generate::{Server, Workload};

    use super::*;

    #[test]
    fn only_a_delayed_purge_is_left_out() {
        let (policy, changed) = timeless(&Policy::DEFAULT);
        assert_eq!(policy, Policy { purge: Purge::None, ..Policy::DEFAULT });
        assert!(
            changed
                .is_some_and(|changed| changed.starts_with("--purge none instead of --purge dontneed --purge-delay"))
        );
        for same in [Policy { purge_delay_ns: 0, ..Policy::DEFAULT }, Policy { purge: Purge::None, ..Policy::DEFAULT }]
        {
            assert_eq!(timeless(&same), (same, None));
        }
    }

    #[test]
    fn every_event_is_of_one_thread_and_none_is_lost() {
        let source = || Workload::Server(Server { threads: 3, ..Server::default() }).source().expect("a source");
        let all = |source: &mut dyn EventSource| {
            let mut events = Vec::new();
            while let Some(batch) = source.next_batch().expect("events") {
                events.extend_from_slice(batch);
            }
            events
        };
        let before = all(source().as_mut());
        let mut one = OneThread::new(source());
        let after = all(&mut one);
        assert_eq!((before.len(), one.summary().threads), (after.len(), 1));
        assert!(before.iter().any(|event| event.thread != ThreadId(0)));
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(after.thread, ThreadId(0));
            assert!(after.op == before.op || (before.op, after.op) == (Op::ThreadExit, Op::ThreadStart));
        }
    }
}
