//! A number of its own for each thread, as the kernel gives the tid of a dead one to another.

use crate::resolve::RawOp;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Threads {
    live: HashMap<u64, u32>,
    seen: u32,
}

impl Threads {
    /// The number of the thread that does `op`. After its end the tid is another thread's.
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
