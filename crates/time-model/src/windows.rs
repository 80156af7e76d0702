//! Path counts of the parts of a run.

use hksim_engine::{Driver, TouchRule};
use hksim_linux_mm::{Kernel, KernelConfig};
use hksim_policy::Policy;
use hksim_sim::accounting::Accounting;
use hksim_sim::memory::Followers;
use hksim_sim::observer::AccountingObserver;
use hksim_sim::paths::{OnlyPaths, PathCounts, PathObserver};
use hksim_sim::simulate::SimError;
use hksim_sim::superslabs::{SuperSlabs, superslabs};
use hksim_trace::source::EventSource;

/// The paths that ran in every `window` events of a source, which must be at its start; the last window may be shorter.
/// What the allocator does when it is created is not counted.
///
/// # Errors
/// The trace is damaged, the policy is invalid, or the allocator cannot serve an event.
pub fn count_by_window(
    source: &mut dyn EventSource,
    policy: &Policy,
    touch: TouchRule,
    window: u64,
) -> Result<Vec<PathCounts>, SimError> {
    let observer = PathObserver::new(Accounting::new(Kernel::new(KernelConfig::default())), OnlyPaths);
    let allocator = superslabs(policy, observer, Followers::default())?;
    let summary = *source.summary();
    let mut driver = Driver::new(allocator, summary.threads, summary.objects_peak, touch);
    let counted = |driver: &Driver<SuperSlabs<PathObserver>>| {
        let memory = &driver.allocator().mem;
        memory.path_counts().plus(&memory.observer().page_paths())
    };
    let (mut events, mut before, mut windows) = (0, counted(&driver), Vec::new());
    let mut end_window = |driver: &Driver<_>| {
        let now = counted(driver);
        windows.push(now.clone() - &std::mem::replace(&mut before, now));
    };
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            events += 1;
            driver.step(event).map_err(|source| SimError::Drive { event: events, source })?;
            driver.allocator().mem.event_done();
            if events % window.max(1) == 0 {
                end_window(&driver);
            }
        }
    }
    if events % window.max(1) != 0 {
        end_window(&driver);
    }
    Ok(windows)
}
