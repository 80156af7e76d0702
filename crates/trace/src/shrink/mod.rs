//! The search for a smaller trace that keeps a property: delta debugging over whole lifetimes.
//!
//! The search first removes events without an object (`free(NULL)`, failed calls, marks), then threads, then sizes,
//! then ever smaller ranges of lifetimes. An object is removed with all its events, so every candidate is a valid
//! trace.

mod property;

pub use property::{Property, figures};

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::TraceError;
use crate::event::{Event, Op};
use crate::hkt::TraceReader;
use crate::row::op_name;
use crate::source::EventSource;
use crate::tools::{LifetimeSet, Selection};

/// Decides whether a part of the trace has the property.
pub trait Trial {
    /// Why a trial fails.
    type Error: From<TraceError>;

    /// Whether the part has the property.
    ///
    /// # Errors
    /// The trial failed; the search ends.
    fn holds(&mut self, kept: &Selection) -> Result<bool, Self::Error>;
}

/// A search over one trace.
pub struct Search<'a, T> {
    reader: &'a mut TraceReader,
    trial: T,
    tries_left: u64,
    /// The smallest part found so far.
    kept: Selection,
}

/// The key by which objects are grouped.
#[derive(Clone, Copy)]
enum Group {
    Thread,
    /// log2 of the requested size.
    Size,
}

impl Group {
    fn of(self, event: &Event) -> u32 {
        match (self, event.op) {
            (Group::Thread, _) => event.thread.0,
            (Group::Size, Op::Alloc { size, .. } | Op::ReallocUnknown { size, .. }) => 64 - size.leading_zeros(),
            (Group::Size, _) => 0,
        }
    }
}

impl<'a, T: Trial> Search<'a, T> {
    /// A search with at most `tries` trials, starting with all lifetimes.
    ///
    /// # Errors
    /// The trace is damaged.
    pub fn new(reader: &'a mut TraceReader, trial: T, tries: u64) -> Result<Self, T::Error> {
        let mut search = Search { reader, trial, tries_left: tries, kept: Selection::default() };
        let mut all = LifetimeSet::default();
        search.allocations(&mut |number, _| all.insert(number))?;
        search.kept.lifetimes = Arc::new(all);
        Ok(search)
    }

    /// Whether the whole trace has the property.
    ///
    /// # Errors
    /// Those of the trial.
    pub fn begins(&mut self) -> Result<bool, T::Error> {
        self.trial.holds(&self.kept)
    }

    /// The smallest part found, and the number of unused trials.
    ///
    /// # Errors
    /// Those of the trial and of the trace.
    pub fn run(mut self) -> Result<(Selection, u64), T::Error> {
        self.by_operation()?;
        self.by_group(Group::Thread)?;
        self.by_group(Group::Size)?;
        let numbers: Vec<u64> = self.kept.lifetimes.iter().collect();
        let (trial, tries_left) = (&mut self.trial, &mut self.tries_left);
        let without = self.kept.without;
        let kept = minimise(numbers, tries_left, &mut |numbers| {
            trial.holds(&Selection { lifetimes: Arc::new(numbers.iter().copied().collect()), without: without.clone() })
        })?;
        Ok((Selection { lifetimes: Arc::new(kept.into_iter().collect()), without }, self.tries_left))
    }

    /// Removes events without an object: all kinds together, then each kind separately.
    fn by_operation(&mut self) -> Result<(), T::Error> {
        let mut present = BTreeSet::new();
        self.reader.rewind()?;
        while let Some(batch) = self.reader.next_batch()? {
            present.extend(batch.iter().filter(|event| event.op.object().is_none()).map(|event| op_name(&event.op)));
        }
        let singly = present.iter().map(|&name| vec![name]);
        for names in std::iter::once(present.iter().copied().collect()).chain(singly) {
            if names.iter().all(|name| self.kept.without.contains(name)) {
                continue;
            }
            if self.tries_left == 0 {
                break;
            }
            self.tries_left -= 1;
            let mut tried = self.kept.clone();
            tried.without.extend(names);
            if self.trial.holds(&tried)? {
                self.kept = tried;
            }
        }
        Ok(())
    }

