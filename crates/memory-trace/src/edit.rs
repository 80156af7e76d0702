//! Tools that write a changed copy of a recording.

use std::collections::BTreeMap;
use std::path::Path;

use hksim_call_sites::{Frame, Module, SiteId};
use serde::Serialize;

use crate::error::MemoryTraceError;
use crate::event::{Event, Op};
use crate::header::{End, Footer, Header};
use crate::reader::Reader;
use crate::writer::Writer;

/// Which events [`cut`] keeps: those that meet both conditions. Mappings and page contents depend on all earlier events,
/// so only the end can be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Events up to this time since the start of the recording, in nanoseconds.
    pub until_ns: u64,
    /// Maximum number of events.
    pub events: u64,
}

impl Cut {
    /// Everything.
    pub const NOTHING: Self = Self { until_ns: u64::MAX, events: u64::MAX };
}

/// Copies the beginning of a recording.
///
/// # Errors
/// The input cannot be read or is damaged, no event is left, or the output cannot be written.
pub fn cut(from: &Path, to: &Path, keep: Cut) -> Result<CopiedTotals, MemoryTraceError> {
    let mut words = vec!["cut".to_string()];
    let limits = [("until-ns", keep.until_ns), ("events", keep.events)];
    words.extend(limits.iter().filter(|limit| limit.1 != u64::MAX).map(|(name, value)| format!("{name}={value}")));
    let totals = copy(from, to, keep, &words.join(" "), Damage::IsAnError)?;
    if totals.events == 0 {
        return Err(MemoryTraceError::EmptyPart { path: from.to_path_buf() });
    }
    Ok(totals)
}

/// Copies the events before the first damage, with the footer if it was not lost.
///
/// # Errors
/// The input's header cannot be read, or the output cannot be written.
pub fn repair(from: &Path, to: &Path) -> Result<CopiedTotals, MemoryTraceError> {
    copy(from, to, Cut::NOTHING, "repair", Damage::EndsTheCopy)
}

/// The size of a written recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CopiedTotals {
    /// Events written.
    pub events: u64,
    /// Time of the last one, in nanoseconds.
    pub duration_ns: u64,
    /// Whether the end of the recording is in the copy.
    pub complete: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Damage {
    IsAnError,
    EndsTheCopy,
}

fn copy(from: &Path, to: &Path, keep: Cut, step: &str, damage: Damage) -> Result<CopiedTotals, MemoryTraceError> {
    let mut reader = Reader::open(from)?;
    let mut writer = Writer::create(to, &with_step(reader.header(), step.to_string()))?;
    let mut events = Vec::new();
    let (mut is_whole, mut lost_events, mut duration_ns) = (true, 0, 0);
    'chunks: loop {
        match reader.next_chunk(&mut events) {
            Ok(true) => {}
            Ok(false) => break,
            Err(MemoryTraceError::Damaged { .. }) if damage == Damage::EndsTheCopy => break,
            Err(why) => return Err(why),
        }
        for event in events.drain(..) {
            if event.time_ns > keep.until_ns || writer.events_total() == keep.events {
                is_whole = false;
                break 'chunks;
            }
            duration_ns = event.time_ns;
            if let Op::Lost { events } = &event.op {
                lost_events = u64::saturating_add(lost_events, *events);
            }
            push_renamed(&reader, &mut writer, event)?;
        }
    }
    let written = writer.events_total();
    while !is_whole && reader.next_chunk(&mut events)? {}
    let footer = reader.footer().cloned();
    let complete = is_whole && footer.is_some();
    writer.finish(&match footer {
        Some(whole) if is_whole => whole,
        whole => Footer {
            end: End::Running,
            end_ns: None,
            lost_events,
            unrecorded_calls: unknown(whole.unwrap_or_default()),
            status: None,
        },
    })?;
    Ok(CopiedTotals { events: written, duration_ns, complete })
}

/// The unrecorded calls of a part: they have no events, so only the whole recording has their number.
fn unknown(whole: Footer) -> BTreeMap<String, Option<u64>> {
    whole.unrecorded_calls.into_keys().map(|call| (call, None)).collect()
}

/// Copies a recording without names, arguments, directories and variables. Programs get the name `program`, files the
/// names `file-1`, `file-2`, ..., modules of call stacks `module-1`, ... Addresses, sizes and times stay: without them nothing could be predicted. Process ids stay
/// too: they connect forked processes with their parents.
///
/// # Errors
/// The input cannot be read or is damaged, or the output cannot be written.
pub fn anonymise(from: &Path, to: &Path) -> Result<CopiedTotals, MemoryTraceError> {
    let mut reader = Reader::open(from)?;
    let mut header = with_step(reader.header(), "anonymise".to_string());
    header.command = vec!["program".to_string()];
    header.input = None;
    header.directory = None;
    header.environment.clear();
    let mut writer = Writer::create(to, &header)?;
    let mut events = Vec::new();
    let mut duration_ns = 0;
    while reader.next_chunk(&mut events)? {
        for mut event in events.drain(..) {
            duration_ns = event.time_ns;
            if let Some(map) = event.op.mapping_mut() {
                map.name = map.name.map(|name| {
                    let plain = reader.name(name);
                    // The kernel's own names, such as [stack], tell nothing about the program.
                    let shown = if plain.starts_with('[') { plain.to_string() } else { format!("file-{}", name.0 + 1) };
                    writer.name(&shown)
                });
            }
            if let Op::NameMapping { name_address, .. } = &mut event.op {
                *name_address = u64::from(*name_address != 0);
            }
            event.site = nameless_site(&reader, &mut writer, event.site);
            writer.push(event)?;
        }
    }
    let totals = CopiedTotals { events: writer.events_total(), duration_ns, complete: reader.footer().is_some() };
    writer.finish(&reader.footer().cloned().unwrap_or_default())?;
    Ok(totals)
}

/// A call site with the same addresses, whose modules have other names and no build ids.
fn nameless_site(reader: &Reader, writer: &mut Writer, site: SiteId) -> SiteId {
    let Some(end) = reader.sites().stack(site).and_then(|stack| stack.end) else { return SiteId::UNKNOWN };
    let nameless = |frame: &Frame| {
        let path = |module: u32| format!("module-{}", module + 1).into();
        let module = frame.module.map(|id| writer.module(&Module { path: path(id), build_id: None }));
        Frame { module, address: frame.address, function: None, source: None }
    };
    let frames: Vec<Frame> = reader.sites().frames_of(site).map(nameless).collect();
    writer.site(frames, end)
}

fn with_step(header: &Header, step: String) -> Header {
    let mut header = header.clone();
    header.history.push(step);
    header
}

/// Writes an event whose names are those of the reader.
pub(crate) fn push_renamed(reader: &Reader, writer: &mut Writer, mut event: Event) -> Result<(), MemoryTraceError> {
    if let Some(map) = event.op.mapping_mut() {
        map.name = map.name.map(|name| writer.name(reader.name(name)));
    }
    event.site = writer.site_of(reader.sites(), event.site);
    writer.push(event)
}
