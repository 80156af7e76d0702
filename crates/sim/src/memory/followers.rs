//! Other paging policies that share the placement of the allocator's own.
//!
//! Placement learns of paging only what page operations return ([`Memory::perform`]). So one run of the allocator
//! serves every paging policy that returns the same. A follower that returns anything else than the leader parts from
//! it: from then on its placement may differ, and its figures are worthless.
//!
//! Policies that start under equal conditions also share an observer, for as long as they ask for the same page
//! operations: before each operation, all of them are played up to it (`script.rs`). Those that ask for another one get
//! a copy of the observer as it is then.
//!
//! [`Memory::perform`]: hksim_policy::Memory::perform

use std::cell::RefCell;
use std::mem;

use hksim_policy::Paging;
use hksim_policy::memory::PageOps;
use hksim_policy::vocabulary::{Align, Header};

use super::SimMemory;
use super::page_ops::ObservedOps;
use super::script::{PageOp, Script};
use crate::observer::MemoryObserver;

/// A paging policy that follows another one.
#[derive(Clone)]
struct Follower {
    number: usize,
    paging: Paging,
}

impl Follower {
    fn whose(&self) -> Whose<'_> {
        Whose::Followers(&self.paging)
    }
}

/// An observer, and the policies that share it.
#[derive(Clone)]
struct Shared<H> {
    observer: RefCell<H>,
    followers: Vec<Follower>,
}

/// The followers that have not parted from the leader.
#[derive(Clone)]
pub struct Followers<H> {
    /// Those that share the leader's observer.
    with_leader: Vec<Follower>,
    others: Vec<Shared<H>>,
}

impl<H> Default for Followers<H> {
    fn default() -> Followers<H> {
        Followers { with_leader: Vec::new(), others: Vec::new() }
    }
}

