//! Parts of the result of `info`: call sites, and what tells two traces apart.

pub mod difference;
pub mod matching;
pub mod sites;
pub mod top_sites;

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
