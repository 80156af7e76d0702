//! `--accesses pages`: the page faults of watched objects, and the touches that caused them.
//!
//! The preloaded object puts some objects on pages of their own and stores the final state of each page (`touched.rs`).
//! While the program runs, [`collector`] collects the page faults on those pages. Afterwards [`touches`] turns both
//! into touches, placed between the calls.

mod clocks;
mod collector;
mod fault;
mod image;
mod neighbours;
mod object;
mod perf;
mod ring;
mod touches;
mod tracefs;

pub use collector::Collector;
pub use touches::PageTouches;
