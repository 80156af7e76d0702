//! The call sites of a recording, with names that are looked up once.

use std::collections::HashMap;

use super::{Caller, Symbols, caller, frame_text};
use crate::{Frame, SiteId, Sites};

/// The call sites of a recording, with names that are looked up at the first use of each site.
pub struct NamedSites<'a> {
    sites: &'a Sites,
    symbols: Symbols,
    /// Frames with inlined functions.
    known: HashMap<SiteId, Vec<Frame>>,
}

impl<'a> NamedSites<'a> {
    /// The call sites, without names yet.
    pub fn new(sites: &'a Sites) -> Self {
        Self { sites, symbols: Symbols::default(), known: HashMap::new() }
    }

    /// The call sites.
    pub fn sites(&self) -> &'a Sites {
        self.sites
    }

    /// The frames of a site with inlined functions, innermost first; none for an unknown site.
    pub fn frames(&mut self, site: SiteId) -> &[Frame] {
        let Self { sites, symbols, known } = self;
        let look_up = || sites.frames_of(site).flat_map(|frame| symbols.frames(sites, frame)).collect();
        known.entry(site).or_insert_with(look_up)
    }

    /// The frames of a site as text, innermost first; none for an unknown site.
    pub fn stack(&mut self, site: SiteId) -> Vec<String> {
        let sites = self.sites;
        self.frames(site).iter().map(|frame| frame_text(sites, frame)).collect()
    }

    /// Who asked for the memory of a site; `None` if no frame is known.
    pub fn caller(&mut self, site: SiteId) -> Option<Caller<'_>> {
        let sites = self.sites;
        caller(sites, self.frames(site))
    }

    /// One note for each module without names or with doubtful names.
    pub fn notes(&self) -> Vec<String> {
        self.symbols.notes(self.sites)
    }
}
