//! `info --sites`: the top call sites.

use hksim_text::units;
use hksim_trace::error::TraceError;
use hksim_trace::event::SiteId;
use hksim_trace::info::{SiteOrder, SiteUse};
use hksim_trace::sites::Sites;
use hksim_trace::source::EventSource;
use hksim_trace::symbols::{Symbols, frame_text};
use serde::Serialize;

use crate::stack_profile::{StackProfile, ValueKind};

/// The figure that ranks call sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Bytes requested.
    Bytes,
    /// Calls.
    Calls,
    /// Bytes live at the program's peak.
    Peak,
    /// Bytes never freed.
    End,
}

impl By {
    pub(crate) fn order(self) -> SiteOrder {
        match self {
            By::Bytes => SiteOrder::Bytes,
            By::Calls => SiteOrder::Calls,
            By::Peak => SiteOrder::Peak,
            By::End => SiteOrder::End,
        }
    }

    /// The figure as a column of a stack profile. pprof knows heap profiles by these names.
    fn kind(self) -> ValueKind {
        let (name, unit) = match self {
            By::Bytes => ("alloc_space", "bytes"),
            By::Calls => ("alloc_objects", "count"),
            By::Peak => ("peak_space", "bytes"),
            By::End => ("inuse_space", "bytes"),
        };
        ValueKind { name, unit }
    }

    pub(crate) fn of(self, used: &SiteUse) -> u64 {
        match self {
            By::Bytes => used.allocated_bytes,
            By::Calls => used.calls,
            By::Peak => used.bytes_at_peak,
            By::End => used.bytes_at_end,
        }
    }
}

/// The figures of all call sites, of which `by` is shown.
///
/// # Errors
/// Those of the source.
pub fn profile(source: &mut dyn EventSource, by: By) -> Result<StackProfile, TraceError> {
    let uses = SiteUse::of(source, by.order())?;
    let all = [By::Bytes, By::Calls, By::Peak, By::End];
    let shown = all.iter().position(|&kind| kind == by).unwrap_or(0);
    let mut profile = StackProfile::new(&all.map(By::kind), shown);
    let mut symbols = Symbols::default();
    for used in &uses {
        profile.push(&mut symbols, &source.footer().sites, used.site, &all.map(|kind| kind.of(used)));
    }
    Ok(profile)
}

/// A call site as a CSV row, which has no lists.
#[derive(Debug, Serialize)]
pub struct SiteRow<'a> {
    #[serde(flatten)]
    used: &'a SiteUse,
    /// Frames, innermost first, separated by `;`.
    stack: String,
}

/// The top call sites of a trace.
#[derive(Debug, Serialize)]
pub struct TopSites {
    /// Number of call sites in the trace.
    sites_total: usize,
    /// The top call sites.
    sites: Vec<TopSite>,
    #[serde(skip)]
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct TopSite {
    #[serde(flatten)]
    used: SiteUse,
    /// Frames as text, innermost first; empty for calls whose site is unknown.
    stack: Vec<String>,
}

impl TopSites {
    /// The top `count` call sites of `source`, ranked by `by`, with names.
    ///
    /// # Errors
    /// Those of the source.
    pub fn of(source: &mut dyn EventSource, count: usize, by: By) -> Result<TopSites, TraceError> {
        let mut uses = SiteUse::of(source, by.order())?;
        let sites_total = uses.iter().filter(|used| used.site != 0).count();
        uses.truncate(count);
        let mut symbols = Symbols::default();
        let sites = &source.footer().sites;
        let top = uses.into_iter().map(|used| TopSite { stack: stack(&mut symbols, sites, used.site), used }).collect();
        Ok(TopSites { sites_total, sites: top, notes: symbols.notes(sites) })
    }

    /// The call sites as CSV rows.
    pub fn rows(&self) -> Vec<SiteRow<'_>> {
        self.sites.iter().map(|top| SiteRow { used: &top.used, stack: top.stack.join(";") }).collect()
    }

    /// Notes about names that were not found.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The list as text.
    pub fn table(&self) -> String {
        if self.sites_total == 0 {
            return "\ncall sites: none were recorded; record with --stacks\n".into();
        }
        let mut text = format!("\ncall sites: {} of {}\n", self.sites.len(), units::count(self.sites_total as u64));
        for top in &self.sites {
            let [calls, bytes] = [units::count(top.used.calls), units::bytes(top.used.allocated_bytes)];
            let [peak, end] = [units::bytes(top.used.bytes_at_peak), units::bytes(top.used.bytes_at_end)];
            text += &format!("\n{bytes} in {calls} calls; {peak} live at the peak, {end} at the end\n");
            for frame in &top.stack {
                text += &format!("    {frame}\n");
            }
            if top.stack.is_empty() {
                text += "    (call site not recorded)\n";
            }
        }
        text
    }
}

/// The frames of a site as text, innermost first; empty if they are not known.
fn stack(symbols: &mut Symbols, sites: &Sites, site: u32) -> Vec<String> {
    let frames: Vec<_> = sites.frames_of(SiteId(site)).flat_map(|frame| symbols.frames(sites, frame)).collect();
    frames.iter().map(|frame| frame_text(sites, frame)).collect()
}
