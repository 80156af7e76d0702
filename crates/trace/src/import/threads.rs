//! Gives each thread a unique number, as the kernel reuses the tids of ended threads.

use crate::resolve::RawOp;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Threads {
    live: HashMap<u64, u32>,
    seen: u32,
}

impl Threads {
    /// The number of the thread that makes the call `op`. After a thread has ended, its tid stands for a new thread.
    pub(super) fn number(&mut self, tid: u64, op: &RawOp) -> u32 {
        let number = *self.live.entry(tid).or_insert_with(|| {
            self.seen = self.seen.wrapping_add(1);
            self.seen
        });
        if *op == RawOp::ThreadExit {
            self.live.remove(&tid);
        }
        number
    }
}
