//! Accesses to cache lines, as they are priced.

use hksim_cost_model::{LineAccesses, LinePart};
use hksim_sim::LineCounts;
use hksim_sim::lines::{Accessor, LINE_BYTES, Reuse};

/// The accesses to cache lines of a simulated design, as they are priced. The kernel's are part of its faults.
pub fn line_accesses(counts: &LineCounts) -> Vec<LineAccesses> {
    use LinePart::{
        BookkeepingIsolated, BookkeepingSequential, FillingIsolated, FillingSequential, FillingShort, ProgramIsolated,
        ProgramSequential, ProgramShort,
    };
    let parts = |accessor| match accessor {
        Accessor::Program => Some([ProgramSequential, ProgramShort, ProgramIsolated]),
        Accessor::Filling => Some([FillingSequential, FillingShort, FillingIsolated]),
        // Its ranges are arrays, whose first lines are priced as loads.
        Accessor::Bookkeeping => Some([BookkeepingSequential, BookkeepingSequential, BookkeepingIsolated]),
        Accessor::Kernel => None,
    };
    let mut lines = Vec::new();
    for Reuse { accessor, is_huge, lines: reuse, accesses } in counts.reuses() {
        let Some(parts) = parts(accessor) else { continue };
        let reuse_bytes = reuse * LINE_BYTES;
        let counts = [accesses.sequential, accesses.short, accesses.isolated];
        for (part, accesses) in parts.into_iter().zip(counts) {
            lines.push(LineAccesses { part, is_huge, reuse_bytes, accesses });
        }
    }
    lines
}
