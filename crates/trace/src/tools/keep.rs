//! Keeps some objects of a trace, with all their events. `trace shrink` creates its candidates with this edit.

use super::Edit;
use crate::event::{Event, ObjectId};
use crate::header::{Header, HistoryStep};
use crate::row::op_name;
use serde_json::Value;
use std::sync::Arc;

/// A set of lifetimes, as one bit each. Lifetimes are numbered in order of allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifetimeSet {
    bits: Vec<u64>,
    count: u64,
}

impl LifetimeSet {
    /// The set of the lifetimes from 0 to `count` - 1.
    pub fn all(count: u64) -> Self {
        (0..count).collect()
    }

    /// Whether a lifetime is in the set.
    #[inline]
    pub fn contains(&self, number: u64) -> bool {
        self.bits.get((number / 64) as usize).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }

    /// Removes a lifetime.
    pub fn remove(&mut self, number: u64) {
        if self.contains(number) {
            self.bits[(number / 64) as usize] &= !(1 << (number % 64));
            self.count -= 1;
        }
    }

    /// Adds a lifetime.
    pub fn insert(&mut self, number: u64) {
        let at = (number / 64) as usize;
        if self.bits.len() <= at {
            self.bits.resize(at + 1, 0);
        }
        self.count += u64::from(!self.contains(number));
        self.bits[at] |= 1 << (number % 64);
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

impl FromIterator<u64> for LifetimeSet {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut lifetimes = LifetimeSet::default();
        numbers.into_iter().for_each(|number| lifetimes.insert(number));
        lifetimes
    }
}

/// Which events to keep.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Objects to keep, with all their events.
    pub lifetimes: Arc<LifetimeSet>,
    /// Kinds of events without an object to leave out, by the names of [`op_name`].
    pub without: Vec<&'static str>,
}

/// The edit: keeps some lifetimes with all their events, and some of the events without an object.
#[derive(Clone, Debug)]
pub struct Keep {
    selection: Selection,
    allocations: u64,
    /// Whether the live object with this id is left out.
    left_out: Vec<bool>,
    parameters: Vec<(String, Value)>,
}

impl Keep {
    /// Keeps `selection`; `parameters` go into the history.
    pub fn new(selection: Selection, parameters: Vec<(String, Value)>) -> Self {
        Keep { selection, allocations: 0, left_out: Vec::new(), parameters }
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
        let Some(object) = event.op.object() else {
            if !self.selection.without.contains(&op_name(&event.op)) {
                emit(*event);
            }
            return;
        };
        if event.op.creates_object() {
            let keeps = self.selection.lifetimes.contains(self.allocations);
            self.allocations += 1;
            *self.left_out(object) = !keeps;
        }
        if !*self.left_out(object) {
            emit(*event);
        }
    }

    fn header(&self, source: &Header) -> Header {
        let mut header = source.clone();
        let parameters = self.parameters.iter().cloned().collect();
        header.history.push(HistoryStep { tool: "shrink".into(), parameters });
        header
    }
}
