//! Bundles: a folder with results and everything that repeats them.
//!
//! [`origin`] says how a result can be made again; [`mod@write`] creates the folder; [`repeat`] makes the results again and
//! compares them. What a bundle holds is described in [`hksim_results::bundle`].

mod origin;
pub mod repeat;
pub mod write;
