//! Call sites: the stacks of the calls that made mappings.
//!
//! Each stack is stored once, and events refer to it by a [`SiteId`]. Frames are addresses in files; function names can
//! be looked up later.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Number of a call site in its recording, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub u32);

/// Number of a module in its recording, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

/// A file that code was loaded from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// Its path at the time of the run.
    pub path: Arc<str>,
    /// Its GNU build id; empty if it has none. At most [`BUILD_ID_BYTES_MAX`] bytes.
    pub build_id: Vec<u8>,
}

/// Maximum length of a build id in bytes.
pub const BUILD_ID_BYTES_MAX: usize = 64;

/// A place in the code: the call instruction's last byte, not the return address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The module; `None` for code that belongs to no file (JIT).
    pub module: Option<ModuleId>,
    /// Address in the module's file (the address minus the load bias), or in the process if there is no module.
    pub address: u64,
    /// Function name, if it was looked up.
    pub function: Option<Arc<str>>,
    /// Source file and line, if they were looked up.
    pub source: Option<Arc<str>>,
}

/// Where a stack ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StackEnd {
    /// At the outermost function of the thread.
    Outermost,
    /// At the recorder's limit of frames.
    Depth,
    /// At code without unwind information that keeps no frame pointer: the callers are unknown.
    NoUnwindInformation,
    /// At the end of the recorded part of the stack: the callers are unknown.
    StackCutOff,
}

impl StackEnd {
    /// Every end, in the order of the codes in a file.
    pub const ALL: [Self; 4] = [Self::Outermost, Self::Depth, Self::NoUnwindInformation, Self::StackCutOff];

    /// Whether callers are missing that the recorder was asked for.
    pub const fn is_incomplete(self) -> bool {
        matches!(self, Self::NoUnwindInformation | Self::StackCutOff)
    }

    /// The end in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Outermost => "complete",
            Self::Depth => "ended at the limit of frames",
            Self::NoUnwindInformation => "incomplete: code without unwind information",
            Self::StackCutOff => "incomplete: deeper than the recorded part of the stack",
        }
    }
}

/// The stack of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Frames, innermost first; at most [`FRAMES_MAX`].
    pub frames: Vec<Frame>,
    /// Where it ends.
    pub end: StackEnd,
}

/// Maximum number of frames of a stack, inlined functions included.
pub const FRAMES_MAX: usize = 1024;

/// All call sites of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// The program and its shared objects.
    pub modules: Vec<Module>,
    /// Stacks without duplicates, by [`SiteId`].
    pub stacks: Vec<Stack>,
}

impl Sites {
    /// The stack of a site.
    pub fn stack(&self, site: SiteId) -> Option<&Stack> {
        self.stacks.get(site.0 as usize)
    }

    /// The module of a frame.
    pub fn module_of(&self, frame: &Frame) -> Option<&Module> {
        self.modules.get(frame.module?.0 as usize)
    }
}

/// Call sites to which others are added.
#[derive(Clone, Debug, Default)]
pub struct SiteTable {
    sites: Sites,
    modules: HashMap<Module, ModuleId>,
    stacks: HashMap<Stack, SiteId>,
}

impl SiteTable {
    /// All call sites.
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// The number of a module; equal modules have equal numbers.
    pub fn module(&mut self, module: &Module) -> ModuleId {
        if let Some(&id) = self.modules.get(module) {
            return id;
        }
        let id = ModuleId(self.sites.modules.len() as u32);
        self.sites.modules.push(module.clone());
        self.modules.insert(module.clone(), id);
        id
    }

    /// The number of a stack, whose modules have numbers of this table; equal stacks have equal numbers.
    pub fn site(&mut self, stack: &Stack) -> SiteId {
        if let Some(&id) = self.stacks.get(stack) {
            return id;
        }
        let id = SiteId(self.sites.stacks.len() as u32);
        self.sites.stacks.push(stack.clone());
        self.stacks.insert(stack.clone(), id);
        id
    }

    /// The number of a site of another recording; `None` if that recording does not have it.
    pub fn import(&mut self, from: &Sites, site: SiteId) -> Option<SiteId> {
        let stack = from.stack(site)?;
        let module = |table: &mut Self, frame: &Frame| Some(table.module(from.module_of(frame)?));
        let frames = stack.frames.iter().map(|frame| Frame { module: module(self, frame), ..frame.clone() });
        let frames = frames.collect();
        Some(self.site(&Stack { frames, end: stack.end }))
    }
}
