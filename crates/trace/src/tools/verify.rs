//! Whether a trace is sound, and what can be kept of one that is not.

use crate::error::TraceError;
use crate::event::{Event, Op};
use crate::header::{Footer, HistoryStep, Summary};
use crate::hkt::{TraceReader, TraceWriter};
use crate::source::EventSource;
use serde::Serialize;
use std::path::Path;

/// What a check of a whole trace found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verified {
    /// Whether every byte is as its writer left it and every event can follow the ones before it.
    pub sound: bool,
    /// Events that can be used: all before the first damage.
    pub events: u64,
    /// Time of the last of them, in nanoseconds.
    pub duration_ns: u64,
    /// Damage: what is wrong and where. Nothing behind it can be used, as object ids count on everything before them.
    pub damage: Option<String>,
    /// Oddities that do not keep the trace from being used.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Of a trace of which nothing can be used.
    fn nothing(damage: String) -> Verified {
        Verified { sound: false, events: 0, duration_ns: 0, damage: Some(damage), findings: Vec::new() }
    }
}

/// Something a sound producer does not write.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What.
    pub what: &'static str,
    /// Number of events it is true of.
    pub events: u64,
    /// The first of them, from 0.
    pub first_event: u64,
}

/// Reads the whole trace: every checksum, id and total.
///
/// # Errors
/// It cannot be opened as a trace at all.
pub fn verify(path: &Path) -> Result<Verified, TraceError> {
    let (mut reader, mut damage) = match TraceReader::open(path) {
        // A trace whose header is damaged: there is nothing to read.
        Err(why @ TraceError::BadHeader { .. }) => return Ok(Verified::nothing(why.to_string())),
        Err(why @ TraceError::Corrupt { .. }) => (TraceReader::open_before_damage(path)?, Some(why.to_string())),
        opened => {
            let reader = opened?;
            let tail = reader.tail().map(ToString::to_string);
            (reader, tail)
        }
    };
    let mut watch = Watch::new(reader.footer(), reader.summary(), damage.is_some());
    loop {
        match reader.next_batch() {
            Ok(Some(batch)) => batch.iter().for_each(|event| watch.event(event)),
            Ok(None) => break,
            Err(why) => {
                damage = Some(why.to_string());
                break;
            }
        }
    }
    let findings = watch.findings.into_iter().flatten().collect();
    Ok(Verified { sound: damage.is_none(), events: watch.number, duration_ns: watch.time_ns, damage, findings })
}

/// Writes the events before the first damage, with the footer if it was not lost.
///
/// # Errors
/// The trace cannot be opened, or the result cannot be written.
pub fn repair(path: &Path, out: &Path) -> Result<Summary, TraceError> {
    let mut reader = TraceReader::open_before_damage(path)?;
    let mut header = reader.header().clone();
    header.history.push(HistoryStep::new("repair", []));
    let mut writer = TraceWriter::create(out, &header)?;
    // An error of the reader is where the sound part ends.
    while let Ok(Some(batch)) = reader.next_batch() {
        batch.iter().try_for_each(|event| writer.push(event))?;
    }
    writer.finish(reader.footer())
}

/// Kinds of findings, each kept once.
struct Watch {
    mark_names: u64,
    sites: u64,
    lost_names: bool,
    sizes: Vec<u64>,
    number: u64,
    time_ns: u64,
    findings: [Option<Finding>; 3],
}

impl Watch {
    fn new(footer: &Footer, summary: &Summary, lost_names: bool) -> Self {
        Watch {
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
            self.found(0, "a call site that the footer does not have");
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
                    self.found(1, "a touch beyond the end of its object");
                }
            }
            Op::Mark { name } if u64::from(name) >= self.mark_names && !self.lost_names => {
                self.found(2, "a mark whose name the footer does not have");
            }
            _ => (),
        }
        self.number += 1;
        self.time_ns = event.time_ns;
    }

    fn found(&mut self, at: usize, what: &'static str) {
        let fresh = Finding { what, events: 0, first_event: self.number };
        self.findings[at].get_or_insert(fresh).events += 1;
    }
}
