//! Remote frees: frees by threads that do not own the slab. One remote word per slab, one message queue per heap.
//!
//! A slab's remote word packs `{head, count, FULL, QUEUED}`. Other threads push blocks by compare-and-swap; the owner
//! takes all of them by swap. A slab without free blocks is in no list, so its owner would never examine it. Therefore
//! the first push to a `FULL` slab sets `QUEUED` and sends a message: it links the slab into the owner's queue.
//!
//! The rules that keep this sound:
//! - A pushing thread does not touch the SuperSlab after its push, unless it set `QUEUED`. A thread that set `QUEUED`
//!   makes its last access when it links the message.
//! - Only the owner clears `QUEUED`, when it handles the message. So there is at most one message about each slab. A
//!   queued slab is not retired, and its SuperSlab does not change owners.
//! - A full slab has `FULL` set. A slab that is no longer full may still have it: the message of the next push is then
//!   stale. The owner ignores a stale message, and collects the blocks once the slab's free list is empty.
//! - A closing heap first clears `FULL` of all its slabs, so that no new message is sent. It then waits for messages
//!   that are being sent. Abandoned slabs are never `FULL`: the adopting heap examines each of them.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::{Link, Memory};
use crate::metadata::meta::{SlabId, SpanState};
use crate::metadata::shared_word::Word;
use crate::path::Path;

/// Set while the slab is in no list. It may stay set longer: until a stale message is handled or the owner takes
/// blocks.
const FULL: u64 = 1 << 32;
/// Set from the push that sends a message until the owner handles it.
const QUEUED: u64 = 1 << 33;
const COUNT_SHIFT: u32 = 40;

fn head(word: u64) -> Link {
    Link::from_bits(word as u32)
}

fn count(word: u64) -> u32 {
    (word >> COUNT_SHIFT) as u32
}

/// Changes a word by compare-and-swap; returns the previous value.
fn update(word: &impl Word, change: impl Fn(u64) -> u64) -> u64 {
    let mut seen = word.load();
    loop {
        match word.compare_exchange(seen, change(seen)) {
            Ok(before) => return before,
            Err(found) => seen = found,
        }
    }
}

/// Blocks that the owner took from a slab's remote word.
pub(crate) struct RemoteBlocks {
    pub(crate) list: Link,
    pub(crate) count: u32,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Pushes a block onto the remote list of another heap's slab. `at` is the offset of its link.
    pub(crate) fn free_remote(&self, span: Span<M>, block: u32, at: u32) {
        self.mem.path(Path::RemoteFree, 1);
        let word = self.mem.remote(span.superslab, span.slice);
        let mut seen = word.load();
        let queues = loop {
            self.mem.write_link(span.superslab, at, head(seen));
            // A message that is already queued covers this block, too.
            let queues = seen & (FULL | QUEUED) == FULL;
            let flags = seen & (FULL | QUEUED) | if queues { QUEUED } else { 0 };
            let new = u64::from(self.free_link(block).to_bits()) | flags | u64::from(count(seen) + 1) << COUNT_SHIFT;
            match word.compare_exchange(seen, new) {
                Ok(_) => break queues,
                Err(found) => seen = found,
            }
        };
        if queues {
            self.push_message(span);
        }
    }

    /// Links a slab into its owner's message queue. `QUEUED` keeps the owner from closing until it has handled the
    /// message.
    fn push_message(&self, span: Span<M>) {
        self.mem.path(Path::MessageSent, 1);
        let owner = self.mem.meta(span.superslab).owner.load();
        let message_queue = self.mem.message_queue((owner - 1) as u32);
        let id = SlabId::new(self.mem.ordinal(span.superslab), span.slice);
        let mut seen = message_queue.load();
        loop {
            self.mem.message_next(span.superslab, span.slice).store(seen);
            match message_queue.compare_exchange(seen, id.to_bits()) {
                Ok(_) => return,
                Err(found) => seen = found,
            }
        }
    }

    /// Takes all remotely freed blocks of a slab that the caller owns. Keeps `QUEUED`.
    pub(crate) fn take_remote(&self, span: Span<M>) -> RemoteBlocks {
        let word = self.mem.remote(span.superslab, span.slice);
        let seen = word.load();
        if head(seen) == Link::NONE {
            return RemoteBlocks { list: Link::NONE, count: 0 };
        }
        self.mem.path(Path::RemoteTaken, 1);
        // Keeping `FULL` marks a queued message as stale.
        let before = update(word, |word| if word & QUEUED == 0 { 0 } else { word & (QUEUED | FULL) });
        RemoteBlocks { list: head(before), count: count(before) }
    }

