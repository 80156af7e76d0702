//! Frees by other threads: one word a slab, one mail word a heap.
//!
//! A slab's word packs `{head, count, FULL, POSTED}`. Other threads push blocks by compare-and-swap; the owner
//! takes all by swap. A slab without free blocks is in no list, so its owner would never look: the first push to
//! a `FULL` slab sets `POSTED` and puts the slab into the owner's mail.
//!
//! The rules that keep this sound:
//! - Whoever pushes does not touch the SuperSlab after its push, unless it is the one that set `POSTED`; that one's
//!   last access is putting the letter into the mail.
//! - Only the owner clears `POSTED`, on reading the letter. So each slab is in one letter at most, whatever happens to
//!   it meanwhile, and a slab that is posted is neither retired nor does its SuperSlab change hands.
//! - A slab that is full has `FULL` set. One that is not may have it still: the letter that a push then posts is stale, and
//!   its reader leaves the blocks for the time when the slab runs dry, as if there had been no letter.
//! - A heap that closes first makes none of its slabs `FULL`, so that no new letter is begun, and then waits for the
//!   letters that were. Abandoned slabs are never `FULL`: whoever adopts them looks at every one.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::{Link, Memory};
use crate::meta::{SlabId, SpanState};
use crate::word::Word;

/// Set while the slab is in no list. May outlive that, until a letter that it brings about, or until its owner takes blocks.
const FULL: u64 = 1 << 32;
/// Set from the post to the mail until the owner reads it.
const POSTED: u64 = 1 << 33;
const COUNT_SHIFT: u32 = 40;

fn head(word: u64) -> Link {
    Link::from_bits(word as u32)
}

fn count(word: u64) -> u32 {
    (word >> COUNT_SHIFT) as u32
}

fn update(word: &impl Word, change: impl Fn(u64) -> u64) -> u64 {
    let mut seen = word.load();
    loop {
        match word.compare_exchange(seen, change(seen)) {
            Ok(before) => return before,
            Err(found) => seen = found,
        }
    }
}

/// What the owner took from a slab's word.
pub(crate) struct Taken {
    pub(crate) list: Link,
    pub(crate) count: u32,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Pushes a block that another heap owns. `at` is its link's offset.
    pub(crate) fn free_remote(&self, span: Span<M>, block: u32, at: u32) {
        let word = self.mem.remote(span.superslab, span.unit);
        let mut seen = word.load();
        let posts = loop {
            self.mem.write_link(span.superslab, at, head(seen));
            // A letter under way tells of this block, too.
            let posts = seen & (FULL | POSTED) == FULL;
            let flags = seen & (FULL | POSTED) | if posts { POSTED } else { 0 };
            let new = u64::from(self.free_link(block).to_bits()) | flags | u64::from(count(seen) + 1) << COUNT_SHIFT;
            match word.compare_exchange(seen, new) {
                Ok(_) => break posts,
                Err(found) => seen = found,
            }
        };
        if posts {
            self.post(span);
        }
    }

    /// Puts a slab into its owner's mail. `POSTED` keeps the owner from leaving until it has read the letter.
    fn post(&self, span: Span<M>) {
        let owner = self.mem.meta(span.superslab).owner.load();
        let mail = self.mem.mail((owner - 1) as u32);
        let id = SlabId::new(self.mem.ordinal(span.superslab), span.unit);
        let mut seen = mail.load();
        loop {
            self.mem.mail_next(span.superslab, span.unit).store(seen);
            match mail.compare_exchange(seen, id.to_bits()) {
                Ok(_) => return,
                Err(found) => seen = found,
            }
        }
    }

    /// Takes all remotely freed blocks of a slab the caller owns. A post under way stays noted.
    pub(crate) fn take_remote(&self, span: Span<M>) -> Taken {
        let word = self.mem.remote(span.superslab, span.unit);
        let seen = word.load();
        if head(seen) == Link::NONE {
            return Taken { list: Link::NONE, count: 0 };
        }
        // A letter under way stays known for a stale one.
        let before = update(word, |word| if word & POSTED == 0 { 0 } else { word & (POSTED | FULL) });
        Taken { list: head(before), count: count(before) }
    }

