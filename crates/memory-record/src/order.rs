//! Puts the effects of concurrent calls into the order in which they took place.
//!
//! A call takes effect somewhere between its entry and its exit. A call that gives memory up counts at its entry, but
//! its result is known only at its exit. Until then later output waits.

use std::collections::{BTreeMap, HashMap};

/// An entered call.
#[derive(Clone, Copy, Debug)]
struct Entered {
    time_ns: u64,
    /// Later output waits for this call.
    blocks: bool,
}

/// Sorts output by time while calls are in progress. `T` is the output.
#[derive(Debug)]
pub struct Order<T> {
    /// Calls in progress, by thread.
    entered: HashMap<u32, Entered>,
    blocking: usize,
    /// Output that waits for a blocking call, by time and then by order of arrival.
    waiting: BTreeMap<(u64, u64), T>,
    arrivals: u64,
}

impl<T> Order<T> {
    /// No call is in progress.
    pub fn new() -> Self {
        Self { entered: HashMap::new(), blocking: 0, waiting: BTreeMap::new(), arrivals: 0 }
    }

    /// A thread enters a call. With `blocks`, output from now on waits until [`Order::exit`] or [`Order::abandon`].
    pub fn enter(&mut self, tid: u32, time_ns: u64, blocks: bool) {
        self.abandon(tid);
        self.blocking += usize::from(blocks);
        self.entered.insert(tid, Entered { time_ns, blocks });
    }

    /// A thread leaves its call. Returns the time of the entry; `None` if the entry was lost.
    pub fn exit(&mut self, tid: u32) -> Option<u64> {
        let entered = self.entered.remove(&tid)?;
        self.blocking -= usize::from(entered.blocks);
        Some(entered.time_ns)
    }

    /// A thread ended within a call.
    pub fn abandon(&mut self, tid: u32) {
        self.exit(tid);
    }

    /// The time of the first waiting output at or after `from_ns` for which `matches` holds.
    pub fn first_waiting(&self, from_ns: u64, matches: impl Fn(&T) -> bool) -> Option<u64> {
        self.waiting.range((from_ns, 0)..).find(|(_, output)| matches(output)).map(|(&(time_ns, _), _)| time_ns)
    }

    /// Adds output that took effect at `time_ns`.
    pub fn push(&mut self, time_ns: u64, output: T) {
        self.arrivals += 1;
        self.waiting.insert((time_ns, self.arrivals), output);
    }

    /// Adds output before all waiting output of the same time.
    pub fn push_before(&mut self, time_ns: u64, output: T) {
        self.waiting.insert((time_ns, 0), output);
    }

    /// Removes the next output that no call in progress can precede.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let (&key, _) = self.waiting.first_key_value()?;
        if self.blocking > 0 {
            let blocking = self.entered.values().filter(|entered| entered.blocks);
            if blocking.map(|entered| entered.time_ns).min().is_some_and(|earliest_ns| earliest_ns <= key.0) {
                return None;
            }
        }
        self.waiting.remove(&key).map(|output| (key.0, output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn popped(order: &mut Order<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| order.pop().map(|(_, output)| output)).collect()
    }

    #[test]
    fn output_waits_for_a_blocking_call() {
        let mut order = Order::new();
        order.push(1, "before");
        order.enter(7, 2, true);
        order.push(3, "map of the freed range by another thread");
        assert_eq!(popped(&mut order), ["before"]);
        assert_eq!(order.exit(7), Some(2));
        order.push(2, "unmap");
        assert_eq!(popped(&mut order), ["unmap", "map of the freed range by another thread"]);
    }

    #[test]
    fn a_thread_that_ends_blocks_no_longer() {
        let mut order = Order::new();
        order.enter(7, 2, true);
        order.enter(8, 3, false);
        order.push(4, "touch");
        assert_eq!(popped(&mut order), [""; 0]);
        order.abandon(7);
        assert_eq!(popped(&mut order), ["touch"]);
        assert_eq!((order.exit(7), order.exit(8)), (None, Some(3)));
    }

    #[test]
    fn equal_times_keep_the_order_of_arrival() {
        let mut order = Order::new();
        for output in ["a", "b", "c"] {
            order.push(5, output);
        }
        order.push_before(5, "first");
        assert_eq!(popped(&mut order), ["first", "a", "b", "c"]);
    }
}
