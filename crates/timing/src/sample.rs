//! One run of one variant.

use serde::{Deserialize, Serialize};

/// The times of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Processor time in user mode and in the kernel, by the scheduler's clock. It is exact: no ticks.
    pub cpu_ns: u64,
    /// Elapsed time.
    pub wall_ns: u64,
    /// Calls performed; at least 1 is assumed.
    pub calls: u64,
    /// Processor time of the start and the end of the process that made the calls, if it is known apart from theirs.
    #[serde(default)]
    pub start_end_ns: Option<u64>,
}

impl Sample {
    /// Processor nanoseconds per call.
    pub fn cpu_ns_per_call(&self) -> f64 {
        self.cpu_ns as f64 / self.calls.max(1) as f64
    }

    /// Calls per second of elapsed time.
    pub fn calls_per_s(&self) -> f64 {
        self.calls as f64 * 1e9 / self.wall_ns.max(1) as f64
    }
}

/// A variant that can be run again and again. Every run does the same work.
pub trait Subject: Sync {
    /// Why a run failed.
    type Error: Send;

    /// Runs it once: on the CPU of this number only, or on any.
    ///
    /// # Errors
    /// The run failed. The subject is not run again.
    fn run(&self, cpu: Option<usize>) -> Result<Sample, Self::Error>;
}
