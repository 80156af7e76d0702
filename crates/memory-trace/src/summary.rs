//! Totals of a recording, for `hksim info`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use crate::PAGE_BYTES;
use crate::error::MemoryTraceError;
use crate::event::{Event, MappingKind, Op, Origin, TouchKind};
use crate::header::{Footer, Header};
use crate::reader::Reader;

/// Totals of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The header.
    pub header: Header,
    /// The footer; `None` if the file ends early.
    pub footer: Option<Footer>,
    /// Events.
    pub events: u64,
    /// Page faults by access: `read`, `write`, `unknown`.
    pub touches: BTreeMap<&'static str, u64>,
    /// Memory calls by name. `exec` and `kernel`: mappings that the kernel made, at exec and at other times.
    pub calls: BTreeMap<&'static str, u64>,
    /// Bytes of new mappings, by kind; growth by mremap is not included.
    pub mapped_bytes: BTreeMap<MappingKind, u64>,
    /// Threads with at least one touch or call.
    pub threads: u64,
    /// Time from the start of the recording to the last event, in nanoseconds.
    pub duration_ns: u64,
    /// Forks.
    pub forks: u64,
    /// Events that the recorder lost while this address space existed.
    pub lost_events: u64,
}

/// Reads a whole recording and counts its events.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn summarise(path: &Path) -> Result<Summary, MemoryTraceError> {
    let mut reader = Reader::open(path)?;
    let mut summary = Summary {
        header: reader.header().clone(),
        footer: None,
        events: 0,
        touches: BTreeMap::new(),
        calls: BTreeMap::new(),
        mapped_bytes: BTreeMap::new(),
        threads: 0,
        duration_ns: 0,
        forks: 0,
        lost_events: 0,
    };
    let mut events = Vec::new();
    let mut threads = BTreeSet::new();
    while reader.next_chunk(&mut events)? {
        events.iter().for_each(|event| summary.count(event));
        // The end of a child and a loss are not acts of a thread of this process.
        let own = events.iter().filter(|event| !matches!(event.op, Op::ChildEnded { .. } | Op::Lost { .. }));
        threads.extend(own.map(|event| event.thread));
    }
    summary.threads = threads.len() as u64;
    summary.footer = reader.footer().cloned();
    Ok(summary)
}

impl Summary {
    fn count(&mut self, event: &Event) {
        self.events += 1;
        self.duration_ns = event.time_ns;
        let call = match &event.op {
            Op::Touch { kind, .. } => {
                let name = match kind {
                    TouchKind::Read => "read",
                    TouchKind::Write => "write",
                    TouchKind::Unknown => "unknown",
                };
                *self.touches.entry(name).or_default() += 1;
                return;
            }
            Op::Fork { .. } => {
                self.forks += 1;
                return;
            }
            Op::ChildEnded { .. } => return,
            Op::Lost { events } => {
                self.lost_events = self.lost_events.saturating_add(*events);
                return;
            }
            Op::Map(map) => {
                let bytes = self.mapped_bytes.entry(map.kind).or_default();
                *bytes = bytes.saturating_add((map.pages.end - map.pages.start) * PAGE_BYTES);
                match map.origin {
                    Origin::Mmap => "mmap",
                    Origin::Brk => "brk",
                    Origin::Exec => "exec",
                    Origin::Kernel => "kernel",
                }
            }
            Op::Unmap(_) => "munmap",
            Op::Remap { .. } => "mremap",
            Op::Protect { .. } => "mprotect",
            Op::Advise { .. } => "madvise",
            Op::Lock { .. } => "mlock",
            Op::Unlock(_) => "munlock",
            Op::LockAll(_) => "mlockall",
            Op::UnlockAll => "munlockall",
            Op::NameMapping { .. } => "prctl(PR_SET_VMA)",
            Op::DisableThp { .. } => "prctl(PR_SET_THP_DISABLE)",
        };
        *self.calls.entry(call).or_default() += 1;
    }
}
