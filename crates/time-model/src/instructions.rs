//! The sum of path counts times path costs.

use hksim_policy::{Path, Policy};
use hksim_sim::paths::PathCounts;
use hksim_sim::simulate::{Counted, Marks, SimConfig, SimError, simulate};
use hksim_trace::source::EventSource;

use crate::costs::PathCosts;

/// The instructions of a run inside the allocator's object. Functions of the C library that it calls, and the kernel, are
/// not included.
#[derive(Clone, Debug, PartialEq)]
pub struct Instructions {
    /// Their number.
    pub total: f64,
    /// Their number by path, the most first. Paths that did not run are left out.
    pub by_path: Vec<(Path, f64)>,
    /// Bytes that `memset` wrote for the allocator.
    pub bytes_filled: u64,
    /// Bytes that `memcpy` copied for the allocator.
    pub bytes_copied: u64,
}

/// Prices counts.
pub fn instructions(counts: &PathCounts, costs: &PathCosts) -> Instructions {
    let mut by_path: Vec<(Path, f64)> = counts
        .iter()
        .filter(|&(_, count)| count > 0)
        .map(|(path, count)| (path, count as f64 * costs.instructions(path)))
        .collect();
    by_path.sort_by(|one, other| other.1.total_cmp(&one.1));
    Instructions {
        total: by_path.iter().map(|(_, instructions)| instructions).sum(),
        by_path,
        bytes_filled: counts[Path::ByteFilled],
        bytes_copied: counts[Path::ByteCopied],
    }
}

/// The instructions that the preloadable allocator takes for a trace under a policy. `source` must be at its start. What
/// the allocator does when it is created is not included.
///
/// # Errors
/// The trace is damaged, the policy is invalid, or the allocator cannot serve an event.
pub fn predict_instructions(source: &mut (dyn EventSource + Send), policy: &Policy) -> Result<Instructions, SimError> {
    let config = SimConfig { policy: *policy, counted: Counted::Paths, ..SimConfig::default() };
    let simulated = simulate(source, &config, Marks::Skip, &|_| ())?;
    let counts = simulated.report.paths.unwrap_or_default();
    Ok(instructions(&counts, PathCosts::of(policy)))
}
