//! Removes everything that identifies the program from a trace, but keeps its allocations.

use super::Edit;
use super::size_classes::{CoarseTouches, class_ceiling};
use crate::event::{Event, ObjectId, Op};
use crate::header::{Footer, Header, HistoryStep, Origin};
use crate::profile::SiteProfile;
use crate::sites::{Frame, Module, Sites};
use serde_json::{Map, json};
use std::collections::HashMap;

/// How precisely sizes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeDetail {
    /// Exact sizes.
    Exact,
    /// Sizes rounded up to four steps per power of two (to multiples of 16 up to 64 bytes), like most allocators' size
    /// classes. Touches that would reveal the size are made coarser.
    Classes,
}

/// The edit. Command, paths, process ids, mark names, functions, addresses and build ids are replaced by numbers.
/// Sizes, times, threads and the order of calls are kept, so anyone who has the program can still recognise its trace.
#[derive(Clone, Debug)]
pub struct Anonymise {
    sizes: SizeDetail,
    pids: HashMap<u32, u32>,
    /// The coarse touches of each object. Used only with [`SizeDetail::Classes`].
    touches: Vec<CoarseTouches>,
}

impl Anonymise {
    /// Keeps sizes as precisely as `sizes` says.
    pub fn new(sizes: SizeDetail) -> Self {
        Anonymise { sizes, pids: HashMap::new(), touches: Vec::new() }
    }

    fn size(&self, size: u64) -> u64 {
        match self.sizes {
            SizeDetail::Exact => size,
            SizeDetail::Classes => class_ceiling(size),
        }
    }

    /// The coarse touches of an object.
    fn touches(&mut self, object: ObjectId) -> &mut CoarseTouches {
        let at = object.0 as usize;
        if at >= self.touches.len() {
            self.touches.resize(at + 1, CoarseTouches::default());
        }
        &mut self.touches[at]
    }

    /// Tracks the size of an object. For a touch, emits its coarse form and returns true, as the event is then handled.
    fn coarsen(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) -> bool {
        match event.op {
            Op::Alloc { object, size, .. } | Op::ReallocUnknown { object, size, .. } => {
                *self.touches(object) = CoarseTouches::default();
                self.touches(object).resize(size);
            }
            Op::Realloc { object, size, .. } => self.touches(object).resize(size),
            Op::Touch { object, offset, bytes, access } => {
                self.touches(object).touch(offset, bytes, access, &mut |offset, bytes| {
                    emit(Event { op: Op::Touch { object, offset, bytes, access }, ..*event });
                });
                return true;
            }
            _ => (),
        }
        false
    }
}

impl Edit for Anonymise {
    fn edit(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        if self.sizes == SizeDetail::Classes && self.coarsen(event, emit) {
            return;
        }
        let mut op = event.op;
        match &mut op {
            Op::Alloc { size, .. } | Op::Realloc { size, .. } | Op::ReallocUnknown { size, .. } => {
                *size = self.size(*size).min(Op::BLOCK_BYTES_END - 1);
            }
            Op::AllocFailed { size, .. } | Op::ReallocFailed { size, .. } => *size = self.size(*size),
            Op::Fork { child_pid } | Op::ForkEnd { child_pid, .. } => {
                let number = self.pids.len() as u32 + 2;
                *child_pid = *self.pids.entry(*child_pid).or_insert(number);
            }
            _ => (),
        }
        emit(Event { op, ..*event });
    }

    fn header(&self, source: &Header) -> Header {
        let origin = match &source.origin {
            &Origin::Recorded { attached, .. } => {
                Origin::Recorded { command: vec!["program".into()], pid: 1, program_version: None, attached }
            }
            Origin::Imported { format, .. } => Origin::Imported { format: format.clone(), file: "trace".into() },
            generated @ Origin::Generated { .. } => generated.clone(),
        };
        // Parameters of earlier steps can name files, marks and processes.
        let steps = source.history.iter().map(|step| HistoryStep { tool: step.tool.clone(), parameters: Map::new() });
        let sizes = if self.sizes == SizeDetail::Exact { "exact" } else { "classes" };
        let step = HistoryStep::new("anonymise", [("sizes", json!(sizes))]);
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

/// The same stacks, with modules and functions replaced by numbers.
fn sites(source: &Sites) -> Sites {
    let module = |(at, _)| Module { path: format!("module-{}", at + 1).into(), build_id: None };
    let frame = |(at, frame): (usize, &Frame)| Frame {
        module: frame.module,
        address: at as u64,
        function: Some(format!("function-{}", at + 1).into()),
        source: None,
    };
    Sites {
        modules: source.modules.iter().enumerate().map(module).collect(),
        frames: source.frames.iter().enumerate().map(frame).collect(),
        stacks: source.stacks.clone(),
    }
}
