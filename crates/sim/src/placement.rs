//! Where a design places every object, without what that costs.

use hksim_engine::{Driver, TouchRule};
use hksim_policy::{Allocator, Policy, RunGeometry};
use hksim_trace::event::Event;
use hksim_trace::source::EventSource;

use crate::SimError;
use crate::accounting::Accounting;
use crate::memory::SimMemory;
use hksim_linux_mm::{Kernel, KernelConfig};

/// Performs a source's events, from its current position, which must be its start. `placed` gets each of them, and the
/// address of its object in the simulated address space: of a free the one it had, of the others the one it has then;
/// `None` where the event has no object or the allocator could not serve it. The placement is that of
/// [`mod@crate::simulate`] and of a replay on this allocator.
///
/// # Errors
/// Damaged traces, impossible designs, and what `placed` returns.
pub fn placements<E: From<SimError>>(
    source: &mut dyn EventSource,
    design: &Policy,
    mut placed: impl FnMut(&Event, Option<u64>) -> Result<(), E>,
) -> Result<(), E> {
    let plan = design.prepare().map_err(SimError::from)?;
    // What the application touches changes no placement, so nothing is touched.
    let observer = Accounting::new(Kernel::new(KernelConfig::default()));
    let memory = SimMemory::new(plan.layout, &plan.geometry, observer);
    let allocator = Allocator::new(memory, plan.geometry, plan.policy, &plan.layout);
    let summary = *source.summary();
    let mut driver = Driver::new(allocator, summary.threads, summary.objects_peak, TouchRule::None);
    let mut done = 0;
    while let Some(batch) = source.next_batch().map_err(SimError::from)? {
        for event in batch {
            done += 1;
            let before = address(&driver, event);
            driver.step(event).map_err(|source| SimError::Drive { event: done, source })?;
            placed(event, if event.op.is_death() { before } else { address(&driver, event) })?;
        }
    }
    Ok(())
}

/// Where an event's object is now.
fn address(driver: &Driver<SimMemory<Accounting>, RunGeometry>, event: &Event) -> Option<u64> {
    let object = event.op.object()?;
    driver.block_of(object).map(|block| driver.allocator().mem.address_of(block))
}
