//! Page sets as text, for programs that inspect the same memory from outside. docs/how-to/page-sets.md describes the format.

use std::fmt::Write;

use hksim_policy::PAGE_BYTES;
use hksim_policy::layout::Layout;
use hksim_sim::simulate::MarkedPages;

/// Version of the format, printed in its first line.
const VERSION: u32 = 1;

/// The page sets at several points.
pub fn text(layout: &Layout, marks: &[MarkedPages]) -> String {
    let (pages, arena) = (layout.bytes() / PAGE_BYTES, layout.arena / PAGE_BYTES);
    let mut text = format!("hksim-pages {VERSION}\nreservation {pages} {arena}\n");
    for mark in marks {
        // Writing to a string does not fail.
        let _ = writeln!(text, "after {}", mark.event);
        for run in mark.pages.runs() {
            let _ = writeln!(text, "{} {} {}", run.first_page, run.pages, run.state.word());
        }
    }
    text
}
