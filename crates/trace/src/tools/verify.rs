//! Checks whether a trace is sound, and recovers the sound part of a damaged trace.

use crate::error::TraceError;
use crate::event::{Event, Op};
use crate::header::{Footer, HistoryStep, Summary};
use crate::hkt::{TraceReader, TraceWriter};
use crate::source::EventSource;
use serde::Serialize;
use std::path::Path;

/// The result of checking a whole trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verified {
    /// Whether all checksums match and every event can follow the previous ones.
    pub valid: bool,
    /// Number of usable events: those before the first damage.
    pub events: u64,
    /// Time of the last usable event, in nanoseconds.
    pub duration_ns: u64,
    /// The damage: what is wrong and where. Nothing after it can be used, as object ids depend on all earlier events.
    pub damage: Option<String>,
    /// Inconsistencies that do not prevent using the trace.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// The result for a trace without usable events.
    fn nothing(damage: String) -> Verified {
        Verified { valid: false, events: 0, duration_ns: 0, damage: Some(damage), findings: Vec::new() }
    }
}

/// An inconsistency that a correct producer does not write.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// A description.
    pub description: &'static str,
    /// Number of events that have the inconsistency.
    pub events: u64,
    /// Index of the first of these events, from 0.
    pub first_event: u64,
}

/// Reads the whole trace and checks every checksum, id and total.
///
/// # Errors
/// The file cannot be opened as a trace.
pub fn verify(path: &Path) -> Result<Verified, TraceError> {
    let (mut reader, mut damage) = match TraceReader::open(path) {
        // If the file header is damaged, no event can be read.
        Err(why @ TraceError::BadHeader { .. }) => return Ok(Verified::nothing(why.to_string())),
        Err(why @ TraceError::Corrupt { .. }) => (TraceReader::open_before_damage(path)?, Some(why.to_string())),
        opened => {
            let reader = opened?;
            let tail = reader.tail().map(ToString::to_string);
            (reader, tail)
        }
    };
    let mut checker = Checker::new(reader.footer(), reader.summary(), damage.is_some());
    loop {
        match reader.next_batch() {
            Ok(Some(batch)) => batch.iter().for_each(|event| checker.event(event)),
            Ok(None) => break,
            Err(why) => {
                damage = Some(why.to_string());
                break;
            }
        }
    }
    let findings = checker.findings.into_iter().flatten().collect();
    Ok(Verified { valid: damage.is_none(), events: checker.number, duration_ns: checker.time_ns, damage, findings })
}

/// Writes the events before the first damage to `out`, with the footer if it was not lost.
///
/// # Errors
/// The trace cannot be opened, or the result cannot be written.
pub fn repair(path: &Path, out: &Path) -> Result<Summary, TraceError> {
    let mut reader = TraceReader::open_before_damage(path)?;
    let mut header = reader.header().clone();
    header.history.push(HistoryStep::new("repair", []));
    let mut writer = TraceWriter::create(out, &header)?;
    // The sound part ends at the reader's first error.
    while let Ok(Some(batch)) = reader.next_batch() {
        batch.iter().try_for_each(|event| writer.push(event))?;
    }
    writer.finish(reader.footer())
}

/// Collects the findings, one entry per kind.
struct Checker {
    mark_names: u64,
    sites: u64,
    lost_names: bool,
    sizes: Vec<u64>,
    number: u64,
    time_ns: u64,
    findings: [Option<Finding>; 3],
}

impl Checker {
    fn new(footer: &Footer, summary: &Summary, lost_names: bool) -> Self {
        Checker {
            mark_names: footer.mark_names.len() as u64,
            sites: footer.sites.stacks.len() as u64,
            lost_names,
            sizes: vec![0; summary.objects_peak as usize],
            number: 0,
            time_ns: 0,
            findings: [None, None, None],
        }
    }

    fn event(&mut self, event: &Event) {
        if u64::from(event.site.0) > self.sites && !self.lost_names {
            self.count_finding(0, "a call site that the footer does not have");
        }
        match event.op {
            Op::Alloc { object, size, .. }
            | Op::Realloc { object, size, .. }
            | Op::ReallocUnknown { object, size, .. } => {
                if let Some(known) = self.sizes.get_mut(object.0 as usize) {
                    *known = size;
                }
            }
            Op::Touch { object, offset, bytes, .. } => {
                let size = self.sizes.get(object.0 as usize).copied().unwrap_or(0);
                if offset.saturating_add(u64::from(bytes)) > size {
                    self.count_finding(1, "a touch beyond the end of its object");
                }
            }
            Op::Mark { name } if u64::from(name) >= self.mark_names && !self.lost_names => {
                self.count_finding(2, "a mark whose name the footer does not have");
            }
            _ => (),
        }
        self.number += 1;
        self.time_ns = event.time_ns;
    }

    fn count_finding(&mut self, at: usize, what: &'static str) {
        let fresh = Finding { description: what, events: 0, first_event: self.number };
        self.findings[at].get_or_insert(fresh).events += 1;
    }
}
