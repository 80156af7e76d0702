//! Parts of the result of `info`: call sites, and what tells two traces apart.

pub mod difference;
pub mod matching;
pub mod sites;
pub mod top_sites;

use std::path::Path;

use hksim_memory_trace::Summary;
use hksim_trace::info::{Info, SiteUse};
use serde::Serialize;

use crate::stamp::Stamp;

pub use difference::Difference;
pub use sites::By;
pub use top_sites::{MappingFigures, SiteFigures, TopSites};

/// The result with the requested call sites.
#[derive(Debug, Serialize)]
pub struct WithSites<'a> {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The summary.
    #[serde(flatten)]
    pub info: &'a Info,
    /// The top call sites, if they were asked for.
    #[serde(flatten)]
    pub top: Option<&'a TopSites<SiteUse>>,
}

/// The difference of two traces.
#[derive(Debug, Serialize)]
pub struct Stamped<'a> {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The difference.
    #[serde(flatten)]
    pub result: &'a Difference,
}

/// The summary of a memory recording, with the requested call sites.
#[derive(Debug, Serialize)]
pub struct MemoryInfo<'a> {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The name of the recording.
    pub file: String,
    /// Whether the recording has its end, and no events were lost.
    pub complete: bool,
    /// The summary.
    #[serde(flatten)]
    pub summary: &'a Summary,
    /// The top call sites, if they were asked for.
    #[serde(flatten)]
    pub top: Option<&'a TopSites<MappingFigures>>,
}

impl<'a> MemoryInfo<'a> {
    /// The result for the recording in this file.
    pub fn new(path: &Path, summary: &'a Summary, top: Option<&'a TopSites<MappingFigures>>) -> MemoryInfo<'a> {
        let file = path.display().to_string();
        let mut info = MemoryInfo { stamp: Stamp::here(), file, complete: false, summary, top };
        info.complete = summary.footer.is_some() && info.lost_events() == 0;
        info
    }

    /// Events lost in the whole run, or before the file ends early.
    pub fn lost_events(&self) -> u64 {
        self.summary.footer.as_ref().map_or(self.summary.lost_events, |footer| footer.lost_events)
    }
}
