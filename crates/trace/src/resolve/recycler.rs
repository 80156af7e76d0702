//! Object ids for the merge: the same ids as [`crate::ids::ObjectIds`], but without tracking which are live. The
//! merge's address table does that.

use crate::ids::ObjectSet;

/// Unused ids that are pushed at a time.
const STOCK: usize = 1024;

/// The ids that are not in use, as a stack.
#[derive(Debug, Default)]
pub(super) struct Recycler {
    /// Up to `top`: unused ids, the lowest last, then freed ids in the order of their frees. The stack always has room
    /// for one more.
    pub(super) stack: Vec<u32>,
    pub(super) top: usize,
    /// Ids from here on have never been on the stack.
    stocked: u32,
}

impl Recycler {
    /// Prepares the stack for this number of allocations or frees; for fewer allocations if the ids run out.
    #[inline(always)]
    pub(super) fn stock(&mut self, calls: usize) {
        if self.top < calls || self.top + calls >= self.stack.len() {
            self.restock(calls);
        }
    }

    #[cold]
    fn restock(&mut self, calls: usize) {
        let fresh = match self.top < calls {
            true => STOCK.max(calls).min((u32::MAX - self.stocked) as usize),
            false => 0,
        };
        let room = self.top + fresh + calls + 1;
        if room > self.stack.len() {
            self.stack.resize(room.next_power_of_two(), 0);
        }
        self.stack.copy_within(..self.top, fresh);
        let end = self.stocked + fresh as u32;
        self.stack.iter_mut().zip((self.stocked..end).rev()).for_each(|(entry, id)| *entry = id);
        self.top += fresh;
        self.stocked = end;
    }

    /// The id that [`Recycler::allocate`] returns next; `None` if all are in use.
    pub(super) fn upcoming(&mut self) -> Option<u32> {
        self.stock(1);
        self.top.checked_sub(1).map(|last| self.stack[last])
    }

    /// The id freed last, else the next never used; `None` if all are in use.
    pub(super) fn allocate(&mut self) -> Option<u32> {
        let id = self.upcoming()?;
        self.top -= 1;
        Some(id)
    }

    /// Returns an id that is in use.
    pub(super) fn release(&mut self, id: u32) {
        self.stock(1);
        self.stack[self.top] = id;
        self.top += 1;
    }

    /// An empty set with room for every id used so far.
    pub(super) fn empty_set(&self) -> ObjectSet {
        ObjectSet::with_room(self.stocked)
    }
}

#[cfg(test)]
mod tests {
    use super::Recycler;
    use crate::ids::ObjectIds;

    #[test]
    fn returns_the_same_ids_as_object_ids() {
        let (mut ids, mut oracle, mut live) = (Recycler::default(), ObjectIds::new(), Vec::new());
        let mut random = 88_172_645_463_325_252u64;
        for step in 0..200_000u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Grows and shrinks in turn.
            let growing = step / 5000 % 2 == 0;
            if random % 8 < if growing { 5 } else { 3 } || live.is_empty() {
                assert_eq!(ids.upcoming(), Some(oracle.upcoming().0), "step {step}");
                let id = ids.allocate();
                assert_eq!(id, oracle.allocate().map(|id| id.0), "step {step}");
                live.extend(id);
            } else {
                let id = live.swap_remove(random as usize / 8 % live.len());
                ids.release(id);
                assert!(oracle.release(crate::event::ObjectId(id)));
            }
        }
    }
}
