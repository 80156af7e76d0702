//! Symbolises call sites: looks up functions, source files and lines in the files of this machine.

mod caller;
mod files;
mod limits;
mod named;

use std::collections::HashMap;

use crate::{Frame, Sites, Stack};

pub use caller::{Caller, caller, file_name, short_text};
use files::ModuleNames;
pub use named::NamedSites;

/// Looks up frames, opening each file once.
#[derive(Default)]
pub struct Symbols {
    modules: HashMap<u32, ModuleNames>,
}

impl Symbols {
    /// Expands a frame into itself and its inlined functions, innermost first, with the known names. Never empty; a frame
    /// that already has a name is unchanged.
    pub fn frames(&mut self, sites: &Sites, frame: &Frame) -> Vec<Frame> {
        let (Some(index), Some(module), None) = (frame.module, sites.module_of(frame), &frame.function) else {
            return vec![frame.clone()];
        };
        let names = self.modules.entry(index).or_insert_with(|| ModuleNames::find(module)).at(frame.address);
        let named = |(function, source): (String, Option<String>)| Frame {
            function: Some(function.into()),
            source: source.map(Into::into),
            ..frame.clone()
        };
        match names.is_empty() {
            true => vec![frame.clone()],
            false => names.into_iter().map(named).collect(),
        }
    }

    /// All call sites with their names.
    pub fn sites(&mut self, sites: &Sites) -> Sites {
        let mut named = Sites { modules: sites.modules.clone(), ..Sites::default() };
        let mut places: Vec<Vec<u32>> = Vec::new();
        for frame in &sites.frames {
            let first = named.frames.len() as u32;
            named.frames.extend(self.frames(sites, frame));
            places.push((first..named.frames.len() as u32).collect());
        }
        let stack = |stack: &Stack| {
            let frames = stack.frames.iter().filter_map(|&at| places.get(at as usize)).flatten().copied().collect();
            Stack { frames, end: stack.end }
        };
        named.stacks = sites.stacks.iter().map(stack).collect();
        named
    }

    /// One note for each module without names or with doubtful names.
    pub fn notes(&self, sites: &Sites) -> Vec<String> {
        let note = |(&index, names): (&u32, &ModuleNames)| Some((index, names.note.clone()?));
        let mut notes: Vec<(u32, String)> = self.modules.iter().filter_map(note).collect();
        notes.sort_unstable();
        let path = |index: u32| sites.modules.get(index as usize).map_or("?", |module| &*module.path);
        notes.into_iter().map(|(index, note)| format!("{}: {note}", path(index))).collect()
    }
}

/// A frame as text: function and line, or module and offset.
pub fn frame_text(sites: &Sites, frame: &Frame) -> String {
    let place = match sites.module_of(frame) {
        Some(module) => format!("{}+{:#x}", module.path, frame.address),
        None => format!("{:#x} (no file)", frame.address),
    };
    match (&frame.function, &frame.source) {
        (Some(function), Some(source)) => format!("{function}  {source}"),
        (Some(function), None) => format!("{function}  {place}"),
        (None, _) => place,
    }
}
