//! Page sets as text, for programs that inspect the same memory from outside. docs/how-to/page-sets.md describes the format.

use std::fmt::Write;

use hksim_sim::simulate::MarkedPages;

/// Version of the format, printed in its first line.
const VERSION: u32 = 1;

/// The page sets at several points, in an address space of so many pages
/// ([`Described::reserved_pages`](crate::described::Described::reserved_pages)).
pub fn text((pages, arena): (u64, u64), marks: &[MarkedPages]) -> String {
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
