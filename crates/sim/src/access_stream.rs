//! Every page access of a simulation, for models outside this crate.

use std::ops::Range;

use hksim_trace::hkt::Batch;
use hksim_trace::source::EventSource;

use crate::SimError;
use crate::observer::Cause;
use crate::placed::{Points, Run, accounting_of};
use crate::pump::Consumer;
use crate::report::TraceLabel;
use crate::simulate::SimConfig;
use crate::tlb::PageSize;
use crate::translations::{Change, TranslationObserver, Translations};

/// An entry of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEntry {
    /// Number of the event, from 0. What the allocator does at the start has the number of the first event.
    pub event: u64,
    /// What happened.
    pub what: StreamOp,
}

/// An access, or a change of mappings. Pages are 4 KiB and numbered from address 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamOp {
    /// An access to a page that has an entry of this size.
    Access {
        /// The page.
        page: u64,
        /// The size of the page that maps it.
        size: PageSize,
        /// Who accessed it.
        cause: Cause,
    },
    /// The kernel flushes the entries of these pages.
    Changed {
        /// The pages.
        pages: Range<u64>,
        /// Why.
        by: Change,
    },
}

/// The entries since the last batch.
#[derive(Clone, Default)]
struct Entries {
    entries: Vec<StreamEntry>,
    event: u64,
}

impl Entries {
    fn push(&mut self, what: StreamOp) {
        self.entries.push(StreamEntry { event: self.event, what });
    }
}

impl Translations for Entries {
    fn set_events(&mut self, events: u64) {
        self.event = events;
    }

    fn access(&mut self, page: u64, size: PageSize, cause: Cause) {
        self.push(StreamOp::Access { page, size, cause });
    }

    fn changed(&mut self, pages: &Range<u64>, by: Change) {
        self.push(StreamOp::Changed { pages: pages.clone(), by });
    }
}

/// Simulates a source, which must be at its start, and passes each entry of its stream to `each`, in order. Memory holds
/// the entries of one batch of events.
///
/// # Errors
/// The trace is damaged, the policy is invalid, the allocator cannot serve an event, or `each` fails.
pub fn access_stream<E: From<SimError>>(
    source: &mut dyn EventSource,
    config: &SimConfig,
    mut each: impl FnMut(&StreamEntry) -> Result<(), E>,
) -> Result<(), E> {
    let observer = |config: &SimConfig| TranslationObserver::new(accounting_of(config), Entries::default());
    let (label, summary) = (TraceLabel::of(config.file.clone(), source), *source.summary());
    let mut run = Run::new(&[config], observer, label, summary, Points::new(0, Vec::new(), false))?;
    let mut batch = Batch::new();
    while source.next_into(&mut batch).map_err(SimError::from)? {
        run.consume(&batch)?;
        let entries = std::mem::take(&mut run.observer().translations.entries);
        entries.iter().try_for_each(&mut each)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hksim_engine::TouchRule;
    use hksim_policy::Policy;
    use hksim_trace::event::Op;
    use hksim_trace::generate::{RandomMixed, Workload};

    use super::*;

    /// Most frees put the block into the front cache, and read the metadata of its slice once for that.
    #[test]
    fn a_free_into_a_front_cache_reads_the_slice_once() {
        let workload = RandomMixed { cycles: 20_000, ws: 200, ..RandomMixed::default() };
        let mut source = Workload::RandomMixed(workload).source().expect("the parameters are in range");
        let mut frees = Vec::new();
        while let Some(batch) = source.next_batch().expect("a generator") {
            frees.extend(batch.iter().map(|event| matches!(event.op, Op::Free { .. })));
        }
        source.rewind().expect("a generator");
        let config = SimConfig {
            policy: Policy { front_cache: 8, ..Policy::default() },
            touch: TouchRule::First,
            ..SimConfig::default()
        };
        let mut twice = vec![false; frees.len()];
        let mut before: Option<StreamEntry> = None;
        let each = |entry: &StreamEntry| -> Result<(), SimError> {
            let is_metadata = matches!(entry.what, StreamOp::Access { cause: Cause::Metadata, .. });
            twice[entry.event as usize] |= is_metadata && before.as_ref() == Some(entry);
            before = Some(entry.clone());
            Ok(())
        };
        access_stream(source.as_mut(), &config, each).expect("a simulation");
        let frees_twice = frees.iter().zip(&twice).filter(|&(&is_free, &twice)| is_free && twice).count();
        let frees = frees.iter().filter(|&&is_free| is_free).count();
        assert!(frees_twice < frees / 10, "{frees_twice} of {frees} frees read the same metadata twice in a row");
    }
}
