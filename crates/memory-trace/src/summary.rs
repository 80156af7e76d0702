//! Totals of a recording, for `hksim info`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hksim_call_sites::{SiteId, Sites, StackEnd};
use serde::Serialize;

use crate::PAGE_BYTES;
use crate::at_start::PagesAtStart;
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
    /// What the process had when the recording began in the middle of it; absent if it began by exec or fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_start: Option<AtStart>,
    /// Threads with at least one touch or call.
    pub threads: u64,
    /// Time from the start of the recording to the end of the address space, or to the last event if that is unknown, in
    /// nanoseconds.
    pub duration_ns: u64,
    /// Forks.
    pub forks: u64,
    /// Events that the recorder lost while this address space existed.
    pub lost_events: u64,
    /// Calls with a call stack, by the end of the stack; absent if call stacks were not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<BTreeMap<StackEnd, u64>>,
    /// What each call site mapped, most bytes first. Not exported.
    #[serde(skip)]
    pub sites: Vec<SiteUse>,
    /// The call sites. Not exported.
    #[serde(skip)]
    pub site_table: Sites,
}

/// What a process had when a recording of it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AtStart {
    /// Mappings.
    pub mappings: u64,
    /// Bytes of these mappings, by kind.
    pub mapped_bytes: BTreeMap<MappingKind, u64>,
    /// Bytes of the pages of anonymous memory and of stacks that were not absent, by state: `small`, `huge`, `zero`.
    pub page_bytes: BTreeMap<&'static str, u64>,
    /// Of these, resident bytes.
    pub resident_bytes: u64,
    /// Of these, resident bytes in huge pages: accesses to them raise no fault.
    pub huge_bytes: u64,
    /// Whether pages of the mapping before count.
    #[serde(skip)]
    is_counted: bool,
}

impl AtStart {
    fn count(&mut self, op: &Op) {
        match op {
            Op::MappingAtStart(start) => {
                self.mappings += 1;
                self.is_counted = matches!(start.map.kind, MappingKind::Anonymous | MappingKind::GrowingStack);
                let bytes = self.mapped_bytes.entry(start.map.kind).or_default();
                *bytes = bytes.saturating_add((start.map.pages.end - start.map.pages.start) * PAGE_BYTES);
            }
            Op::PagesAtStart(PagesAtStart { pages, state }) if self.is_counted => {
                let more = (pages.end - pages.start) * PAGE_BYTES;
                let add = |bytes: &mut u64| *bytes = bytes.saturating_add(more);
                add(self.page_bytes.entry(state.name()).or_default());
                if state.is_resident() {
                    add(&mut self.resident_bytes);
                }
                if state.is_resident() && state.is_huge() {
                    add(&mut self.huge_bytes);
                }
            }
            _ => {}
        }
    }
}

/// What a call site mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SiteUse {
    /// The call site; unknown for mappings of mmap and brk whose call site was not recorded.
    #[serde(skip)]
    pub site: SiteId,
    /// Calls.
    pub calls: u64,
    /// Bytes of private anonymous mappings; growth by mremap is included.
    pub mapped_bytes: u64,
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
        at_start: reader.header().beginning.is_attached().then(AtStart::default),
        threads: 0,
        duration_ns: 0,
        forks: 0,
        lost_events: 0,
        stacks: reader.header().stack_depth.map(|_| BTreeMap::new()),
        sites: Vec::new(),
        site_table: Sites::default(),
    };
    let mut uses = BTreeMap::new();
    let mut events = Vec::new();
    let mut threads = BTreeSet::new();
    while reader.next_chunk(&mut events)? {
        events.iter().for_each(|event| summary.count(event));
        events.iter().for_each(|event| summary.count_site(event, reader.sites(), &mut uses));
        // The end of a child, a loss and the start are not acts of a thread of this process.
        let is_own = |op: &Op| !matches!(op, Op::ChildEnded { .. } | Op::Lost { .. }) && !op.is_at_start();
        let own = events.iter().filter(|event| is_own(&event.op));
        threads.extend(own.map(|event| event.thread));
    }
    summary.threads = threads.len() as u64;
    summary.footer = reader.footer().cloned();
    let end_ns = summary.footer.as_ref().and_then(|footer| footer.end_ns);
    summary.duration_ns = summary.duration_ns.max(end_ns.unwrap_or_default());
    summary.site_table = reader.sites().clone();
    summary.sites = uses.into_values().collect();
    summary.sites.sort_by_key(|used| std::cmp::Reverse(used.mapped_bytes));
    Ok(summary)
}

impl Summary {
    fn count_site(&mut self, event: &Event, sites: &Sites, uses: &mut BTreeMap<SiteId, SiteUse>) {
        let Some(stacks) = &mut self.stacks else { return };
        if let Some(end) = sites.stack(event.site).and_then(|stack| stack.end) {
            *stacks.entry(end).or_default() += 1;
        }
        let pages = match &event.op {
            Op::Map(map) if map.kind == MappingKind::Anonymous && is_call(map.origin) => {
                map.pages.end - map.pages.start
            }
            Op::Remap { old, new, .. } => (new.end - new.start).saturating_sub(old.end - old.start),
            _ => return,
        };
        let site = event.site;
        let used = uses.entry(site).or_insert(SiteUse { site, calls: 0, mapped_bytes: 0 });
        used.calls += 1;
        used.mapped_bytes = used.mapped_bytes.saturating_add(pages.saturating_mul(PAGE_BYTES));
    }

    fn count(&mut self, event: &Event) {
        if event.op.is_at_start() {
            self.at_start.iter_mut().for_each(|start| start.count(&event.op));
            return;
        }
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
            Op::ChildEnded { .. } | Op::MappingAtStart(_) | Op::PagesAtStart(_) => return,
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

/// Whether a mapping was made by a call of the program.
fn is_call(origin: Origin) -> bool {
    matches!(origin, Origin::Mmap | Origin::Brk)
}