    /// Starts the word of a new span; a large block is full from the start.
    pub(crate) fn reset_remote(&self, span: Span<M>, full: bool) {
        self.mem.remote(span.superslab, span.unit).store(if full { FULL } else { 0 });
    }

    /// Notes that the slab leaves all lists. False if remote blocks arrived meanwhile: then it is not full.
    pub(crate) fn note_full(&self, span: Span<M>) -> bool {
        let word = self.mem.remote(span.superslab, span.unit);
        let mut seen = word.load();
        loop {
            if head(seen) != Link::NONE {
                return false;
            }
            if seen & FULL != 0 {
                return true; // since it was full before
            }
            match word.compare_exchange(seen, seen | FULL) {
                Ok(_) => return true,
                Err(found) => seen = found,
            }
        }
    }

    /// Notes that the slab is in a list again.
    pub(crate) fn note_listed(&self, span: Span<M>) {
        update(self.mem.remote(span.superslab, span.unit), |word| word & !FULL);
    }

    /// What other threads have freed of a slab, for its owner to look through: they put blocks before it, and take none.
    pub(crate) fn remote_list(&self, span: Span<M>) -> Link {
        head(self.mem.remote(span.superslab, span.unit).load())
    }

    /// Whether a post of this slab is on its way or in the mail.
    pub(crate) fn is_posted(&self, span: Span<M>) -> bool {
        self.mem.remote(span.superslab, span.unit).load() & POSTED != 0
    }

    /// Reads the heap's mail: posted slabs go back into their bins, empty ones are retired.
    pub(crate) fn read_mail(&self, heap: &mut ThreadHeap<M>) {
        if self.mem.mail(heap.id).load() == 0 {
            return;
        }
        let letters = self.mem.mail(heap.id).swap(0);
        self.read_letters(heap, letters);
    }

    /// Reads the last mail at thread exit. Afterwards no letter about the heap's slabs is under way, nor will one be.
    pub(crate) fn end_mail(&self, heap: &mut ThreadHeap<M>) {
        self.for_each_own_span(heap, |span| self.note_listed(span));
        loop {
            self.read_mail(heap);
            let mut awaits_letter = false;
            self.for_each_own_span(heap, |span| awaits_letter |= self.is_posted(span));
            if !awaits_letter {
                return;
            }
            self.mem.let_others_go_on();
        }
    }

    fn read_letters(&self, heap: &mut ThreadHeap<M>, letters: u64) {
        let mut next = SlabId::from_bits(letters);
        while let Some((ordinal, unit)) = next.get() {
            let span = Span { superslab: self.mem.superslab(ordinal), unit };
            next = SlabId::from_bits(self.mem.mail_next(span.superslab, span.unit).load());
            self.take_letter(heap, span);
        }
    }

    /// Does what a letter about a slab asks for.
    pub(crate) fn take_letter(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        let state = self.slab_meta(span).span_state();
        let ends = if state == SpanState::Full { POSTED } else { POSTED | FULL };
        let before = update(self.mem.remote(span.superslab, span.unit), |word| word & !ends);
        let is_stale = state != SpanState::Full && before & FULL != 0;
        match state {
            SpanState::Active => {} // its blocks are taken when its bin runs dry
            _ if is_stale => self.settle(heap, span),
            _ => self.collect_remote(heap, span),
        }
    }

    /// Moves remotely freed blocks of a slab that is not active into its local list.
    fn collect_remote(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        let slab = self.slab_meta(span);
        let taken = self.take_remote(span);
        if slab.is_large() {
            if taken.count > 0 {
                self.retire(heap, span);
            }
            return;
        }
        self.prepend_local(span, taken.list);
        slab.used.set(slab.used.get() - taken.count);
        self.settle(heap, span);
    }

    /// Puts a list of free blocks before a slab's local list; returns how many they are.
    pub(crate) fn prepend_local(&self, span: Span<M>, list: Link) -> u32 {
        let slab = self.slab_meta(span);
        let Some(first) = self.start_at(list) else { return 0 };
        let (mut last, mut count) = (first, 1);
        while let Some(next) = self.start_at(self.mem.read_link(span.superslab, self.link_at(last))) {
            (last, count) = (next, count + 1);
        }
        self.mem.write_link(span.superslab, self.link_at(last), slab.local_free.get());
        slab.local_free.set(list);
        count
    }
}