impl<H> Followers<H> {
    /// Adds a policy, which its owner identifies by a number above 0. `like` is the number of an earlier one, or 0 for the
    /// leader, whose observer is equal; if there is none, the policy gets one of its own.
    pub fn add(&mut self, number: usize, paging: Paging, like: Option<usize>, observer: impl FnOnce() -> H) {
        let follower = Follower { number, paging };
        let is_like = |shared: &&mut Shared<H>| shared.followers.iter().any(|other| Some(other.number) == like);
        if like == Some(0) {
            self.with_leader.push(follower);
        } else if let Some(shared) = self.others.iter_mut().find(is_like) {
            shared.followers.push(follower);
        } else {
            self.others.push(Shared { observer: RefCell::new(observer()), followers: vec![follower] });
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.with_leader.is_empty() && self.others.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &Follower> {
        self.with_leader.iter().chain(self.others.iter().flat_map(|shared| &shared.followers))
    }
}

/// Whose policy takes steps.
#[derive(Clone, Copy)]
enum Whose<'a> {
    Leaders,
    Followers(&'a Paging),
}

/// What a policy does next.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    /// It asks for an operation.
    Asks(PageOp),
    /// It returns the same as the leader, or before the leader does.
    Agrees,
    /// It returns anything else.
    Differs,
}

/// Determines the next step of a policy. Not generic over what the policy does: there are a hundred.
type NextStep<'a> = &'a dyn Fn(Whose<'_>, &Script) -> Step;

impl<H: MemoryObserver> SimMemory<H> {
    /// Whether a placement can serve several paging policies. With separate mappings, the kernel chooses addresses, so
    /// placement depends on it. Contents, which headers that are read need, depend on what was purged. An observer of
    /// every access would see those of its own policy only.
    pub fn can_have_followers(align: Align, header: Header) -> bool {
        !H::ACCESSES.any() && align == Align::Arena && matches!(header, Header::None | Header::Full)
    }

    /// Calls `visit` with 0 and the leader's observer, then with the number and observer of each follower that has not
    /// parted.
    pub fn each_track(&self, mut visit: impl FnMut(usize, &H)) {
        let followers = self.followers.borrow();
        let leader = self.observed(&self.observer);
        visit(0, &leader);
        followers.with_leader.iter().for_each(|follower| visit(follower.number, &leader));
        for Shared { observer, followers } in &followers.others {
            let observer = self.observed(observer);
            followers.iter().for_each(|follower| visit(follower.number, &observer));
        }
    }

    /// Calls `call` with every observer.
    pub fn each_observer(&self, mut call: impl FnMut(&mut H)) {
        call(&mut self.observed(&self.observer));
        for shared in &self.followers.borrow().others {
            call(&mut self.observed(&shared.observer));
        }
    }

    /// Performs an operation for the leader and for each follower. Followers with another result part.
    pub(super) fn perform_for_all<A: PartialEq>(
        &self,
        own: &Paging,
        operation: impl Fn(&Paging, &dyn PageOps) -> A,
    ) -> A {
        if self.followers.borrow().is_empty() {
            return operation(own, &ObservedOps { memory: self, observer: &self.observer });
        }
        let leaders = RefCell::new(None);
        self.step_all(&|whose, script| {
            let paging = if let Whose::Followers(paging) = whose { paging } else { own };
            match (script.play(|ops| operation(paging, ops)), whose) {
                // To an observer of pages alone, writing a page's first byte is as writing all of it.
                ((_, Some(PageOp::Fill(range))), _) if !H::COUNTS_PATHS => Step::Asks(PageOp::Touch(range)),
                ((_, Some(op)), _) => Step::Asks(op),
                ((returned, None), Whose::Leaders) => {
                    *leaders.borrow_mut() = Some(returned);
                    Step::Agrees
                }
                ((returned, None), Whose::Followers(_)) => match &*leaders.borrow() {
                    Some(leaders) if *leaders != returned => Step::Differs,
                    _ => Step::Agrees,
                },
            }
        });
        match leaders.into_inner() {
            Some(returned) => returned,
            None => unreachable!("the leader takes its steps to the end first"),
        }
    }

    /// Takes all steps of the leader, then those of the followers.
    fn step_all(&self, next: NextStep<'_>) {
        let agrees = |whose: Whose<'_>| next(whose, &Script::default()) == Step::Agrees;
        // Most operations are questions to which all give the same answer.
        if agrees(Whose::Leaders) && self.followers.borrow().iter().all(|follower| agrees(follower.whose())) {
            return;
        }
        let mut with_leader = mem::take(&mut self.followers.borrow_mut().with_leader);
        let leader = Some(Whose::Leaders);
        let begun = self.take_steps(&self.observer, leader, &mut with_leader, Script::default(), next);
        self.followers.borrow_mut().with_leader = with_leader;
        let before = self.followers.borrow().others.len();
        let mut scripts = self.add_begun(begun);
        let mut at = 0;
        while at < before + scripts.len() {
            let script = at.checked_sub(before).map(|number| mem::take(&mut scripts[number]));
            let mut followers = mem::take(&mut self.followers.borrow_mut().others[at].followers);
            let begun = {
                let observer = &self.followers.borrow().others[at].observer;
                self.take_steps(observer, None, &mut followers, script.unwrap_or_default(), next)
            };
            self.followers.borrow_mut().others[at].followers = followers;
            scripts.extend(self.add_begun(begun));
            at += 1;
        }
        self.followers.borrow_mut().others.retain(|shared| !shared.followers.is_empty());
    }

    /// Takes the steps of the policies that share an observer: followers, and the leader's, if it is given. Of the
    /// followers, those that take another step are removed. They are returned with a copy of the observer and with the
    /// steps before that one, unless they part from the leader.
    fn take_steps(
        &self,
        observer: &RefCell<H>,
        leader: Option<Whose<'_>>,
        followers: &mut Vec<Follower>,
        mut script: Script,
        next: NextStep<'_>,
    ) -> Vec<(Shared<H>, Script)> {
        let mut begun = Vec::new();
        let others_from = usize::from(leader.is_none());
        while let Some(first) = leader.or(followers.first().map(Follower::whose)) {
            let step = next(first, &script);
            let step_of = |follower: &Follower| next(follower.whose(), &script);
            let mut apart: Vec<Follower> =
                followers.extract_if(others_from.., |follower| step_of(follower) != step).collect();
            apart.retain(|follower| step_of(follower) != Step::Differs);
            if !apart.is_empty() {
                begun.push((Shared { observer: observer.clone(), followers: apart }, script.clone()));
            }
            match step {
                Step::Asks(op) => script.add(op.perform(&ObservedOps { memory: self, observer })),
                Step::Agrees => break,
                Step::Differs => followers.clear(),
            }
        }
        begun
    }

    /// Adds observers that were copied. Returns the steps before they were.
    fn add_begun(&self, begun: Vec<(Shared<H>, Script)>) -> Vec<Script> {
        let add = |(shared, script)| {
            self.followers.borrow_mut().others.push(shared);
            script
        };
        begun.into_iter().map(add).collect()
    }
}
