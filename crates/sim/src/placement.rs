//! The placement of every object under a design, without its cost.

use hksim_engine::{Driver, TouchRule};
use hksim_policy::Policy;
use hksim_trace::event::Event;
use hksim_trace::source::EventSource;

use crate::SimError;
use crate::accounting::Accounting;
use crate::memory::Followers;
use crate::superslabs::{SuperSlabs, superslabs};
use hksim_linux_mm::{Kernel, KernelConfig};

/// Performs the events of a source, which must be at its start. Calls `placed` with each event and the address of its
/// object in the simulated address space. For a free, this is the address before the event; otherwise, the address
/// after it. The address is `None` if the event has no object or its allocation failed. The placements equal those of
/// [`mod@crate::simulate`], and of a replay on this allocator.
///
/// # Errors
/// The trace is damaged, the policy is invalid, the allocator cannot serve an event, or `placed` fails.
pub fn placements<E: From<SimError>>(
    source: &mut dyn EventSource,
    design: &Policy,
    mut placed: impl FnMut(&Event, Option<u64>) -> Result<(), E>,
) -> Result<(), E> {
    // Touches do not change placements, so none are performed.
    let observer = Accounting::new(Kernel::new(KernelConfig::default()));
    let allocator = superslabs(design, observer, Followers::default()).map_err(SimError::from)?;
    let summary = *source.summary();
    let mut driver = Driver::new(allocator, summary.threads, summary.objects_peak, TouchRule::None);
    let mut done = 0;
    while let Some(batch) = source.next_batch().map_err(SimError::from)? {
        for event in batch {
            done += 1;
            let before = address(&driver, event);
            driver.step(event).map_err(|source| SimError::Drive { event: done, source })?;
            placed(event, if event.op.frees_object() { before } else { address(&driver, event) })?;
        }
    }
    Ok(())
}

/// The current address of an event's object.
fn address(driver: &Driver<SuperSlabs<Accounting>>, event: &Event) -> Option<u64> {
    let object = event.op.object()?;
    driver.block_of(object).map(|block| driver.allocator().mem.address_of(block))
}
