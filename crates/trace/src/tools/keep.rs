//! A trace with some of its objects left out, from birth to death: what a shrinking search tries.

use super::Edit;
use crate::event::{Event, ObjectId};
use crate::header::{Header, Step};
use serde_json::Value;
use std::sync::Arc;

/// A set of lifetimes, numbered in the order of their births: one bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    bits: Vec<u64>,
    count: u64,
}

impl Lifetimes {
    /// All of `count` lifetimes.
    pub fn all(count: u64) -> Self {
        let mut lifetimes = Lifetimes { bits: vec![0; count.div_ceil(64) as usize], count: 0 };
        (0..count).for_each(|number| lifetimes.insert(number));
        lifetimes
    }

    /// Whether a lifetime is in the set.
    #[inline]
    pub fn contains(&self, number: u64) -> bool {
        self.bits.get((number / 64) as usize).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }

    /// Takes a lifetime out.
    pub fn remove(&mut self, number: u64) {
        if self.contains(number) {
            self.bits[(number / 64) as usize] &= !(1 << (number % 64));
            self.count -= 1;
        }
    }

    fn insert(&mut self, number: u64) {
        self.bits[(number / 64) as usize] |= 1 << (number % 64);
        self.count += 1;
    }

    /// Number of lifetimes in the set.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The lifetimes in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.bits.iter().zip((0u64..).step_by(64));
        words.flat_map(|(&bits, first)| (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| first + bit))
    }
}

/// Keeps some lifetimes with all their events, and of the rest only what is about no object at all (threads, marks) -
/// unless that is left out too.
#[derive(Clone, Debug)]
pub struct Keep {
    lifetimes: Arc<Lifetimes>,
    born: u64,
    /// Objects that are live and left out.
    left_out: Vec<bool>,
    parameters: Vec<(String, Value)>,
}

impl Keep {
    /// Keeps `lifetimes`; `parameters` go into the history.
    pub fn new(lifetimes: Arc<Lifetimes>, parameters: Vec<(String, Value)>) -> Self {
        Keep { lifetimes, born: 0, left_out: Vec::new(), parameters }
    }

    fn left_out(&mut self, object: ObjectId) -> &mut bool {
        let at = object.0 as usize;
        if self.left_out.len() <= at {
            self.left_out.resize(at + 1, false);
        }
        &mut self.left_out[at]
    }
}

impl Edit for Keep {
    fn edit(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        let Some(object) = event.op.object() else { return emit(*event) };
        if event.op.is_birth() {
            let keeps = self.lifetimes.contains(self.born);
            self.born += 1;
            *self.left_out(object) = !keeps;
        }
        if !*self.left_out(object) {
            emit(*event);
        }
    }

    fn header(&self, source: &Header) -> Header {
        let mut header = source.clone();
        let parameters = self.parameters.iter().cloned().collect();
        header.history.push(Step { tool: "shrink".into(), parameters });
        header
    }
}
