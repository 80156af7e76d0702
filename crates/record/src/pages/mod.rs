//! `--accesses pages`: converts the page faults of watched objects to touches.
//!
//! The preloaded object places some objects on separate pages and stores the final state of each page (`touched.rs`).
//! While the program runs, [`collector`] collects the page faults on these pages. Afterwards [`touches`] derives
//! touches from faults and final states, and inserts them between the calls.

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
