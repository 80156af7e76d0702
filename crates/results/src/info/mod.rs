//! Parts of the result of `info`: call sites, and what tells two traces apart.

pub mod difference;
pub mod matching;
pub mod memory_sites;
pub mod sites;

pub use difference::Difference;
pub use sites::{By, TopSites};
