//! A bounded queue of events from the dispatcher to one thread, with one writer and one reader.

use std::cell::UnsafeCell;

use hksim_trace::event::Op;

use super::gate::{Gate, next};
use hksim_linux_probe::resident::make_resident;

/// Capacity; a power of two, so that indices stay in order when counts wrap.
const CAPACITY: u32 = 256;

/// An event for a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// What to do; `None` ends the thread.
    pub(crate) op: Option<Op>,
    pub(crate) time_ns: u64,
    /// The object's earlier events: all must be done.
    pub(crate) ticket: u32,
}

impl Item {
    /// Ends the thread.
    pub(crate) const END: Item = Item { op: None, time_ns: 0, ticket: 0 };
}

/// The queue. `written` is advanced by the dispatcher alone, `read` by the thread alone.
pub(crate) struct Queue {
    items: Box<[UnsafeCell<Item>]>,
    written: Gate,
    read: Gate,
}

// SAFETY: an item is written before `written` passes it and read before `read` does, by one thread each.
unsafe impl Sync for Queue {}

impl Queue {
    pub(crate) fn new() -> Queue {
        let items: Box<[_]> = (0..CAPACITY).map(|_| UnsafeCell::new(Item::END)).collect();
        make_resident(items.as_ptr().cast(), size_of_val(&*items));
        Queue { items, written: Gate::default(), read: Gate::default() }
    }

    /// Appends an item; waits while the queue is full. For the dispatcher.
    pub(crate) fn push(&self, item: Item) {
        let at = self.written.count();
        self.read.wait(|read| at.wrapping_sub(read) & (u32::MAX / 2) < CAPACITY);
        // SAFETY: the reader is past this place, and does not come back before `written` says so.
        unsafe { *self.items[(at % CAPACITY) as usize].get() = item };
        self.written.advance(next(at));
    }

    /// Takes the next item; waits while there is none. For the thread.
    pub(crate) fn pop(&self) -> Item {
        let at = self.read.count();
        self.written.wait(|written| written != at);
        // SAFETY: `written` is past this place, so the item is whole, and stays until `read` passes.
        let item = unsafe { *self.items[(at % CAPACITY) as usize].get() };
        self.read.advance(next(at));
        item
    }
}
