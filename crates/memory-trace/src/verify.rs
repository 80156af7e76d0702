//! Checks whether a recording is sound.

use std::collections::HashSet;
use std::path::Path;

use serde::Serialize;

use crate::error::MemoryTraceError;
use crate::event::{Event, Op};
use crate::reader::Reader;

/// The result of checking a whole recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verified {
    /// Whether all checksums match, every event can be decoded, and the end is there.
    pub valid: bool,
    /// Number of usable events: those before the first damage.
    pub events: u64,
    /// Time of the last usable event, in nanoseconds.
    pub duration_ns: u64,
    /// The damage: what is wrong and where.
    pub damage: Option<String>,
    /// Inconsistencies that do not prevent using the recording.
    pub findings: Vec<Finding>,
}

/// An inconsistency that a complete recording does not have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// A description.
    pub description: &'static str,
    /// Number of events to which the description applies.
    pub events: u64,
    /// Index of the first of these events, from 0.
    pub first_event: u64,
}

/// Reads a whole recording and checks every checksum and event.
///
/// # Errors
/// The file cannot be read, or is no recording.
pub fn verify(path: &Path) -> Result<Verified, MemoryTraceError> {
    let mut verified = Verified::default();
    let mut reader = match Reader::open(path) {
        Err(why @ MemoryTraceError::BadHeader { .. }) => {
            return Ok(Verified { damage: Some(why.to_string()), ..verified });
        }
        opened => opened?,
    };
    let mut forked = HashSet::new();
    let mut events = Vec::new();
    loop {
        match reader.next_chunk(&mut events) {
            Ok(true) => events.iter().for_each(|event| verified.event(event, &mut forked)),
            Ok(false) => break,
            Err(why @ MemoryTraceError::Damaged { .. }) => {
                verified.damage = Some(why.to_string());
                break;
            }
            Err(why) => return Err(why),
        }
    }
    if verified.damage.is_none() {
        verified.damage = end(&mut reader)?;
    }
    verified.valid = verified.damage.is_none();
    Ok(verified)
}

/// What is wrong with the end of a file whose chunks are sound.
fn end(reader: &mut Reader) -> Result<Option<String>, MemoryTraceError> {
    let offset = reader.offset();
    if reader.footer().is_none() {
        return Ok(Some(format!("truncated: the file ends within the part that begins at byte {offset}")));
    }
    let bytes = reader.bytes_after_footer()?;
    Ok((bytes > 0).then(|| format!("{bytes} bytes follow the end of the recording at byte {offset}")))
}

impl Verified {
    fn event(&mut self, event: &Event, forked: &mut HashSet<u32>) {
        match &event.op {
            Op::Lost { .. } => self.find("the recorder lost events here: figures are too small"),
            Op::Fork { child_pid } => drop(forked.insert(*child_pid)),
            Op::ChildEnded { child_pid } if !forked.remove(child_pid) => {
                self.find("the end of a child that was not forked before");
            }
            _ => {}
        }
        self.events += 1;
        self.duration_ns = event.time_ns;
    }

    fn find(&mut self, description: &'static str) {
        match self.findings.iter_mut().find(|finding| finding.description == description) {
            Some(finding) => finding.events += 1,
            None => self.findings.push(Finding { description, events: 1, first_event: self.events }),
        }
    }
}