    /// Removes whole groups.
    fn by_group(&mut self, group: Group) -> Result<(), T::Error> {
        let mut present = BTreeSet::new();
        let Selection { lifetimes: kept, without } = std::mem::take(&mut self.kept);
        self.allocations(&mut |number, event| {
            if kept.contains(number) {
                present.insert(group.of(event));
            }
        })?;
        let mut tries_left = self.tries_left;
        let members = |search: &mut Self, groups: &[u32]| {
            let mut members = LifetimeSet::default();
            search.allocations(&mut |number, event| {
                if kept.contains(number) && groups.contains(&group.of(event)) {
                    members.insert(number);
                }
            })?;
            Ok::<_, T::Error>(members)
        };
        let groups = minimise(present.into_iter().collect(), &mut tries_left, &mut |groups| {
            let lifetimes = Arc::new(members(self, groups)?);
            self.trial.holds(&Selection { lifetimes, without: without.clone() })
        })?;
        let lifetimes = Arc::new(members(self, &groups)?);
        self.kept = Selection { lifetimes, without };
        self.tries_left = tries_left;
        Ok(())
    }

    /// Calls `see` with the number and the event of each allocation.
    fn allocations(&mut self, see: &mut dyn FnMut(u64, &Event)) -> Result<(), TraceError> {
        self.reader.rewind()?;
        let mut number = 0;
        while let Some(batch) = self.reader.next_batch()? {
            for event in batch.iter().filter(|event| event.op.creates_object()) {
                see(number, event);
                number += 1;
            }
        }
        Ok(())
    }
}

/// Removes parts of `items` while the rest has the property: halves first, then ever smaller parts, down to single
/// items (Zeller's ddmin, complements only).
fn minimise<I: Clone, E>(
    mut items: Vec<I>,
    tries_left: &mut u64,
    holds: &mut dyn FnMut(&[I]) -> Result<bool, E>,
) -> Result<Vec<I>, E> {
    let mut parts = 2;
    while items.len() > 1 {
        let length = items.len().div_ceil(parts);
        let mut from = 0;
        let mut smaller = false;
        while from < items.len() {
            if *tries_left == 0 {
                return Ok(items);
            }
            *tries_left -= 1;
            let to = items.len().min(from + length);
            let rest = [&items[..from], &items[to..]].concat();
            if !rest.is_empty() && holds(&rest)? {
                items = rest;
                smaller = true;
            } else {
                from = to;
            }
        }
        if length == 1 && !smaller {
            break;
        }
        parts = if smaller { (items.len().div_ceil(length)).max(2) } else { parts * 2 };
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::minimise;
    use crate::error::TraceError;

    #[test]
    fn what_is_needed_stays_and_nothing_else() {
        for needed in [vec![3], vec![0, 99], vec![17, 18, 50], (0..100).step_by(7).collect::<Vec<u32>>()] {
            let mut tries = u64::MAX;
            let mut holds = |items: &[u32]| Ok::<_, TraceError>(needed.iter().all(|number| items.contains(number)));
            assert_eq!(minimise((0..100).collect(), &mut tries, &mut holds).unwrap(), needed);
        }
    }

    #[test]
    fn trials_are_bounded() {
        let (mut tries, mut trials) = (10, 0);
        let mut holds = |items: &[u32]| {
            trials += 1;
            Ok::<_, TraceError>(items.contains(&5))
        };
        let kept = minimise((0..1000).collect(), &mut tries, &mut holds).unwrap();
        assert!(kept.contains(&5) && kept.len() < 1000);
        assert_eq!((tries, trials), (0, 10));
    }
}
