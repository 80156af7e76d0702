//! Bundles: a folder with results and everything that repeats them.
//!
//! [`Origin`] says how a result can be made again; [`repeat`] makes the results again and compares them. What a bundle holds
//! is described in [`hksim_results::bundle`], and [`hksim_reports::bundle`] writes it.

mod origin;
pub mod repeat;

pub use origin::Origin;
