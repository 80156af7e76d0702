//! Runs of the simulator, with their progress on the screen.

use anyhow::{Context, Result};
use hksim_explore::described::Described;
use hksim_explore::flags::{BaseKernel, RunConfig};
use hksim_explore::inputs::Trace;
use hksim_explore::runs::{self, Listener};
pub use hksim_explore::runs::{bracketed, with_bracket};
use hksim_linux_mm::KernelConfig;
use hksim_policy::Policy;
use hksim_sim::sweep::SweepProgress;
use hksim_sim::{SimConfig, SimReport};

use crate::host;
use crate::output::progress::Progress;

/// The simulator's setup for a run configuration on a trace. Prints notes about this machine's kernel, and about huge
/// pages that a policy does not ask for.
///
/// # Errors
/// The host's settings cannot be read.
pub fn setup(config: &RunConfig, trace: &Trace, base: BaseKernel) -> Result<SimConfig> {
    setup_of(&config.policy, config, trace, base)
}

/// The same for any allocator, with the program and the kernel of a run configuration.
///
/// # Errors
/// The host's settings cannot be read.
pub fn setup_of<P: Described>(
    allocator: &P,
    config: &RunConfig,
    trace: &Trace,
    base: BaseKernel,
) -> Result<SimConfig<P>> {
    if base == BaseKernel::Host {
        host::version()?;
    }
    let setup = runs::setup_of(allocator.clone(), config, trace, base)?;
    host::note_unasked(&allocator.of_modes(), &setup.kernel.thp);
    Ok(setup)
}

impl SweepProgress for Progress {
    fn expect(&self, events: u64) {
        self.expect_more(events);
    }

    fn done(&self, events: u64) {
        self.advance(events);
    }
}

/// Shows the progress of each batch, and the notes about its configurations.
pub struct OnScreen;

impl Listener for OnScreen {
    fn begin(&self) -> Box<dyn SweepProgress + '_> {
        Box::new(Progress::events(0))
    }

    fn simulates(&self, policy: &Policy, kernel: &KernelConfig) {
        host::note_unasked(policy, &kernel.thp);
    }
}

/// Simulates each setup of each trace on the current rayon pool, as [`runs::simulate_all`] does.
///
/// # Errors
/// A trace is damaged, or a policy is invalid.
pub fn simulate_all<P: Described>(traces: &[(Trace, Vec<SimConfig<P>>)]) -> Result<Vec<SimReport<P>>> {
    Ok(runs::simulate_all(traces, &Progress::events(0))?)
}

/// Does work on this many workers, by default one per core.
///
/// # Errors
/// The workers cannot be started, or the work fails.
pub fn on_workers<T: Send>(jobs: Option<u16>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let workers = rayon::ThreadPoolBuilder::new().num_threads(jobs.map_or(0, usize::from)).build();
    workers.context("cannot start the worker threads; try a smaller --jobs")?.install(work)
}
