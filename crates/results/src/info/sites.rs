//! The figures of call sites: what ranks them, and all of them as a stack profile.

use hksim_trace::error::TraceError;
use hksim_trace::event::SiteId;
use hksim_trace::info::{SiteOrder, SiteUse};
use hksim_trace::source::EventSource;
use hksim_trace::symbols::NamedSites;

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
    let mut names = NamedSites::new(&source.footer().sites);
    for used in &uses {
        profile.push(&mut names, SiteId(used.site), &all.map(|kind| kind.of(used)));
    }
    Ok(profile)
}
