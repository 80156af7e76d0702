//! Call sites of memory recordings: their names, and `info --sites`.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Result, bail};
use hksim_memory_sim::{SitePrediction, SiteUse};
use hksim_memory_trace::{SiteId, Sites, StackEnd, Summary};
use hksim_trace::sites as trace;
use serde::Serialize;

use super::groups::use_words;
use crate::commands::info::sites::By;
use crate::output::units;
use crate::symbols::{Caller, Symbols, caller, frame_text, short_text};

/// The call sites of a recording, with names looked up once.
pub struct NamedSites {
    /// Frames in the form of traces of allocator calls; site `n` of the recording is site `n + 1` here.
    sites: trace::Sites,
    symbols: Symbols,
    ends: Vec<StackEnd>,
    /// Callers and stacks that were looked up.
    known: HashMap<SiteId, (String, Vec<String>)>,
}

impl NamedSites {
    /// Prepares the call sites of a recording.
    pub fn new(sites: &Sites) -> Self {
        let mut converted = trace::Sites::default();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        converted.modules = sites
            .modules
            .iter()
            .map(|module| {
                let build_id = Some(hex(&module.build_id)).filter(|id| !id.is_empty());
                trace::Module { path: module.path.to_string(), build_id }
            })
            .collect();
        for stack in &sites.stacks {
            let first = converted.frames.len() as u32;
            converted.frames.extend(stack.frames.iter().map(|frame| trace::Frame {
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
    fn frames(&mut self, site: SiteId) -> Vec<trace::Frame> {
        let Self { sites, symbols, .. } = self;
        let site = hksim_trace::event::SiteId(site.0 + 1);
        sites.frames_of(site).flat_map(|frame| symbols.frames(sites, frame)).collect()
    }

    /// Where the stack of a site ends.
    fn end(&self, site: SiteId) -> Option<StackEnd> {
        self.ends.get(site.0 as usize).copied()
    }

    /// Who asked for the memory of a site, and its frames as text, innermost first. Who asked is the innermost frame
    /// outside the C library and allocators, or else the outermost frame.
    fn names(&mut self, site: SiteId) -> (String, Vec<String>) {
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
#[derive(Clone, Debug, Serialize)]
pub struct NamedSite {
    /// Who asked for the memory: the innermost function outside the C library and allocators; without a call site, the use
    /// of the memory.
    pub caller: String,
    /// Where the stack ends.
    pub stack_end: Option<StackEnd>,
    /// Frames as text, innermost first; empty if the call site is unknown.
    pub stack: Vec<String>,
    /// What the site's memory costs.
    #[serde(flatten)]
    pub costs: SitePrediction,
}

/// The top call sites of a recording.
#[derive(Debug, Serialize)]
pub struct TopSites {
    /// Number of call sites in the recording.
    sites_total: usize,
    /// The top call sites.
    sites: Vec<TopSite>,
    #[serde(skip)]
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct TopSite {
    /// Number of the call site, from 1; 0 for calls whose site is unknown.
    site: u32,
    #[serde(flatten)]
    used: hksim_memory_trace::SiteUse,
    /// Who asked for the memory.
    caller: String,
    /// Where the stack ends.
    stack_end: Option<StackEnd>,
    /// Frames as text, innermost first; empty for calls whose site is unknown.
    stack: Vec<String>,
}

/// A call site as a CSV row, which has no lists.
#[derive(Debug, Serialize)]
pub struct SiteRow<'a> {
    site: u32,
    #[serde(flatten)]
    used: &'a hksim_memory_trace::SiteUse,
    caller: &'a str,
    /// Frames, innermost first, separated by `;`.
    stack: String,
}

impl TopSites {
    /// The top `count` call sites of a recording, ranked by `by`, with names.
    ///
    /// # Errors
    /// The recording has no call stacks, or no such figure.
    pub fn of(path: &Path, summary: &Summary, count: usize, by: By) -> Result<Self> {
        if summary.stacks.is_none() {
            bail!("{}: no call stacks were recorded; record with --memory --stacks", path.display());
        }
        let mut uses = summary.sites.clone();
        match by {
            By::Bytes => {}
            By::Calls => uses.sort_by_key(|used| std::cmp::Reverse(used.calls)),
            By::Peak | By::End => bail!("--by: a memory recording has `bytes` and `calls`"),
        }
        let sites_total = uses.iter().filter(|used| used.site.is_some()).count();
        uses.truncate(count);
        let mut named = NamedSites::new(&summary.site_table);
        let top = uses.into_iter().map(|used| {
            let nameless = || ("(call site not recorded)".to_string(), Vec::new());
            let (caller, stack) = used.site.map_or_else(nameless, |site| named.names(site));
            let stack_end = used.site.and_then(|site| named.end(site));
            TopSite { site: used.site.map_or(0, |site| site.0 + 1), used, caller, stack_end, stack }
        });
        let sites = top.collect();
        Ok(Self { sites_total, sites, notes: named.notes() })
    }

    /// The call sites as CSV rows.
    pub fn rows(&self) -> Vec<SiteRow<'_>> {
        self.sites
            .iter()
            .map(|TopSite { site, used, caller, stack, .. }| SiteRow {
                site: *site,
                used,
                caller,
                stack: stack.join(";"),
            })
            .collect()
    }

    /// Notes about names that were not found.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The list as text.
    pub fn table(&self) -> String {
        let mut text = format!("\ncall sites: {} of {}\n", self.sites.len(), units::count(self.sites_total as u64));
        for top in &self.sites {
            let (calls, bytes) = (units::of(top.used.calls, "call"), units::bytes(top.used.mapped_bytes));
            text += &format!("\n{bytes} mapped in {calls}\n");
            for frame in &top.stack {
                text += &format!("    {frame}\n");
            }
            match top.stack_end {
                None => text += "    (call site not recorded)\n",
                Some(end) if end.is_incomplete() => text += &format!("    ({})\n", end.words()),
                Some(_) => {}
            }
        }
        text
    }
}
