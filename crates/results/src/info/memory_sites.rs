//! `info --sites` for memory recordings: the top call sites.

use std::path::Path;

use hksim_memory_sim::NamedSites;
use hksim_memory_trace::{StackEnd, Summary};
use hksim_text::units;
use serde::Serialize;

use super::By;
use crate::error::ResultError;

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
    pub fn of(path: &Path, summary: &Summary, count: usize, by: By) -> Result<Self, ResultError> {
        if summary.stacks.is_none() {
            return Err(ResultError::file(format!(
                "{}: no call stacks were recorded; record with --memory --stacks",
                path.display()
            )));
        }
        let mut uses = summary.sites.clone();
        match by {
            By::Bytes => {}
            By::Calls => uses.sort_by_key(|used| std::cmp::Reverse(used.calls)),
            By::Peak | By::End => {
                return Err(ResultError::file("--by: a memory recording has `bytes` and `calls`".to_string()));
            }
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
