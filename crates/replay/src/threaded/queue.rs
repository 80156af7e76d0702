//! A bounded queue of events from the dispatcher to one thread: one writer, one reader.

use std::cell::UnsafeCell;

use hksim_trace::event::Op;

use super::gate::{Gate, next};
use hksim_linux_probe::resident::make_resident;

/// Capacity; a power of two, so that indices stay in order when counts wrap.
const CAPACITY: u32 = 256;

/// An event for a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// The operation; `None` ends the thread.
    pub(crate) op: Option<Op>,
    pub(crate) time_ns: u64,
    /// The number of earlier events on the object, all of which must be done first.
    pub(crate) ticket: u32,
}

impl Item {
    /// Ends the thread.
    pub(crate) const END: Item = Item { op: None, time_ns: 0, ticket: 0 };
}

/// The queue. Only the dispatcher advances `written`, and only the receiving thread advances `read`.
pub(crate) struct Queue {
    items: Box<[UnsafeCell<Item>]>,
    written: Gate,
    read: Gate,
}

// SAFETY: the one writer writes an item before it advances `written` past it; the one reader reads it before it
// advances `read` past it.
unsafe impl Sync for Queue {}

impl Queue {
    pub(crate) fn new() -> Queue {
        let items: Box<[_]> = (0..CAPACITY).map(|_| UnsafeCell::new(Item::END)).collect();
        make_resident(items.as_ptr().cast(), size_of_val(&*items));
        Queue { items, written: Gate::default(), read: Gate::default() }
    }

    /// Appends an item; waits while the queue is full. Only the dispatcher may call it.
    pub(crate) fn push(&self, item: Item) {
        let at = self.written.count();
        self.read.wait(|read| at.wrapping_sub(read) & (u32::MAX / 2) < CAPACITY);
        // SAFETY: the reader has passed this slot, and reads it again only after `written` has advanced.
        unsafe { *self.items[(at % CAPACITY) as usize].get() = item };
        self.written.advance(next(at));
    }

    /// Takes the next item; waits while the queue is empty. Only the receiving thread may call it.
    pub(crate) fn pop(&self) -> Item {
        let at = self.read.count();
        self.written.wait(|written| written != at);
        // SAFETY: `written` is past this slot, so the item is complete, and unchanged until `read` passes it.
        let item = unsafe { *self.items[(at % CAPACITY) as usize].get() };
        self.read.advance(next(at));
        item
    }
}
