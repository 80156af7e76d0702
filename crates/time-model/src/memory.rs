//! Accesses to cache lines, as they are priced.

use hksim_cost_model::{LineAccesses, LinePart};
use hksim_sim::LineCounts;
use hksim_sim::lines::{Accessor, LINE_BYTES, Reuse};

/// The accesses to cache lines of a simulated design, as they are priced. The kernel's are part of its faults.
pub fn line_accesses(counts: &LineCounts) -> Vec<LineAccesses> {
    let parts = |accessor| match accessor {
        Accessor::Program => Some((LinePart::ProgramSequential, LinePart::ProgramIsolated)),
        Accessor::Filling => Some((LinePart::FillingSequential, LinePart::FillingIsolated)),
        Accessor::Bookkeeping => Some((LinePart::BookkeepingSequential, LinePart::BookkeepingIsolated)),
        Accessor::Kernel => None,
    };
    let mut lines = Vec::new();
    for Reuse { accessor, is_huge, lines: reuse, accesses } in counts.reuses() {
        let Some((sequential, isolated)) = parts(accessor) else { continue };
        let reuse_bytes = reuse * LINE_BYTES;
        for (part, accesses) in [(sequential, accesses.sequential), (isolated, accesses.isolated)] {
            lines.push(LineAccesses { part, is_huge, reuse_bytes, accesses });
        }
    }
    lines
}
