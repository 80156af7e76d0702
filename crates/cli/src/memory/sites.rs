//! Call sites of memory recordings: their names, and `info --sites`.

use std::path::Path;

use anyhow::{Result, bail};
use hksim_memory_trace::{SiteId, SiteUse, Sites, Summary};
use hksim_trace::sites as trace;
use serde::Serialize;

use crate::commands::info::sites::By;
use crate::output::units;
use crate::symbols::{Symbols, frame_text};

/// Shared objects that serve memory to others, by the beginning of their file name: the caller of interest is outside.
const SERVING: [&str; 10] = [
    "libc.so",
    "libc-",
    "ld-linux",
    "ld-musl",
    "libjemalloc",
    "libmimalloc",
    "libtcmalloc",
    "libsnmalloc",
    "libstdc++",
    "libhksim",
];
/// Functions that serve memory to others, without leading underscores, in programs that contain their allocator or libc.
const SERVING_FUNCTIONS: [&str; 16] = [
    "malloc",
    "int_malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "mmap",
    "mmap64",
    "mremap",
    "brk",
    "sbrk",
    "sysmalloc",
];
/// Beginnings of the names of other such functions: of jemalloc, mimalloc, tcmalloc and C++.
const SERVING_PREFIXES: [&str; 7] = ["je_", "mi_", "_mi_", "tc_", "operator new", "sysmalloc_mmap", "int_memalign"];

/// The call sites of a recording, with names looked up once.
pub struct NamedSites {
    /// Frames in the form of traces of allocator calls; site `n` of the recording is site `n + 1` here.
    sites: trace::Sites,
    symbols: Symbols,
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
        Self { sites: converted, symbols: Symbols::default() }
    }

    /// The frames of a site with inlined functions, innermost first.
    fn frames(&mut self, site: SiteId) -> Vec<trace::Frame> {
        let Self { sites, symbols } = self;
        let site = hksim_trace::event::SiteId(site.0 + 1);
        sites.frames_of(site).flat_map(|frame| symbols.frames(sites, frame)).collect()
    }

    /// The frames of a site as text, innermost first.
    pub fn stack(&mut self, site: SiteId) -> Vec<String> {
        let frames = self.frames(site);
        frames.iter().map(|frame| frame_text(&self.sites, frame)).collect()
    }

    /// Who asked for the memory of a site: the innermost frame outside the C library and allocators, or else the
    /// outermost frame.
    pub fn caller(&mut self, site: SiteId) -> String {
        let frames = self.frames(site);
        let found = frames.iter().find(|frame| !self.serves(frame)).or(frames.last());
        found.map_or("(empty stack)".to_string(), |frame| self.short(frame))
    }

    fn serves(&self, frame: &trace::Frame) -> bool {
        let file = self.sites.module_of(frame).map(|module| file_name(&module.path));
        let by_file = file.is_some_and(|file| SERVING.iter().any(|known| file.starts_with(known)));
        let name = frame.function.as_deref().unwrap_or_default();
        let plain = name.trim_start_matches('_').trim_start_matches("libc_").trim_start_matches("GI_");
        by_file
            || SERVING_FUNCTIONS.contains(&plain)
            || SERVING_PREFIXES.iter().any(|beginning| name.starts_with(beginning) || plain.starts_with(beginning))
    }

    /// A frame in a few words: the function, or file and offset.
    fn short(&self, frame: &trace::Frame) -> String {
        match (&frame.function, self.sites.module_of(frame)) {
            (Some(function), _) => function.clone(),
            (None, Some(module)) => format!("{}+{:#x}", file_name(&module.path), frame.address),
            (None, None) => "generated code".to_string(),
        }
    }

    /// One note for each module without names or with doubtful names.
    pub fn notes(&self) -> Vec<String> {
        self.symbols.notes(&self.sites)
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
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
    used: SiteUse,
    /// Who asked for the memory.
    caller: String,
    /// Where the stack ends.
    stack_end: Option<hksim_memory_trace::StackEnd>,
    /// Frames as text, innermost first; empty for calls whose site is unknown.
    stack: Vec<String>,
}

/// A call site as a CSV row, which has no lists.
#[derive(Debug, Serialize)]
pub struct SiteRow<'a> {
    site: u32,
    #[serde(flatten)]
    used: &'a SiteUse,
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
        let top = uses.into_iter().map(|used| TopSite {
            site: used.site.map_or(0, |site| site.0 + 1),
            caller: used.site.map_or("(call site not recorded)".to_string(), |site| named.caller(site)),
            stack_end: used.site.and_then(|site| summary.site_table.stack(site)).map(|stack| stack.end),
            stack: used.site.map_or(Vec::new(), |site| named.stack(site)),
            used,
        });
        let sites = top.collect();
        Ok(Self { sites_total, sites, notes: named.notes() })
    }

    /// The call sites as CSV rows.
    pub fn rows(&self) -> Vec<SiteRow<'_>> {
        let row = |top: &'_ TopSite| (top.site, top.stack.join(";"));
        self.sites
            .iter()
            .map(|top| {
                let (site, stack) = row(top);
                SiteRow { site, used: &top.used, caller: &top.caller, stack }
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
