//! Predictions of call sites, with their names.

use hksim_call_sites::symbols::{Caller, NamedSites, short_text};
use hksim_memory_trace::{SiteId, StackEnd};
use serde::{Deserialize, Serialize};

use crate::advisers::AdvisedUse;
use crate::groups::use_words;
use crate::sites::{SitePrediction, SiteUse};

/// Who asked for the memory of a call site: the innermost function outside the C library and allocators, or else the
/// outermost one.
pub fn caller_words(names: &mut NamedSites<'_>, site: SiteId) -> String {
    let sites = names.sites();
    let is_incomplete = stack_end(names, site).is_some_and(StackEnd::is_incomplete);
    match names.caller(site) {
        Some(Caller { frame, is_outside }) => {
            let unknown = if is_incomplete && !is_outside { " (callers unknown)" } else { "" };
            short_text(sites, frame) + unknown
        }
        None => "(empty stack)".to_string(),
    }
}

/// Where the stack of a site ends.
fn stack_end(names: &NamedSites<'_>, site: SiteId) -> Option<StackEnd> {
    names.sites().stack(site)?.end
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

/// What the advice of a call site brought, with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedAdviser {
    /// Who called madvise: the innermost function outside the C library and allocators, else the outermost one; without a
    /// call site, that.
    pub caller: String,
    /// Frames as text, innermost first; empty if the call site is unknown.
    pub stack: Vec<String>,
    /// The figures.
    #[serde(flatten)]
    pub advised: AdvisedUse,
}

impl NamedAdviser {
    /// What a site's advice brought, with its name.
    pub(crate) fn of(names: &mut NamedSites<'_>, (site, advised): (SiteId, AdvisedUse)) -> Self {
        match site == SiteId::UNKNOWN {
            true => Self { caller: "(call site not recorded)".to_string(), stack: Vec::new(), advised },
            false => Self { caller: caller_words(names, site), stack: names.stack(site), advised },
        }
    }
}

impl NamedSite {
    /// What a site's memory costs, with its name.
    pub(crate) fn of(names: &mut NamedSites<'_>, costs: &SitePrediction) -> Self {
        let costs = costs.clone();
        match costs.site {
            SiteUse::Site(site) => Self {
                caller: caller_words(names, site),
                stack_end: stack_end(names, site),
                stack: names.stack(site),
                costs,
            },
            SiteUse::Unknown(usage) => {
                Self { caller: use_words(usage).to_string(), stack_end: None, stack: Vec::new(), costs }
            }
        }
    }
}
