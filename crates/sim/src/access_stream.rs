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
#[derive(Default)]
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
