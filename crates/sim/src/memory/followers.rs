//! Other paging policies that share the placement of the allocator's own.
//!
//! Placement learns of paging only what page operations return ([`Memory::perform`]). So one run of the allocator
//! serves every paging policy that returns the same: each has an observer of its own, on which its own operations are
//! performed. A follower that returns anything else than the leader parts from it: from then on its placement may
//! differ, and its figures are worthless.
//!
//! [`Memory::perform`]: hksim_policy::Memory::perform

use std::cell::RefCell;

use hksim_policy::Paging;
use hksim_policy::memory::PageOps;
use hksim_policy::vocabulary::{Align, Header};

use super::SimMemory;
use super::page_ops::ObservedOps;
use crate::observer::MemoryObserver;

/// A paging policy with its observer.
pub struct Follower<H> {
    /// Identifies the follower to its owner; above 0.
    pub number: usize,
    /// The policy.
    pub paging: Paging,
    /// The observer.
    pub observer: H,
}

struct Following<H> {
    number: usize,
    paging: Paging,
    observer: RefCell<H>,
}

/// The followers that have not parted from the leader.
pub(super) struct Followers<H>(Vec<Following<H>>);

impl<H> Followers<H> {
    pub(super) fn new(followers: Vec<Follower<H>>) -> Followers<H> {
        let following =
            |Follower { number, paging, observer }| Following { number, paging, observer: RefCell::new(observer) };
        Followers(followers.into_iter().map(following).collect())
    }
}

impl<H: MemoryObserver> SimMemory<H> {
    /// Whether a placement can serve several paging policies. With separate mappings, the kernel chooses addresses, so
    /// placement depends on it. Contents, which headers that are read need, depend on what was purged. An observer of
    /// every access would see those of its own policy only.
    pub fn can_have_followers(align: Align, header: Header) -> bool {
        !H::ACCESSES.any() && align == Align::Arena && matches!(header, Header::None | Header::Full)
    }

    /// Calls `visit` with 0 and the leader's observer, then with the number and observer of each follower that has not
    /// parted.
    pub fn each_track(&self, mut visit: impl FnMut(usize, &mut H)) {
        visit(0, &mut self.observer());
        for follower in &self.followers.borrow().0 {
            visit(follower.number, &mut self.observed(&follower.observer));
        }
    }

    /// Calls `call` with every observer.
    pub fn each_observer(&self, mut call: impl FnMut(&mut H)) {
        call(&mut self.observed(&self.observer));
        for follower in &self.followers.borrow().0 {
            call(&mut self.observed(&follower.observer));
        }
    }

    /// Performs an operation for the leader, then for each follower. Followers with another result part.
    pub(super) fn perform_for_all<A: PartialEq>(
        &self,
        own: &Paging,
        operation: impl Fn(&Paging, &dyn PageOps) -> A,
    ) -> A {
        let result = operation(own, &ObservedOps { memory: self, observer: &self.observer });
        self.part_unless(&|paging, ops| operation(paging, ops) == result);
        result
    }

    /// Lets the followers part for which `same` is false. Not generic over the operation: there are a hundred.
    fn part_unless(&self, same: &dyn Fn(&Paging, &dyn PageOps) -> bool) {
        self.followers
            .borrow_mut()
            .0
            .retain(|Following { paging, observer, .. }| same(paging, &ObservedOps { memory: self, observer }));
    }
}
