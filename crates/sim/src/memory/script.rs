//! What a paging policy does next, if these were the results of what it has done so far.

use std::cell::Cell;

use hksim_policy::Errno;
use hksim_policy::memory::{Advice, ArenaRange, Locking, Mapping, PageOps};

/// Stands for a result that is not known yet. What a policy makes of it is ignored.
const UNKNOWN: Result<u64, Errno> = Err(Errno(0));

/// A page operation: a call of a method of [`PageOps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageOp {
    Map(ArenaRange, Mapping),
    Unmap(ArenaRange),
    Advise(ArenaRange, Advice),
    Remap(ArenaRange, u64),
    MapAnywhere(u64, Mapping),
    UnmapAt(u64, u64),
    Touch(ArenaRange),
    Fill(ArenaRange),
    LockTables,
    Lock(ArenaRange, Locking),
}

impl PageOp {
    /// Performs the operation. The result of one that returns nothing is 0.
    pub(super) fn perform(self, ops: &dyn PageOps) -> Result<u64, Errno> {
        let done = match self {
            PageOp::Map(range, mapping) => ops.map(range, mapping),
            PageOp::Unmap(range) => ops.unmap(range),
            PageOp::Advise(range, advice) => ops.advise(range, advice),
            PageOp::Remap(from, to_start) => ops.remap(from, to_start),
            PageOp::MapAnywhere(bytes, mapping) => return ops.map_anywhere(bytes, mapping),
            PageOp::UnmapAt(address, bytes) => ops.unmap_at(address, bytes),
            PageOp::Touch(range) => {
                ops.touch_pages(range);
                Ok(())
            }
            PageOp::Fill(range) => {
                ops.fill_pages(range);
                Ok(())
            }
            PageOp::LockTables => ops.lock_tables(),
            PageOp::Lock(range, locking) => ops.lock_range(range, locking),
        };
        done.map(|()| 0)
    }
}

/// Takes the part of a memory: returns the known results, and notes the first operation after them.
#[derive(Clone, Default)]
pub(super) struct Script {
    results: Vec<Result<u64, Errno>>,
    /// Operations that the policy has asked for.
    asked: Cell<usize>,
    next: Cell<Option<PageOp>>,
}

impl Script {
    /// Plays a policy from its first operation on. Returns what it returns, and the first operation whose result is not
    /// known; if there is one, what the policy returns means nothing.
    pub(super) fn play<A>(&self, policy: impl FnOnce(&dyn PageOps) -> A) -> (A, Option<PageOp>) {
        self.asked.set(0);
        self.next.set(None);
        let returned = policy(self);
        (returned, self.next.get())
    }

    /// Adds the result of the operation after those whose results are known.
    pub(super) fn add(&mut self, result: Result<u64, Errno>) {
        self.results.push(result);
    }

    fn ask(&self, op: PageOp) -> Result<u64, Errno> {
        let number = self.asked.replace(self.asked.get() + 1);
        if number == self.results.len() {
            self.next.set(Some(op));
        }
        self.results.get(number).copied().unwrap_or(UNKNOWN)
    }

    fn ask_whether(&self, op: PageOp) -> Result<(), Errno> {
        self.ask(op).map(|_| ())
    }
}

impl PageOps for Script {
    fn map(&self, range: ArenaRange, mapping: Mapping) -> Result<(), Errno> {
        self.ask_whether(PageOp::Map(range, mapping))
    }

    fn unmap(&self, range: ArenaRange) -> Result<(), Errno> {
        self.ask_whether(PageOp::Unmap(range))
    }

    fn advise(&self, range: ArenaRange, advice: Advice) -> Result<(), Errno> {
        self.ask_whether(PageOp::Advise(range, advice))
    }

    fn remap(&self, from: ArenaRange, to_start: u64) -> Result<(), Errno> {
        self.ask_whether(PageOp::Remap(from, to_start))
    }

    fn map_anywhere(&self, bytes: u64, mapping: Mapping) -> Result<u64, Errno> {
        self.ask(PageOp::MapAnywhere(bytes, mapping))
    }

    fn unmap_at(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        self.ask_whether(PageOp::UnmapAt(address, bytes))
    }

    fn touch_pages(&self, range: ArenaRange) {
        let _ = self.ask(PageOp::Touch(range));
    }

    fn fill_pages(&self, range: ArenaRange) {
        let _ = self.ask(PageOp::Fill(range));
    }

    fn lock_tables(&self) -> Result<(), Errno> {
        self.ask_whether(PageOp::LockTables)
    }

    fn lock_range(&self, range: ArenaRange, locking: Locking) -> Result<(), Errno> {
        self.ask_whether(PageOp::Lock(range, locking))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: ArenaRange = ArenaRange { start: 0, bytes: 1 << 21 };

    /// Populates, and touches if that fails.
    fn policy(ops: &dyn PageOps) -> bool {
        let populated = ops.advise(RANGE, Advice::PopulateWrite).is_ok();
        if !populated {
            ops.touch_pages(RANGE);
        }
        populated
    }

    #[test]
    fn the_next_operation_depends_on_the_results_so_far() {
        let mut script = Script::default();
        assert_eq!(script.play(policy).1, Some(PageOp::Advise(RANGE, Advice::PopulateWrite)));
        let mut refused = script.clone();
        script.add(Ok(0));
        assert_eq!(script.play(policy), (true, None));
        refused.add(Err(Errno(22)));
        assert_eq!(refused.play(policy).1, Some(PageOp::Touch(RANGE)));
        refused.add(Ok(0));
        assert_eq!(refused.play(policy), (false, None));
    }
}
