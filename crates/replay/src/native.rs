//! Ordered runs on the SuperSlab allocator.

use hksim_engine::{Driver, Tables, TouchRule};
use hksim_native::{Addresses, MmapMemory, Os};
use hksim_policy::vocabulary::Align;
use hksim_policy::{Allocator, PreparedPolicy};

use crate::calls::Counted;
use crate::coarse;
use crate::error::ChildError;
use crate::extents::Extent;
use crate::measured::{Measurable, measured as measure, open_traps};
use crate::observed_os::ObservedOs;
use crate::observer::Observer;
use crate::ordered::{sampled as sample, tables, timed as time};
use crate::protocol::{Channel, Report};
use crate::replayable::SuperSlabs;
use crate::window::PreparedTrace;

/// The allocator on real mappings, with its driver.
pub(crate) type Native<O> = Driver<SuperSlabs<O>>;

/// The memory that a run needs besides its heap, prepared before the window opens.
pub(crate) struct Ready<O: Os> {
    tables: Tables<SuperSlabs<O>>,
    addresses: Option<Addresses>,
}

/// Allocates this memory and makes it present.
pub(crate) fn ready<O: Os>(plan: &PreparedPolicy, trace: &PreparedTrace) -> Ready<O> {
    let addresses = (plan.layout.align != Align::Arena).then(|| Addresses::new(&plan.layout));
    Ready { tables: tables(trace), addresses }
}

/// Creates the memory and the allocator, as the first step in the window. Calls `located` with the memory.
pub(crate) fn open<O: Os>(
    plan: PreparedPolicy,
    os: O,
    ready: Ready<O>,
    touch: TouchRule,
    located: impl FnOnce(&MmapMemory<O>),
) -> Result<Native<O>, ChildError> {
    let memory = MmapMemory::with_addresses(plan.layout, os, ready.addresses)?;
    located(&memory);
    let allocator = Allocator::new(memory, plan.geometry, plan.policy, &plan.layout);
    Ok(Driver::with_tables(allocator, ready.tables, touch))
}

/// The measured run.
pub(crate) fn measured(
    plan: PreparedPolicy,
    touch: TouchRule,
    trace: &mut PreparedTrace,
    channel: &mut Channel,
) -> Result<Report, ChildError> {
    let (traps, skipped) = open_traps();
    match Observer::new(Extent::of(&plan.layout), traps) {
        Err(why) => {
            let ready = ready(&plan, trace);
            coarse::measured(trace, &why, || open(plan, Counted::default(), ready, touch, |_| {}))
        }
        Ok(observer) => {
            let ready = ready(&plan, trace);
            let located = |memory: &MmapMemory<ObservedOs>| {
                memory.os().observer().borrow_mut().locate(memory.base().as_ptr() as u64);
            };
            measure(Measurable { observer, skipped }, trace, channel, |os| open(plan, os, ready, touch, located))
        }
    }
}

/// The timed run.
pub(crate) fn timed(plan: PreparedPolicy, touch: TouchRule, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
    let ready = ready(&plan, trace);
    time(trace, || open(plan, Counted::default(), ready, touch, |_| {}))
}

/// The sampled run.
pub(crate) fn sampled(plan: PreparedPolicy, touch: TouchRule, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
    let ready = ready(&plan, trace);
    sample(trace, || open(plan, Counted::default(), ready, touch, |_| {}))
}