    /// Initialises the remote word of a new span. A span with a large block is full from the start.
    pub(crate) fn reset_remote(&self, span: Span<M>, full: bool) {
        self.mem.remote(span.superslab, span.slice).store(if full { FULL } else { 0 });
    }

    /// Sets `FULL` for a slab that leaves all lists. False if remote blocks have arrived: the slab is then not full.
    pub(crate) fn mark_full(&self, span: Span<M>) -> bool {
        let word = self.mem.remote(span.superslab, span.slice);
        let mut seen = word.load();
        loop {
            if head(seen) != Link::NONE {
                return false;
            }
            if seen & FULL != 0 {
                return true; // still set from the last time the slab was full
            }
            self.mem.path(Path::MarkedFull, 1);
            match word.compare_exchange(seen, seen | FULL) {
                Ok(_) => return true,
                Err(found) => seen = found,
            }
        }
    }

    /// Clears `FULL` for a slab that is in a list again.
    pub(crate) fn mark_listed(&self, span: Span<M>) {
        self.mem.path(Path::MarkedListed, 1);
        update(self.mem.remote(span.superslab, span.slice), |word| word & !FULL);
    }

    /// The list of remotely freed blocks, for the owner to search. Other threads only add blocks at its head.
    pub(crate) fn remote_list(&self, span: Span<M>) -> Link {
        head(self.mem.remote(span.superslab, span.slice).load())
    }

    /// Whether a message about this slab is being sent or is in the queue.
    pub(crate) fn is_queued(&self, span: Span<M>) -> bool {
        self.mem.remote(span.superslab, span.slice).load() & QUEUED != 0
    }

    /// Handles all messages: returns slabs to their bins and retires empty ones.
    pub(crate) fn receive_messages(&self, heap: &mut ThreadHeap<M>) {
        if self.mem.message_queue(heap.id).load() == 0 {
            return;
        }
        self.mem.path(Path::MessagesTaken, 1);
        let messages = self.mem.message_queue(heap.id).swap(0);
        self.handle_messages(heap, messages);
    }

    /// Handles the last messages at thread exit. Afterwards no message about the heap's slabs is in flight, and none
    /// will be sent.
    pub(crate) fn close_message_queue(&self, heap: &mut ThreadHeap<M>) {
        self.for_each_own_span(heap, |span| self.mark_listed(span));
        loop {
            self.receive_messages(heap);
            let mut awaits_message = false;
            self.for_each_own_span(heap, |span| awaits_message |= self.is_queued(span));
            if !awaits_message {
                return;
            }
            self.mem.yield_now();
        }
    }

    fn handle_messages(&self, heap: &mut ThreadHeap<M>, messages: u64) {
        let mut next = SlabId::from_bits(messages);
        while let Some((ordinal, slice)) = next.get() {
            let span = Span { superslab: self.mem.superslab(ordinal), slice };
            next = SlabId::from_bits(self.mem.message_next(span.superslab, span.slice).load());
            self.handle_message(heap, span);
        }
    }

    /// Handles one message: collects the slab's remotely freed blocks, unless the message is stale.
    pub(crate) fn handle_message(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        self.mem.path(Path::MessageHandled, 1);
        let state = self.span_meta(span).span_state();
        let ends = if state == SpanState::Full { QUEUED } else { QUEUED | FULL };
        let before = update(self.mem.remote(span.superslab, span.slice), |word| word & !ends);
        let is_stale = state != SpanState::Full && before & FULL != 0;
        match state {
            SpanState::Active => {} // its blocks are taken when its bin is empty
            _ if is_stale => self.update_slab_list(heap, span),
            _ => self.collect_remote(heap, span),
        }
    }

    /// Moves remotely freed blocks of a slab that is not active into its local list.
    fn collect_remote(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        self.mem.path(Path::Collected, 1);
        let slab = self.span_meta(span);
        let taken = self.take_remote(span);
        if slab.is_large() {
            if taken.count > 0 {
                self.retire(heap, span);
            }
            return;
        }
        self.prepend_local(span, taken.list);
        slab.used.set(slab.used.get() - taken.count);
        self.update_slab_list(heap, span);
    }

    /// Prepends a list of free blocks to a slab's local list; returns their number.
    pub(crate) fn prepend_local(&self, span: Span<M>, list: Link) -> u32 {
        let slab = self.span_meta(span);
        let Some(first) = self.start_at(list) else { return 0 };
        let (mut last, mut count) = (first, 1);
        while let Some(next) = self.start_at(self.mem.read_link(span.superslab, self.link_at(last))) {
            self.mem.path(Path::BlockCollected, 1);
            (last, count) = (next, count + 1);
        }
        self.mem.write_link(span.superslab, self.link_at(last), slab.local_free.get());
        slab.local_free.set(list);
        count
    }
}
