//! Call sites: where in the program memory was asked for.
//!
//! A stack is stored once, and an event names it by a [`SiteId`]. Frames are places in files, so that names can be looked up
//! later, and only by those who want them.

use crate::event::SiteId;
use serde::{Deserialize, Serialize};

/// All call sites of a trace: stacks of frames, frames in modules. Indices may point nowhere in a hostile file, so
/// everything is looked up with `get`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sites {
    /// Program and shared objects.
    pub modules: Vec<Module>,
    /// Places in the code, each once.
    pub frames: Vec<Frame>,
    /// Stacks, each once, innermost frame first, as indices into `frames`. Site `n` is stack `n - 1`.
    pub stacks: Vec<Vec<u32>>,
}

/// A file that code was loaded from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Module {
    /// Its path while the program ran.
    pub path: String,
    /// Its GNU build id in hexadecimal, where it has one: tells whether a file found later is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

/// A place in the code: the call itself, not the instruction behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Index of the module; `None` for code that belongs to no file (JIT).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<u32>,
    /// Address within the module as its file counts it (the address less the load bias); within the process where there
    /// is no module.
    pub address: u64,
    /// Function, where names were looked up or the source format had them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Source file and line, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Sites {
    /// Whether no site is known.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// The frames of a site, innermost first; nothing for an unknown one.
    pub fn frames_of(&self, site: SiteId) -> impl Iterator<Item = &Frame> + '_ {
        let stack = (site.0 as usize).checked_sub(1).and_then(|at| self.stacks.get(at));
        stack.into_iter().flatten().filter_map(|&frame| self.frames.get(frame as usize))
    }

    /// The module of a frame.
    pub fn module_of(&self, frame: &Frame) -> Option<&Module> {
        self.modules.get(frame.module? as usize)
    }
}
