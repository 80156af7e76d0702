//! Merges several traces into one.

use super::renumber::Renumber;
use crate::error::TraceError;
use crate::event::{Event, Op, SiteId};
use crate::header::{Clock, Footer, Header, HistoryStep, Origin, Summary, TouchSource};
use crate::hkt::TraceWriter;
use crate::profile::SiteProfile;
use crate::sites::SiteTable;
use crate::source::EventSource;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::path::Path;

/// A trace to merge, and its start time in the result.
pub struct MergeInput {
    /// The trace.
    pub source: Box<dyn EventSource>,
    /// Nanoseconds from the start of the result to the start of this trace.
    pub offset_ns: u64,
}

/// Writes the events of all traces to one trace, sorted by time. Events with equal times are in the given order of the
/// traces. Objects and threads of different traces stay distinct; equal call sites and mark names are combined. The
/// result has the least complete touch source of the traces.
///
/// # Errors
/// The errors of the sources and of the writer; times beyond 2^64 ns.
pub fn merge(mut traces: Vec<MergeInput>, out: &Path) -> Result<Summary, TraceError> {
    let mut writer = TraceWriter::create(out, &header(&traces))?;
    let mut renumber = Renumber::default();
    let mut names = MergedNames::default();
    let mut inputs = Vec::with_capacity(traces.len());
    for trace in &mut traces {
        trace.source.rewind()?;
        inputs.push(Input { new_numbers: names.add(trace.source.footer()), batch: Vec::new(), next: 0 });
    }
    let mut next_times = BinaryHeap::new();
    for at in 0..traces.len() {
        next_times.extend(inputs[at].next_time_ns(&mut traces[at])?.map(|time_ns| Reverse((time_ns, at))));
    }
    while let Some(Reverse((_, at))) = next_times.pop() {
        let event = inputs[at].take(traces[at].offset_ns);
        if let Some(event) = renumber.event(at, event)? {
            writer.push(&event)?;
        }
        next_times.extend(inputs[at].next_time_ns(&mut traces[at])?.map(|time_ns| Reverse((time_ns, at))));
    }
    writer.finish(&names.finish())
}

/// Rewinds the parent's trace and returns the time at which it forked the process of `child`. `None` if it did not fork
/// it.
///
/// # Errors
/// The errors of the source.
pub fn child_offset_ns(parent: &mut dyn EventSource, child: &Header) -> Result<Option<u64>, TraceError> {
    let Origin::Recorded { pid, .. } = child.origin else { return Ok(None) };
    parent.rewind()?;
    while let Some(batch) = parent.next_batch()? {
        let forked = batch.iter().find(|event| matches!(event.op, Op::Fork { child_pid } if child_pid == pid));
        if let Some(event) = forked {
            return Ok(Some(event.time_ns));
        }
    }
    Ok(None)
}

/// The state of reading one of the traces.
struct Input {
    new_numbers: NewNumbers,
    batch: Vec<Event>,
    next: usize,
}

/// The new numbers of a trace's call sites and marks, indexed by old number.
struct NewNumbers {
    sites: Vec<SiteId>,
    marks: Vec<u32>,
}

impl NewNumbers {
    fn site(&self, old: SiteId) -> SiteId {
        let new = old.stack().and_then(|stack| self.sites.get(stack as usize));
        new.copied().unwrap_or_default()
    }
}

impl Input {
    /// The time of the next event, relative to the start of the result. `None` at the end of the trace.
    fn next_time_ns(&mut self, trace: &mut MergeInput) -> Result<Option<u64>, TraceError> {
        if self.next == self.batch.len() {
            self.next = 0;
            self.batch.clear();
            match trace.source.next_batch()? {
                Some(batch) => self.batch.extend_from_slice(batch),
                None => return Ok(None),
            }
        }
        Ok(self.batch.get(self.next).map(|event| event.time_ns.saturating_add(trace.offset_ns)))
    }

    /// Takes the next event, with its new time, site and mark.
    fn take(&mut self, offset_ns: u64) -> Event {
        let mut event = self.batch[self.next];
        self.next += 1;
        event.time_ns = event.time_ns.saturating_add(offset_ns);
        event.site = self.new_numbers.site(event.site);
        if let Op::Mark { name } = &mut event.op {
            // If a truncated file has lost its footer, the mark has no name. `u32::MAX` refers to no entry.
            *name = self.new_numbers.marks.get(*name as usize).copied().unwrap_or(u32::MAX);
        }
        event
    }
}

fn header(traces: &[MergeInput]) -> Header {
    let headers = || traces.iter().map(|trace| trace.source.header());
    let clock = if headers().all(|header| header.clock == Clock::Measured) { Clock::Measured } else { Clock::PerEvent };
    let rank = |touch| match touch {
        TouchSource::Assumed => 0,
        TouchSource::Sampled => 1,
        TouchSource::FirstTouch => 2,
        TouchSource::FullStream => 3,
    };
    let touch = headers().map(|header| header.touch).min_by_key(|&touch| rank(touch)).unwrap_or(TouchSource::Assumed);
    let nothing = Origin::Imported { format: "nothing".into(), file: String::new() };
    let origin = headers().next().map_or(nothing, |header| header.origin.clone());
    let mut merged = Header::new(origin, touch, clock);
    merged.clock_events = headers().filter_map(|header| header.clock_events).max();
    merged.history = headers().next().map(|header| header.history.clone()).unwrap_or_default();
    let others: Vec<_> = traces
        .iter()
        .map(|trace| {
            let header = trace.source.header();
            json!({"origin": header.origin, "history": header.history, "offset_ns": trace.offset_ns})
        })
        .collect();
    merged.history.push(HistoryStep::new("merge", [("traces", json!(others))]));
    merged
}

/// The footer of the result, without duplicate entries.
#[derive(Default)]
struct MergedNames {
    footer: Footer,
    marks: HashMap<String, u32>,
    sites: SiteTable,
}

impl MergedNames {
    /// Adds the footer of one trace and returns the new numbers of its entries.
    fn add(&mut self, footer: &Footer) -> NewNumbers {
        let mark = |name: &String| {
            *self.marks.entry(name.clone()).or_insert_with_key(|name| {
                self.footer.mark_names.push(name.clone());
                self.footer.mark_names.len() as u32 - 1
            })
        };
        let marks = footer.mark_names.iter().map(mark).collect();
        let new_numbers = NewNumbers { sites: self.sites.import_all(&footer.sites), marks };
        self.add_profiles(&footer.profiles, &new_numbers);
        self.footer.quality = self.footer.quality + footer.quality;
        new_numbers
    }

    fn add_profiles(&mut self, from: &[SiteProfile], new_numbers: &NewNumbers) {
        let profiles = std::mem::take(&mut self.footer.profiles).into_iter();
        let mut profiles: BTreeMap<_, SiteProfile> = profiles.map(|profile| (profile.key(), profile)).collect();
        for profile in from {
            let site = new_numbers.site(SiteId(profile.site)).0;
            let &SiteProfile { bytes_max, zeroed, .. } = profile;
            let kind = SiteProfile { site, bytes_max, zeroed, ..SiteProfile::default() };
            profiles.entry(kind.key()).or_insert(kind).add(profile);
        }
        self.footer.profiles = profiles.into_values().collect();
    }

    fn finish(self) -> Footer {
        Footer { sites: self.sites.into_sites(), ..self.footer }
    }
}
