//! The time of a design: instructions, memory and kernel.

use std::fmt;

use hksim_cost_model::{LinePrice, MedianRange, MemoryCosts, Price, Profile, Work};
use hksim_policy::Path;
use hksim_sim::{PathCounts, SimReport};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::calibrated::not_calibrated;
use crate::code::{code_costs, code_ns};
use crate::costs::PathCosts;
use crate::instructions::instructions;
use crate::memory::line_accesses;

/// The share by which a predicted time is off, beyond what the costs of the profile explain. Of 252 times that were predicted
/// blindly, four are off by more (docs/lab/time-blind.md).
pub const ERROR_SHARE: f64 = 0.20;

/// The difference between the predicted times of two designs on a trace above which their order is reliable: 1 148 of 1 168
/// pairs that were predicted blindly are ordered right (docs/lab/time-blind.md). Designs that differ by less are a tie.
pub const ORDER_ERROR_SHARE: f64 = 0.05;

/// Paths that go to the next block of a list: each waits for a load from the first cache, if from no other.
pub(crate) const LIST_STEPS: [Path; 4] =
    [Path::BlockCounted, Path::BlockReversed, Path::BlockMerged, Path::BlockCollected];

pub(crate) const NS_PER_S: f64 = 1e9;

/// The predicted time of a design on a trace: of the calls of the allocator, and of the program's accesses to its blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Nanoseconds per call. The range is that of the costs, widened by [`ERROR_SHARE`].
    pub ns_per_call: MedianRange,
    /// Their parts.
    pub parts_ns_per_call: Parts,
    /// Seconds of all calls.
    pub total_s: MedianRange,
    /// The processor and kernel that the costs were measured on.
    pub profile: String,
    /// What is timed, and in which state of the machine.
    pub valid_for: String,
}

/// The medians of a time's parts, in nanoseconds per call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// The instructions of the allocator's calls, without waiting for memory.
    pub instructions: f64,
    /// Accesses to cache lines: the allocator's beyond the first cache and along lists, and all of the program's.
    pub memory: f64,
    /// System calls and faults of memory that no cache holds, with what they cost the program in user mode.
    pub kernel: f64,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MedianRange { low, median, high } = self.ns_per_call;
        write!(f, "{median:.1} ns per call ({low:.1} to {high:.1}):")?;
        for (number, (name, ns)) in self.parts_ns_per_call.named().into_iter().enumerate() {
            write!(f, "{} {name} {ns:.1}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Parts {
    /// Each part with its name.
    pub fn named(self) -> [(&'static str, f64); 3] {
        [("instructions", self.instructions), ("memory", self.memory), ("kernel", self.kernel)]
    }
}

/// Why a design has no predicted time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoTime {
    /// The profile was made by hand.
    #[error("the profile has no costs of memory: measure it with `hksim calibrate`")]
    NoMemoryCosts,
    /// The simulation did not count what time needs.
    #[error("paths and cache lines were not counted")]
    NotCounted,
    /// There is nothing to divide by.
    #[error("the trace has no call of an allocator")]
    NoCalls,
    /// The instructions of a setting are not known.
    #[error("the instructions of the allocator were not measured with {0}")]
    NotCalibrated(&'static str),
    /// The kernel's part is not known.
    #[error("{0}")]
    NoKernel(String),
}

impl Time {
    /// The time of a simulated design, with the kernel's work for it.
    ///
    /// # Errors
    /// A part is not known.
    pub fn of(report: &SimReport, kernel: &Work, profile: &Profile) -> Result<Time, NoTime> {
        let memory = profile.memory.as_ref().ok_or(NoTime::NoMemoryCosts)?;
        if let Some(setting) = not_calibrated(&report.policy) {
            return Err(NoTime::NotCalibrated(setting));
        }
        let (paths, lines) = report.paths.as_ref().zip(report.lines.as_ref()).ok_or(NoTime::NotCounted)?;
        let per_call = if report.calls == 0 { Err(NoTime::NoCalls) } else { Ok(1.0 / report.calls as f64) }?;
        let Price { low_s, median_s, high_s } =
            kernel.processor_price(profile).map_err(|why| NoTime::NoKernel(why.to_string()))?;
        let kernel = MedianRange { low: low_s, median: median_s, high: high_s }.times(NS_PER_S);
        let number = instructions(paths, PathCosts::of(&report.policy)).total;
        let instructions = code_ns(&code_costs(profile, memory), number, report.calls);
        let memory = LinePrice::of(&line_accesses(lines), memory)
            .zip(list_ns(paths, memory))
            .map(|(lines, lists)| lines.total_ns + lists)
            .ok_or(NoTime::NoMemoryCosts)?;
        let total_ns = (instructions + memory + kernel).widened(ERROR_SHARE);
        Ok(Time {
            ns_per_call: total_ns.times(per_call),
            parts_ns_per_call: Parts {
                instructions: instructions.median * per_call,
                memory: memory.median * per_call,
                kernel: kernel.median * per_call,
            },
            total_s: total_ns.times(1.0 / NS_PER_S),
            profile: format!("{}, Linux {}", profile.machine, profile.kernel),
            valid_for: format!(
                "calls of the preloadable allocator and the program's accesses to its blocks (touches: {}), one thread at a \
                 time, on memory that the machine has; the program's other work is not included",
                report.touch.rule.word()
            ),
        })
    }
}

/// The time of steps along lists. `None` if the profile has no costs of a chase.
fn list_ns(paths: &PathCounts, costs: &MemoryCosts) -> Option<MedianRange> {
    let steps: u64 = LIST_STEPS.iter().map(|&path| paths[path]).sum();
    costs.chase.at(0, |cost| cost.median_ns)?;
    Some(MedianRange::each(|quartile| steps as f64 * costs.chase.at(0, quartile).unwrap_or(0.0)))
}
