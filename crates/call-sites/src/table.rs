//! Call sites to which others are added.

use std::collections::HashMap;
use std::hash::Hash;

use crate::sites::{Frame, Module, SiteId, Sites, Stack};

/// Call sites without duplicates, to which others are added. Numbers are in the order of addition.
#[derive(Clone, Debug, Default)]
pub struct SiteTable {
    sites: Sites,
    modules: HashMap<Module, u32>,
    frames: HashMap<Frame, u32>,
    stacks: HashMap<Stack, u32>,
}

impl SiteTable {
    /// All call sites.
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// All call sites.
    pub fn into_sites(self) -> Sites {
        self.sites
    }

    /// The index of a module; equal modules have equal indices.
    pub fn module(&mut self, module: &Module) -> u32 {
        index(&mut self.modules, &mut self.sites.modules, module.clone())
    }

    /// The index of a frame, whose module has an index of this table; equal frames have equal indices.
    pub fn frame(&mut self, frame: Frame) -> u32 {
        index(&mut self.frames, &mut self.sites.frames, frame)
    }

    /// The site of a stack, whose frames have indices of this table; equal stacks have equal sites.
    pub fn stack(&mut self, stack: Stack) -> SiteId {
        SiteId::of_stack(index(&mut self.stacks, &mut self.sites.stacks, stack))
    }

    /// The site of another recording's stack; unknown if that recording does not have it.
    pub fn import(&mut self, from: &Sites, site: SiteId) -> SiteId {
        let Some(stack) = from.stack(site) else { return SiteId::UNKNOWN };
        let frames = from.frames_of(site).map(|frame| {
            let module = from.module_of(frame).map(|module| self.module(module));
            self.frame(Frame { module, ..frame.clone() })
        });
        let frames = frames.collect();
        self.stack(Stack { frames, end: stack.end })
    }

    /// The sites of all stacks of another recording, in their order. Modules and frames without stacks are added, too.
    pub fn import_all(&mut self, from: &Sites) -> Vec<SiteId> {
        let modules: Vec<u32> = from.modules.iter().map(|module| self.module(module)).collect();
        let frame = |frame: &Frame| {
            let module = frame.module.and_then(|module| modules.get(module as usize).copied());
            self.frame(Frame { module, ..frame.clone() })
        };
        let frames: Vec<u32> = from.frames.iter().map(frame).collect();
        let stack = |stack: &Stack| {
            let frames = stack.frames.iter().filter_map(|&frame| frames.get(frame as usize).copied()).collect();
            self.stack(Stack { frames, end: stack.end })
        };
        from.stacks.iter().map(stack).collect()
    }
}

/// The index of a value in a list of distinct values; adds it if it is new.
fn index<T: Clone + Eq + Hash>(indices: &mut HashMap<T, u32>, list: &mut Vec<T>, value: T) -> u32 {
    *indices.entry(value).or_insert_with_key(|value| {
        list.push(value.clone());
        list.len() as u32 - 1
    })
}
