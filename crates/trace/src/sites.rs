//! Call sites: where the program requested memory.
//!
//! Each stack is stored once, and events refer to it by a [`SiteId`]. Frames are addresses in files; function names can
//! be looked up later, on request.

use crate::event::SiteId;
use serde::{Deserialize, Serialize};

/// All call sites of a trace: stacks of frames, frames in modules. Indices in a hostile file may be out of range, so
/// use `get` for every lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sites {
    /// The program and its shared objects.
    pub modules: Vec<Module>,
    /// Places in the code, without duplicates.
    pub frames: Vec<Frame>,
    /// Stacks without duplicates, innermost frame first, as indices into `frames`. Site `n` is stack `n - 1`.
    pub stacks: Vec<Vec<u32>>,
}

/// A file that code was loaded from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Module {
    /// Its path at the time of the run.
    pub path: String,
    /// Its GNU build id in hexadecimal, if it has one. Identifies the file if symbols are looked up later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

/// A place in the code: the call instruction, not the return address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Index of the module; `None` for code that belongs to no file (JIT).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<u32>,
    /// Address in the module's file (the address minus the load bias), or in the process if there is no module.
    pub address: u64,
    /// Function name, if it was looked up or the source format has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Source file and line, if they were looked up or the source format has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Sites {
    /// Whether no call site is known.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// The frames of a site, innermost first; none for an unknown site.
    pub fn frames_of(&self, site: SiteId) -> impl Iterator<Item = &Frame> + '_ {
        let stack = (site.0 as usize).checked_sub(1).and_then(|at| self.stacks.get(at));
        stack.into_iter().flatten().filter_map(|&frame| self.frames.get(frame as usize))
    }

    /// The module of a frame.
    pub fn module_of(&self, frame: &Frame) -> Option<&Module> {
        self.modules.get(frame.module? as usize)
    }
}
