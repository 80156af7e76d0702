//! The time of the allocator's code: of its instructions, and of each call.

use hksim_cost_model::profile::Cost;
use hksim_cost_model::{CodeCosts, MedianRange, MemoryCosts, Profile};

/// Processor cycles of an instruction of the allocator whose data are in the first cache, for a profile that has no measured
/// costs of code. Fitted to differences between the times of designs on Zen 4: docs/lab/time-model.md.
pub const CYCLES_PER_INSTRUCTION: f64 = 0.20;

/// Processor cycles of a call besides its instructions, for such a profile: half a mispredicted branch. It is the same for all
/// designs, so it decides about no order, but about levels and ratios, to which it is fitted: docs/lab/time-model.md.
pub const CYCLES_PER_CALL: f64 = 10.0;

/// The costs of code: those of the profile, or fitted ones of another processor at this processor's frequency.
pub(crate) fn code_costs(profile: &Profile, memory: &MemoryCosts) -> CodeCosts {
    let cycles = |number: f64| {
        let Cost { low_ns, median_ns, high_ns, .. } = memory.cycle;
        Cost { low_ns: low_ns * number, median_ns: median_ns * number, high_ns: high_ns * number, ..memory.cycle }
    };
    profile
        .code
        .unwrap_or_else(|| CodeCosts { instruction: cycles(CYCLES_PER_INSTRUCTION), call: cycles(CYCLES_PER_CALL) })
}

/// The time of so many instructions in so many calls.
pub(crate) fn code_ns(costs: &CodeCosts, instructions: f64, calls: u64) -> MedianRange {
    MedianRange::each(|quartile| instructions * quartile(&costs.instruction) + calls as f64 * quartile(&costs.call))
}
