//! Where the allocator's tables are in memory.

use hksim_engine::{AddressSpace, Cause, Errno, Mapping, PAGE_BYTES, Region};

use super::classes::CLASSES_MAX;

const WORD_BYTES: u64 = 8;

/// Pages of the heap that a leaf of the page map describes.
const LEAF_PAGES: u64 = 4096;
/// Leaves of the page map, for the smallest page.
const LEAVES: u64 = Region::BYTES / PAGE_BYTES / LEAF_PAGES;
/// Free lists of spans with one state: one for each length below this, and list 0 for longer spans.
pub(super) const LISTS: u64 = 128;
/// Slots of a transfer cache.
pub(super) const BATCHES_MAX: u64 = 64;
/// Words of a class: its spans with free objects, the number of its batches, and the batches.
const CLASS_WORDS: u64 = 2 + BATCHES_MAX;
/// Threads with a cache of their own. Threads with numbers of equal remainder share one.
const THREADS: u64 = 1 << 16;

const LISTS_AT: u64 = LEAVES;
const CLASSES_AT: u64 = LISTS_AT + 2 * LISTS;
const THREADS_AT: u64 = CLASSES_AT + CLASSES_MAX * CLASS_WORDS;
const MAPPINGS_AT: u64 = THREADS_AT + THREADS;
const WORDS: u64 = MAPPINGS_AT + 1;

/// Bytes of a mapping from which records are taken.
const CHUNK_BYTES: u64 = 128 << 10;

/// Reads a word of a table.
pub(super) fn get(memory: &mut impl AddressSpace, at: u64) -> u64 {
    memory.read(at, Cause::Metadata)
}

/// Writes a word of a table.
pub(super) fn set(memory: &mut impl AddressSpace, at: u64, word: u64) {
    memory.write(at, word, Cause::Metadata);
}

/// The address of a word of a record.
pub(super) fn word(record: u64, word: u64) -> u64 {
    record + word * WORD_BYTES
}

/// The tables of fixed size, in one mapping. Only what is used of them is touched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables(u64);

impl Tables {
    pub(super) fn map(memory: &mut impl AddressSpace) -> Result<Tables, Errno> {
        let bytes = (WORDS * WORD_BYTES).next_multiple_of(PAGE_BYTES);
        memory.map(bytes, PAGE_BYTES, Mapping::Plain).map(Tables)
    }

    /// The head of a free list of spans, for a state (0 or 1) and a length.
    pub(super) fn free_list(&self, state: u64, pages: u64) -> u64 {
        let list = if pages < LISTS { pages } else { 0 };
        word(self.0, LISTS_AT + state * LISTS + list)
    }

    /// The head of a class's list of spans that have free objects.
    pub(super) fn class_spans(&self, class: u64) -> u64 {
        word(self.0, CLASSES_AT + class * CLASS_WORDS)
    }

    /// The number of batches in a class's transfer cache.
    pub(super) fn batches(&self, class: u64) -> u64 {
        word(self.0, CLASSES_AT + class * CLASS_WORDS + 1)
    }

    /// A batch: its first object.
    pub(super) fn batch(&self, class: u64, number: u64) -> u64 {
        word(self.0, CLASSES_AT + class * CLASS_WORDS + 2 + number)
    }

    /// The cache of a thread.
    pub(super) fn thread(&self, thread: u32) -> u64 {
        word(self.0, THREADS_AT + u64::from(thread) % THREADS)
    }

    /// The head of the list of mappings in the cache.
    pub(super) fn cached_mappings(&self) -> u64 {
        word(self.0, MAPPINGS_AT)
    }

    /// The leaf of the page map that describes a page of the heap, and the page's word in it.
    fn leaf(&self, page: u64) -> (u64, u64) {
        (word(self.0, page / LEAF_PAGES), page % LEAF_PAGES)
    }

    /// The span of a page; 0 if the page map has none. It is right for every page of a span of a class, and for the first
    /// and last page of other spans, and for the first page of a block's mapping.
    pub(super) fn span(&self, memory: &mut impl AddressSpace, page: u64) -> u64 {
        let (leaf_at, index) = self.leaf(page);
        match get(memory, leaf_at) {
            0 => 0,
            leaf => get(memory, word(leaf, index)),
        }
    }

    /// Sets the span of a page that has a leaf.
    pub(super) fn set_span(&self, memory: &mut impl AddressSpace, page: u64, span: u64) {
        let (leaf_at, index) = self.leaf(page);
        let leaf = get(memory, leaf_at);
        set(memory, word(leaf, index), span);
    }

    /// Gives pages their leaves. `None` without memory.
    pub(super) fn ensure(
        &self,
        memory: &mut impl AddressSpace,
        metadata: &mut Metadata,
        pages: std::ops::Range<u64>,
    ) -> Option<()> {
        for leaf in pages.start / LEAF_PAGES..pages.end.div_ceil(LEAF_PAGES) {
            let at = word(self.0, leaf);
            if get(memory, at) == 0 {
                let new = metadata.take(memory, LEAF_PAGES)?;
                set(memory, at, new);
            }
        }
        Some(())
    }

    /// Maps memory for a leaf, so that [`Tables::ensure`] does not fail for the next page. `None` without memory.
    pub(super) fn reserve(&self, memory: &mut impl AddressSpace, metadata: &mut Metadata) -> Option<()> {
        metadata.reserve(memory, LEAF_PAGES)
    }
}

/// Memory for records, which is zero and is never given back.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    next: u64,
    end: u64,
}

impl Metadata {
    /// A record of some words. `None` without memory.
    pub(super) fn take(&mut self, memory: &mut impl AddressSpace, words: u64) -> Option<u64> {
        self.reserve(memory, words)?;
        let record = self.next;
        self.next += words * WORD_BYTES;
        Some(record)
    }

    /// Maps memory for a record of some words, if there is none. `None` without memory.
    fn reserve(&mut self, memory: &mut impl AddressSpace, words: u64) -> Option<()> {
        let bytes = words * WORD_BYTES;
        if self.end - self.next < bytes {
            let chunk = memory.map(bytes.max(CHUNK_BYTES).next_multiple_of(PAGE_BYTES), PAGE_BYTES, Mapping::Plain);
            self.next = chunk.ok()?;
            self.end = self.next + bytes.max(CHUNK_BYTES).next_multiple_of(PAGE_BYTES);
        }
        Some(())
    }
}
