//! The SuperSlab allocator in simulated memory.

use hksim_policy::vocabulary::Purge;
use hksim_policy::{Allocator, Policy, PolicyError, RunGeometry};

use crate::memory::{Followers, SimMemory};
use crate::observer::MemoryObserver;

/// The SuperSlab allocator in simulated memory.
pub type SuperSlabs<H> = Allocator<SimMemory<H>, RunGeometry>;

/// The allocator of a policy, whose pages `observer` observes, in new memory. The followers share its placement: see
/// [`SimMemory::with_followers`].
///
/// # Errors
/// The policy is invalid.
pub fn superslabs<H: MemoryObserver>(
    policy: &Policy,
    observer: H,
    followers: Followers<H>,
) -> Result<SuperSlabs<H>, PolicyError> {
    let plan = policy.prepare()?;
    let mut memory = SimMemory::with_followers(plan.layout, &plan.geometry, observer, followers);
    if policy.purge == Purge::Free {
        memory.keep_contents();
    }
    Ok(Allocator::new(memory, plan.geometry, plan.policy, &plan.layout))
}
