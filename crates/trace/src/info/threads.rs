//! Allocations and frees by thread, and frees across threads.

use crate::event::ThreadId;
use serde::Serialize;
use std::collections::HashMap;

/// Maximum number of rows in each list.
const ROWS_MAX: usize = 16;
/// Maximum number of pairs of threads that are counted; further pairs are ignored.
const PAIRS_MAX: usize = 1 << 16;

/// Allocations and frees of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThreadUse {
    /// The thread.
    pub thread: u32,
    /// Blocks it allocated.
    pub allocations: u64,
    /// Bytes it requested; for a resize, the bytes added.
    pub allocated_bytes: u64,
    /// Blocks it freed, including those that other threads allocated.
    pub frees: u64,
    /// Blocks that it allocated and other threads freed.
    pub freed_by_others: u64,
    /// Time of its first event, in nanoseconds.
    pub first_ns: u64,
    /// Time of its last event, in nanoseconds.
    pub last_ns: u64,
}

/// Blocks allocated by one thread and freed by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CrossThreadPair {
    /// The thread that allocated them.
    pub allocated_by: u32,
    /// The thread that freed them.
    pub freed_by: u32,
    /// Number of these blocks.
    pub frees: u64,
}

#[derive(Default)]
pub(super) struct ThreadTally {
    uses: Vec<ThreadUse>,
    crossings: HashMap<(u32, u32), u64>,
}

impl ThreadTally {
    pub(super) fn seen(&mut self, thread: ThreadId, now_ns: u64) {
        let at = thread.0 as usize;
        while self.uses.len() <= at {
            let thread = self.uses.len() as u32;
            self.uses.push(ThreadUse { thread, first_ns: now_ns, ..ThreadUse::default() });
        }
        self.uses[at].last_ns = now_ns;
    }

    pub(super) fn allocate(&mut self, thread: ThreadId, bytes: u64) {
        self.uses[thread.0 as usize].allocations += 1;
        self.add(thread, bytes);
    }

    /// Adds the bytes of an allocation or resize.
    pub(super) fn add(&mut self, thread: ThreadId, bytes: u64) {
        let thread = &mut self.uses[thread.0 as usize];
        thread.allocated_bytes = thread.allocated_bytes.saturating_add(bytes);
    }

    pub(super) fn free(&mut self, owner: ThreadId, thread: ThreadId) {
        self.uses[thread.0 as usize].frees += 1;
        if owner == thread {
            return;
        }
        self.uses[owner.0 as usize].freed_by_others += 1;
        let (pair, is_full) = ((owner.0, thread.0), self.crossings.len() >= PAIRS_MAX);
        if let Some(frees) = self.crossings.get_mut(&pair) {
            *frees += 1;
        } else if !is_full {
            self.crossings.insert(pair, 1);
        }
    }

    /// The threads with the most allocations, and the pairs with the most frees across threads.
    pub(super) fn finish(mut self) -> (Vec<ThreadUse>, Vec<CrossThreadPair>) {
        self.uses.sort_by_key(|thread| (std::cmp::Reverse(thread.allocations), thread.thread));
        self.uses.truncate(ROWS_MAX);
        let crossings = self.crossings.into_iter();
        let mut crossings: Vec<CrossThreadPair> = crossings
            .map(|((allocated_by, freed_by), frees)| CrossThreadPair { allocated_by, freed_by, frees })
            .collect();
        crossings.sort_by_key(|pair| (std::cmp::Reverse(pair.frees), pair.allocated_by, pair.freed_by));
        crossings.truncate(ROWS_MAX);
        (self.uses, crossings)
    }
}
