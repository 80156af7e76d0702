//! The order of calls across threads, where a call that resizes a block takes long: the block's old address is free before
//! the call returns, so another thread may have got it when the return is seen.

use std::collections::VecDeque;

use hksim_trace::resolve::RawEvent;

/// Maximum number of events that wait for the return of a call.
const HELD_MAX: usize = 1 << 20;

/// What waits, in order of time.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// An outermost call of a thread began; it may resize a block.
    Begin(u32, Option<u64>),
    /// An event.
    Event(RawEvent),
}

/// Events in order of time; those that depend on a call in progress are held until it returns.
#[derive(Debug, Default)]
pub struct Order {
    /// Threads that resize a block, each with its old address.
    resizing: Vec<(u32, u64)>,
    /// The thread whose return is awaited.
    awaited: Option<u32>,
    held: VecDeque<Held>,
}

impl Order {
    /// A thread begins an outermost call: one that resizes the block at `old`, or another one.
    pub fn begin(&mut self, thread: u32, old: Option<u64>, out: &mut Vec<RawEvent>) {
        if self.awaited == Some(thread) {
            // Its earlier call did not return.
            self.resizing.retain(|(other, _)| *other != thread);
            self.release(out);
        }
        self.held.push_back(Held::Begin(thread, old.filter(|&old| old != 0)));
        self.go_on(out);
    }

    /// Takes the next event, in order of time. The events that can be written are appended to `out`.
    pub fn take(&mut self, raw: RawEvent, out: &mut Vec<RawEvent>) {
        self.held.push_back(Held::Event(raw));
        if self.held.len() > HELD_MAX {
            return self.end(out);
        }
        if self.awaited == Some(raw.thread) { self.release(out) } else { self.go_on(out) }
    }

    /// Ends all waiting.
    pub fn end(&mut self, out: &mut Vec<RawEvent>) {
        self.resizing.clear();
        let events = self.held.drain(..).filter_map(|held| if let Held::Event(raw) = held { Some(raw) } else { None });
        out.extend(events);
        self.awaited = None;
    }

    fn go_on(&mut self, out: &mut Vec<RawEvent>) {
        if self.awaited.is_none() {
            self.release(out);
        }
    }

    /// Passes on what is held, up to a block whose address another thread's call is about to free.
    fn release(&mut self, out: &mut Vec<RawEvent>) {
        self.awaited = None;
        while let Some(held) = self.held.pop_front() {
            match held {
                Held::Begin(thread, old) => {
                    self.resizing.retain(|(other, _)| *other != thread);
                    self.resizing.extend(old.map(|old| (thread, old)));
                }
                Held::Event(raw) => {
                    if let Some(thread) = self.freeing(&raw) {
                        self.held.push_front(held);
                        if !self.pass_first_of(thread, raw.time_ns, out) {
                            self.awaited = Some(thread);
                            return;
                        }
                    } else {
                        self.resizing.retain(|(thread, _)| *thread != raw.thread);
                        out.push(raw);
                    }
                }
            }
        }
    }

    /// Passes on the next event of a thread before all others; false if it has none yet.
    fn pass_first_of(&mut self, thread: u32, time_ns: u64, out: &mut Vec<RawEvent>) -> bool {
        let is_it = |held: &Held| matches!(held, Held::Event(raw) if raw.thread == thread);
        let found = self.held.iter().position(is_it).and_then(|at| self.held.remove(at));
        let Some(Held::Event(raw)) = found else { return false };
        self.resizing.retain(|(other, _)| *other != thread);
        out.push(RawEvent { time_ns, ..raw });
        true
    }

    /// The thread whose call is about to free the address of the block that the event returns.
    fn freeing(&self, raw: &RawEvent) -> Option<u32> {
        let is_it = |(thread, old): &&(u32, u64)| raw.op.allocated() == Some(*old) && *thread != raw.thread;
        self.resizing.iter().find(is_it).map(|(thread, _)| *thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_trace::event::AllocCall;
    use hksim_trace::functions::Function;

    fn malloc(time_ns: u64, thread: u32, address: u64) -> RawEvent {
        let op = Function::Alloc(AllocCall::Malloc).op([10, 0, 0], address).expect("a call");
        RawEvent::new(time_ns, thread, op)
    }

    fn resize(time_ns: u64, thread: u32, old: u64, new: u64) -> RawEvent {
        RawEvent::new(time_ns, thread, Function::Realloc.op([old, 20, 0], new).expect("a call"))
    }

    #[test]
    fn a_block_is_reused_after_the_call_that_frees_it() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        order.begin(1, Some(0x10), &mut out);
        order.begin(4, Some(0x40), &mut out);
        order.take(malloc(5, 2, 0x50), &mut out);
        assert_eq!(out.len(), 1, "another address");
        order.take(malloc(6, 2, 0x10), &mut out);
        order.take(malloc(7, 3, 0x60), &mut out);
        order.take(malloc(8, 3, 0x40), &mut out);
        assert_eq!(out.len(), 1, "all wait");
        order.take(resize(9, 1, 0x10, 0x70), &mut out);
        let expected = [malloc(5, 2, 0x50), resize(6, 1, 0x10, 0x70), malloc(6, 2, 0x10), malloc(7, 3, 0x60)];
        assert_eq!(out, expected, "the second one is awaited now");
        order.take(resize(10, 4, 0x40, 0x80), &mut out);
        assert_eq!(out[4..], [resize(8, 4, 0x40, 0x80), malloc(8, 3, 0x40)]);
    }

    #[test]
    fn nothing_waits_for_a_call_that_does_not_return() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        order.begin(1, Some(0x10), &mut out);
        order.take(malloc(6, 2, 0x10), &mut out);
        order.begin(1, None, &mut out);
        assert_eq!(out, [malloc(6, 2, 0x10)]);
        order.begin(1, Some(0x20), &mut out);
        order.take(malloc(7, 2, 0x20), &mut out);
        order.end(&mut out);
        assert_eq!(out.len(), 2);
    }
}
