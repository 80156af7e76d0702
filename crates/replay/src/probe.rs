//! What a run without observers measures besides its time.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use hksim_linux_probe::area::thread_time;
use hksim_linux_probe::cpu_modes::{CpuModes, ModeSamples, SAMPLE_PERIOD, spin};

use crate::error::ChildError;
use crate::system::SystemRun;

/// Measures while the trace's events are performed, and not while the trace is read.
pub(crate) trait Meter {
    /// Called once, before the first batch.
    fn start(&mut self) {}

    /// Called before each piece of a batch of events.
    fn resume(&mut self);

    /// Called after each piece.
    fn pause(&mut self);
}

/// Minimum time for which the loop without system calls is sampled.
const SPIN_MIN: Duration = Duration::from_millis(20);

/// Samples of the processor's mode: user or kernel. Samples outside the window are discarded, because switching
/// sampling off and on takes more kernel time than many batches. The clock is not read here: each reading is a system
/// call, which would be sampled.
pub(crate) struct ModeProbe {
    modes: CpuModes,
    samples: ModeSamples,
}

impl ModeProbe {
    pub(crate) fn open() -> Result<ModeProbe, ChildError> {
        let why = ChildError::system("sample processor time (kernel.perf_event_paranoid)");
        Ok(ModeProbe { modes: CpuModes::open().map_err(why)?, samples: ModeSamples::default() })
    }

    /// The samples of the run, and those of a loop without system calls.
    pub(crate) fn finish(self) -> SystemRun {
        let ModeProbe { mut modes, samples } = self;
        modes.take();
        spin(samples.time().max(SPIN_MIN));
        let idle = modes.take();
        SystemRun {
            kernel_samples: samples.kernel,
            user_samples: samples.user,
            idle_kernel_samples: idle.kernel,
            idle_user_samples: idle.user,
            ..SystemRun::default()
        }
    }
}

impl Meter for ModeProbe {
    fn start(&mut self) {
        self.modes.enable();
        desynchronise_sampling();
    }

    fn resume(&mut self) {
        self.modes.take();
    }

    fn pause(&mut self) {
        self.samples.add(self.modes.take());
    }
}

/// Waits for a random part of the sampling period. Otherwise no run would be sampled in its first 250 us, in which a
/// short run takes most of its faults.
fn desynchronise_sampling() {
    let random = RandomState::new().hash_one(0);
    let until = thread_time() + Duration::from_nanos(random % SAMPLE_PERIOD.as_nanos() as u64);
    while thread_time() < until {}
}

/// The processor time so far, and the start of the current interval.
#[derive(Default)]
pub(crate) struct ClockProbe {
    pub(crate) spent: Duration,
    since: Duration,
}

impl Meter for ClockProbe {
    fn resume(&mut self) {
        self.since = thread_time();
    }

    fn pause(&mut self) {
        self.spent += thread_time().saturating_sub(self.since);
    }
}
