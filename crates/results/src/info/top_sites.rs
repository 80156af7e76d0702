//! `info --sites`: the top call sites of a trace or a memory recording.

use std::path::Path;

use hksim_memory_sim::caller_words;
use hksim_memory_trace::{SiteId, StackEnd, Summary};
use hksim_text::units;
use hksim_trace::error::TraceError;
use hksim_trace::info::SiteUse;
use hksim_trace::source::EventSource;
use hksim_trace::symbols::NamedSites;
use serde::Serialize;

use super::By;
use crate::error::ResultError;

/// What stands for a stack that was not recorded.
const NOT_RECORDED: &str = "(call site not recorded)";

/// The top call sites of a recording; `F`: the figures of each.
#[derive(Debug, Serialize)]
pub struct TopSites<F> {
    /// Number of call sites in the recording.
    sites_total: usize,
    /// The top call sites.
    sites: Vec<TopSite<F>>,
    #[serde(skip)]
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct TopSite<F> {
    #[serde(flatten)]
    figures: F,
    /// Where the stack ends, or `None` for calls whose site is unknown; absent for traces, which do not state it.
    #[serde(skip_serializing_if = "Option::is_none")]
    stack_end: Option<Option<StackEnd>>,
    /// Frames as text, innermost first; empty for calls whose site is unknown.
    stack: Vec<String>,
}

/// A call site as a CSV row, which has no lists.
#[derive(Debug, Serialize)]
pub struct SiteRow<'a, F> {
    #[serde(flatten)]
    figures: &'a F,
    /// Frames, innermost first, separated by `;`.
    stack: String,
}

/// The figures of a call site: the fields before its stack.
pub trait SiteFigures: Serialize {
    /// The figures in words.
    fn words(&self) -> String;
}

impl SiteFigures for SiteUse {
    fn words(&self) -> String {
        let [calls, bytes] = [units::count(self.calls), units::bytes(self.allocated_bytes)];
        let [peak, end] = [units::bytes(self.bytes_at_peak), units::bytes(self.bytes_at_end)];
        format!("{bytes} in {calls} calls; {peak} live at the peak, {end} at the end")
    }
}

/// What calls from a site of a memory recording mapped.
#[derive(Debug, Serialize)]
pub struct MappingFigures {
    /// Number of the call site, from 1; 0 for calls whose site is unknown.
    site: u32,
    #[serde(flatten)]
    used: hksim_memory_trace::SiteUse,
    /// Who asked for the memory.
    caller: String,
}

impl SiteFigures for MappingFigures {
    fn words(&self) -> String {
        let (calls, bytes) = (units::of(self.used.calls, "call"), units::bytes(self.used.mapped_bytes));
        format!("{bytes} mapped in {calls}")
    }
}

impl TopSites<SiteUse> {
    /// The top `count` call sites of a trace, ranked by `by`, with names.
    ///
    /// # Errors
    /// Those of the source.
    pub fn of_trace(source: &mut dyn EventSource, count: usize, by: By) -> Result<Self, TraceError> {
        let mut uses = SiteUse::of(source, by.order())?;
        let sites_total = uses.iter().filter(|used| used.site != 0).count();
        uses.truncate(count);
        let mut names = NamedSites::new(&source.footer().sites);
        let top = uses.into_iter().map(|figures| TopSite {
            stack_end: None,
            stack: names.stack(SiteId(figures.site)),
            figures,
        });
        Ok(Self { sites_total, sites: top.collect(), notes: names.notes() })
    }
}

impl TopSites<MappingFigures> {
    /// The top `count` call sites of a memory recording, ranked by `by`, with names.
    ///
    /// # Errors
    /// The recording has no call stacks, or no such figure.
    pub fn of_recording(path: &Path, summary: &Summary, count: usize, by: By) -> Result<Self, ResultError> {
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
        let sites_total = uses.iter().filter(|used| used.site != SiteId::UNKNOWN).count();
        uses.truncate(count);
        let mut names = NamedSites::new(&summary.site_table);
        let top = uses.into_iter().map(|used| {
            let stack = summary.site_table.stack(used.site);
            let caller = stack.map_or_else(|| NOT_RECORDED.to_string(), |_| caller_words(&mut names, used.site));
            TopSite {
                stack_end: Some(stack.and_then(|stack| stack.end)),
                stack: names.stack(used.site),
                figures: MappingFigures { site: used.site.0, used, caller },
            }
        });
        Ok(Self { sites_total, sites: top.collect(), notes: names.notes() })
    }
}

impl<F: SiteFigures> TopSites<F> {
    /// The call sites as CSV rows.
    pub fn rows(&self) -> Vec<SiteRow<'_, F>> {
        self.sites.iter().map(|top| SiteRow { figures: &top.figures, stack: top.stack.join(";") }).collect()
    }

    /// Notes about names that were not found.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The list as text.
    pub fn table(&self) -> String {
        // Memory recordings without call stacks have no list.
        if self.sites_total == 0 && self.sites.iter().all(|top| top.stack_end.is_none()) {
            return "\ncall sites: none were recorded; record with --stacks\n".into();
        }
        let mut text = format!("\ncall sites: {} of {}\n", self.sites.len(), units::count(self.sites_total as u64));
        for top in &self.sites {
            text += &format!("\n{}\n", top.figures.words());
            for frame in &top.stack {
                text += &format!("    {frame}\n");
            }
            match top.stack_end.flatten() {
                Some(end) if end.is_incomplete() => text += &format!("    ({})\n", end.words()),
                None if top.stack.is_empty() => text += &format!("    {NOT_RECORDED}\n"),
                _ => {}
            }
        }
        text
    }
}
