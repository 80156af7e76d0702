//! Call sites of recordings, with their names.

use std::collections::HashMap;

use hksim_memory_trace::{SiteId, Sites, StackEnd};
use hksim_trace::sites::{Frame, Module, Sites as TraceSites};
use hksim_trace::symbols::{Caller, Symbols, caller, frame_text, short_text};
use serde::{Deserialize, Serialize};

use crate::groups::use_words;
use crate::sites::{SitePrediction, SiteUse};

/// The call sites of a recording, with names looked up once.
pub struct NamedSites {
    /// Frames in the form of traces of allocator calls; site `n` of the recording is site `n + 1` here.
    sites: TraceSites,
    symbols: Symbols,
    ends: Vec<StackEnd>,
    /// Callers and stacks that were looked up.
    known: HashMap<SiteId, (String, Vec<String>)>,
}

impl NamedSites {
    /// Prepares the call sites of a recording.
    pub fn new(sites: &Sites) -> Self {
        let mut converted = TraceSites::default();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        converted.modules = sites
            .modules
            .iter()
            .map(|module| {
                let build_id = Some(hex(&module.build_id)).filter(|id| !id.is_empty());
                Module { path: module.path.to_string(), build_id }
            })
            .collect();
        for stack in &sites.stacks {
            let first = converted.frames.len() as u32;
            converted.frames.extend(stack.frames.iter().map(|frame| Frame {
                module: frame.module.map(|module| module.0),
                address: frame.address,
                function: frame.function.as_ref().map(|name| name.to_string()),
                source: frame.source.as_ref().map(|name| name.to_string()),
            }));
            converted.stacks.push((first..converted.frames.len() as u32).collect());
        }
        let ends = sites.stacks.iter().map(|stack| stack.end).collect();
        Self { sites: converted, symbols: Symbols::default(), ends, known: HashMap::new() }
    }

    /// The frames of a site with inlined functions, innermost first.
    fn frames(&mut self, site: SiteId) -> Vec<Frame> {
        let Self { sites, symbols, .. } = self;
        let site = hksim_trace::event::SiteId(site.0 + 1);
        sites.frames_of(site).flat_map(|frame| symbols.frames(sites, frame)).collect()
    }

    /// Where the stack of a site ends.
    pub fn end(&self, site: SiteId) -> Option<StackEnd> {
        self.ends.get(site.0 as usize).copied()
    }

    /// Who asked for the memory of a site, and its frames as text, innermost first. Who asked is the innermost frame
    /// outside the C library and allocators, or else the outermost frame.
    pub fn names(&mut self, site: SiteId) -> (String, Vec<String>) {
        if let Some(known) = self.known.get(&site) {
            return known.clone();
        }
        let frames = self.frames(site);
        let is_incomplete = self.end(site).is_some_and(StackEnd::is_incomplete);
        let caller = match caller(&self.sites, &frames) {
            Some(Caller { frame, is_outside }) => {
                let unknown = if is_incomplete && !is_outside { " (callers unknown)" } else { "" };
                short_text(&self.sites, frame) + unknown
            }
            None => "(empty stack)".to_string(),
        };
        let names = (caller, frames.iter().map(|frame| frame_text(&self.sites, frame)).collect());
        self.known.insert(site, names.clone());
        names
    }

    /// What a site's memory costs, with its name.
    pub fn site(&mut self, costs: &SitePrediction) -> NamedSite {
        let (caller, stack) = match costs.site {
            SiteUse::Site(site) => self.names(site),
            SiteUse::Unknown(usage) => (use_words(usage).to_string(), Vec::new()),
        };
        let stack_end = match costs.site {
            SiteUse::Site(site) => self.end(site),
            SiteUse::Unknown(_) => None,
        };
        NamedSite { caller, stack_end, stack, costs: costs.clone() }
    }

    /// One note for each module without names or with doubtful names.
    pub fn notes(&self) -> Vec<String> {
        self.symbols.notes(&self.sites)
    }
}

/// What the memory of a call site costs, with its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedSite {
    /// Who asked for the memory: the innermost function outside the C library and allocators; without a call site, the use
    /// of the memory.
    pub caller: String,
    /// Where the stack ends.
    pub stack_end: Option<StackEnd>,
    /// Frames as text, innermost first; empty if the call site is unknown.
    pub stack: Vec<String>,
    /// The figures.
    #[serde(flatten)]
    pub costs: SitePrediction,
}
