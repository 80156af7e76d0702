//! A trace that tells what was allocated, and not of whom.

use super::Edit;
use crate::event::{Event, Op};
use crate::header::{Footer, Header, Origin, Step};
use crate::profile::SiteProfile;
use crate::sites::{Frame, Module, Sites};
use serde_json::{Map, json};
use std::collections::HashMap;

/// How much of the sizes is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeDetail {
    /// All.
    Exact,
    /// Rounded up to four steps per power of two (and to 16 bytes below 64): what most allocators' size classes keep.
    Classes,
}

/// The edit: command, paths, process ids, mark names, functions, addresses and build ids become numbers. Sizes, times, threads and the
/// order of calls stay, and can still be recognised by those who have the program.
#[derive(Clone, Debug)]
pub struct Anonymise {
    sizes: SizeDetail,
    pids: HashMap<u32, u32>,
}

impl Anonymise {
    /// Keeps sizes in the given detail.
    pub fn new(sizes: SizeDetail) -> Self {
        Anonymise { sizes, pids: HashMap::new() }
    }

    fn size(&self, size: u64) -> u64 {
        match self.sizes {
            SizeDetail::Exact => size,
            SizeDetail::Classes => class_ceiling(size),
        }
    }
}

/// The smallest size of at least `size` that has only three significant bits, or is a multiple of 16 below 64.
fn class_ceiling(size: u64) -> u64 {
    if size <= 64 {
        return size.next_multiple_of(16);
    }
    let step = 1u64 << (63 - (size - 1).leading_zeros()).saturating_sub(2);
    size.checked_next_multiple_of(step).unwrap_or(size)
}

impl Edit for Anonymise {
    fn edit(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        let mut op = event.op;
        match &mut op {
            Op::Alloc { size, .. } | Op::Realloc { size, .. } | Op::ReallocUnknown { size, .. } => {
                *size = self.size(*size).min(Op::BLOCK_BYTES_END - 1);
            }
            Op::AllocFailed { size, .. } | Op::ReallocFailed { size, .. } => *size = self.size(*size),
            Op::Fork { child_pid } => {
                let number = self.pids.len() as u32 + 2;
                *child_pid = *self.pids.entry(*child_pid).or_insert(number);
            }
            _ => (),
        }
        emit(Event { op, ..*event });
    }

    fn header(&self, source: &Header) -> Header {
        let origin = match &source.origin {
            Origin::Recorded { .. } => {
                Origin::Recorded { command: vec!["program".into()], pid: 1, program_version: None }
            }
            Origin::Imported { format, .. } => Origin::Imported { format: format.clone(), file: "trace".into() },
            generated @ Origin::Generated { .. } => generated.clone(),
        };
        // Parameters of earlier steps can name files, marks and processes.
        let steps = source.history.iter().map(|step| Step { tool: step.tool.clone(), parameters: Map::new() });
        let sizes = if self.sizes == SizeDetail::Exact { "exact" } else { "classes" };
        let step = Step::new("anonymise", [("sizes", json!(sizes))]);
        Header { origin, history: steps.chain([step]).collect(), ..source.clone() }
    }

    fn footer(&self, source: &Footer) -> Footer {
        let named = |what: &str, count: usize| (1..=count).map(|number| format!("{what}-{number}")).collect();
        Footer {
            mark_names: named("mark", source.mark_names.len()),
            sites: sites(&source.sites),
            profiles: SiteProfile::with_sizes(&source.profiles, |bytes| self.size(bytes)),
            ..source.clone()
        }
    }
}

/// The same stacks, of frames that are nothing but numbers.
fn sites(source: &Sites) -> Sites {
    let module = |(at, _)| Module { path: format!("module-{}", at + 1), build_id: None };
    let frame = |(at, frame): (usize, &Frame)| Frame {
        module: frame.module,
        address: at as u64,
        function: Some(format!("function-{}", at + 1)),
        source: None,
    };
    Sites {
        modules: source.modules.iter().enumerate().map(module).collect(),
        frames: source.frames.iter().enumerate().map(frame).collect(),
        stacks: source.stacks.clone(),
    }
}
