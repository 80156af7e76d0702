//! A replay, explained.

use std::path::Path;

use hksim_replay::explained::{ExplainedTotals, explain as record};
use hksim_replay::{HugePages, ReplaySpec, Target};
use hksim_sim::explain::INTERVALS;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::attributor::Attributor;
use crate::breakdown::{Breakdown, CauseKey};
use crate::error::AttributionError;
use crate::events::Events;
use crate::functions::Functions;
use crate::mappings::Mappings;
use crate::modes::huge_pages;

/// An explained replay.
pub struct Explained {
    /// Its totals, as the kernel counts them.
    pub totals: ExplainedTotals,
    /// Faults by every key.
    pub breakdown: Breakdown,
    /// Names of functions.
    pub functions: Functions,
    /// The mappings at the end, and which of all mappings were made for one block.
    pub mappings: Mappings,
    /// Faults of the replay's own work, which are in no key.
    pub faults_of_replay: u64,
    /// Trace time at the end of each interval, in nanoseconds.
    pub interval_ends_ns: [u64; INTERVALS],
}

impl Explained {
    /// Faults that the kernel charged, without those of the replay's own work, and the pages of the library's start.
    pub fn faults(&self) -> u64 {
        let (huge_pages, pages) = self.totals.startup.pages();
        self.totals.faults.saturating_sub(self.faults_of_replay) + huge_pages + pages
    }

    /// Faults that the kernel charged and no key contains: positive if some were not seen, negative if traps were not
    /// charged.
    pub fn faults_unseen(&self) -> i64 {
        self.faults() as i64 - self.breakdown.total as i64
    }

    /// Installs of a cause of another run. Each run numbers its functions itself, so they are compared by name.
    pub fn installs_of(&self, key: CauseKey, of: &Explained) -> u64 {
        let name = of.functions.name(key.function);
        let same = |other: &CauseKey| other.reason == key.reason && self.functions.name(other.function) == name;
        self.breakdown.causes.iter().filter(|(other, _)| same(other)).map(|(_, counts)| counts.installs).sum()
    }
}

/// Replays a trace on a `malloc` library, in trace order, and attributes its page faults.
///
/// # Errors
/// The replay fails, or the trace cannot be read.
pub fn explain(spec: &ReplaySpec, huge: HugePages) -> Result<Explained, AttributionError> {
    let reader = TraceReader::open(&spec.trace)?;
    let objects_peak = reader.summary().objects_peak;
    let mut events = Events::new(reader);
    let mut attributor = Attributor::new(objects_peak, library(&spec.on));
    let mut failure = None;
    let totals = record(spec, huge, &mut |record| {
        if failure.is_none() {
            failure = attributor.record(record, &mut events).err();
        }
    })?;
    failure.map_or(Ok(()), Err)?;
    attributor.finish(&mut events)?;
    let interval_ends_ns = events.interval_ends_ns();
    let Attributor { mut breakdown, functions, mappings, faults_of_replay, .. } = attributor;
    breakdown.add_startup(totals.startup);
    Ok(Explained { totals, breakdown, functions, mappings, faults_of_replay, interval_ends_ns })
}

/// Explains a replay under each of these THP modes; `None` is the machine's. Where there is no explanation, says why.
pub fn explain_under<'a>(
    spec: &ReplaySpec,
    modes: impl IntoIterator<Item = Option<&'a str>>,
) -> Vec<Result<Explained, String>> {
    let under = |mode: Option<&str>| -> Result<Explained, String> {
        let Target::Malloc { .. } = spec.on else {
            return Err("hksim's own allocator is explained by simulation: `hksim explain TRACE`".to_string());
        };
        let huge = mode.map_or(Ok(HugePages::AsTheyAre), huge_pages)?;
        explain(spec, huge).map_err(|why| why.to_string())
    };
    modes.into_iter().map(under).collect()
}

/// The file of the allocator; `None` for the C library.
fn library(on: &Target) -> Option<&Path> {
    match on {
        Target::Malloc { preload, .. } => preload.as_deref(),
        Target::Native(_) | Target::Design { .. } => None,
    }
}
