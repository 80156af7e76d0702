//! Object ids for the merge: those of [`crate::ids::ObjectIds`], without its account of which are live, which the
//! merge's table of addresses keeps.

use crate::ids::ObjectSet;

/// Ids never used that are put into the stack at once.
const STOCK: usize = 1024;

/// The ids that are not in use, as a stack.
#[derive(Debug, Default)]
pub(super) struct Recycler {
    /// Up to `top`: ids never used, the lowest last, then those freed, in the order of their frees. There is always room for
    /// one more.
    pub(super) stack: Vec<u32>,
    pub(super) top: usize,
    /// Ids from here on have not been in the stack yet.
    stocked: u32,
}

impl Recycler {
    /// Makes sure that so many allocations, or frees, need nothing but the stack; fewer allocations where all ids are in use.
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

    /// The id that [`Recycler::allocate`] gives out next; `None` if all are in use.
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

    /// Takes an id back that is in use.
    pub(super) fn release(&mut self, id: u32) {
        self.stock(1);
        self.stack[self.top] = id;
        self.top += 1;
    }

    /// A set with room for every id given out so far.
    pub(super) fn empty_set(&self) -> ObjectSet {
        ObjectSet::with_room(self.stocked)
    }
}

#[cfg(test)]
mod tests {
    use super::Recycler;
    use crate::ids::ObjectIds;

    #[test]
    fn gives_out_what_object_ids_gives_out() {
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
