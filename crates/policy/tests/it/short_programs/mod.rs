//! Programs of a few calls with known results.

mod adoption;
mod huge_fill;
mod huge_heaps;
mod regressions;
mod run_cache;

use hksim_policy::layout::Layout;
use hksim_policy::{Allocator, Policy, Request, RunGeometry};
use hksim_testkit::PlainMemory;

pub(crate) type Plain = Allocator<PlainMemory, RunGeometry>;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn allocator(policy: Policy, before: impl Fn(&PlainMemory)) -> Plain {
    let geometry = RunGeometry::new(&policy).unwrap();
    let layout = Layout { align: policy.align, ..Layout::new(&geometry, 32 * MIB) };
    let memory = PlainMemory::new(layout, &geometry, layout.ordinals(), 1);
    before(&memory);
    Allocator::new(memory, geometry, policy, &layout)
}

pub(crate) fn zeroed(bytes: u64) -> Request {
    Request { zeroed: true, ..Request::plain(bytes) }
}
