//! The caches of threads: a list of free objects for each class.

use hksim_engine::AddressSpace;

use super::central::{Chain, link, next};
use super::classes::{CLASSES_MAX, Classes};
use super::tables::{Tables, get, set, word};
use super::{PageHeapSettings, Shared};

/// Words of a cache: its bytes, then those of each class: the first object, the number of objects, and the number above
/// which a batch is given back. The first word of an idle cache leads to the next.
const BYTES: u64 = 0;
const LISTS_AT: u64 = 1;
const LIST_WORDS: u64 = 3;
const FIRST: u64 = 0;
const LENGTH: u64 = 1;
const LENGTH_MAX: u64 = 2;
const CACHE_WORDS: u64 = LISTS_AT + CLASSES_MAX * LIST_WORDS;

/// A list grows up to this many objects.
const OBJECTS_MAX: u64 = 8192;

/// The caches.
pub(super) struct Threads {
    tables: Tables,
    classes: Classes,
    bytes_max: u64,
    /// Caches of threads that have ended.
    idle: u64,
}

/// The address of a word of a class's list.
fn at(cache: u64, class: u64, field: u64) -> u64 {
    word(cache, LISTS_AT + class * LIST_WORDS + field)
}

impl Threads {
    pub(super) fn new(settings: &PageHeapSettings, tables: Tables, classes: Classes) -> Threads {
        Threads { tables, classes, bytes_max: settings.thread_cache_bytes_max, idle: 0 }
    }

    /// An object for a thread: of its list, which fetches some if it is empty.
    pub(super) fn take(
        &mut self,
        memory: &mut impl AddressSpace,
        thread: u32,
        class: u64,
        shared: &mut Shared<'_>,
    ) -> Option<u64> {
        let cache = self.cache(memory, thread, shared)?;
        let first = get(memory, at(cache, class, FIRST));
        if first != 0 {
            let (after, length) = (next(memory, first), get(memory, at(cache, class, LENGTH)));
            set(memory, at(cache, class, FIRST), after);
            set(memory, at(cache, class, LENGTH), length - 1);
            self.add_bytes(memory, cache, self.classes.bytes(class).wrapping_neg());
            return Some(first);
        }
        // A list starts short, and becomes longer with each fetch.
        let (batch, length_max) = (self.classes.batch(class), get(memory, at(cache, class, LENGTH_MAX)).max(1));
        let Chain { first, objects } = shared.fetch(memory, class, length_max.min(batch))?;
        let longer = if length_max < batch { length_max + 1 } else { (length_max + batch).min(OBJECTS_MAX) };
        let after = next(memory, first);
        for (field, value) in [(LENGTH_MAX, longer), (FIRST, after), (LENGTH, objects - 1)] {
            set(memory, at(cache, class, field), value);
        }
        self.add_bytes(memory, cache, (objects - 1) * self.classes.bytes(class));
        Some(first)
    }

    /// Takes an object back from a thread. A list that is too long gives up a batch; a cache with too many bytes gives up
    /// half of each list.
    pub(super) fn put(
        &mut self,
        memory: &mut impl AddressSpace,
        thread: u32,
        class: u64,
        object: u64,
        shared: &mut Shared<'_>,
    ) {
        let Some(cache) = self.cache(memory, thread, shared) else {
            link(memory, object, 0);
            return shared.store(memory, class, Chain { first: object, objects: 1 });
        };
        let (first, length) = (get(memory, at(cache, class, FIRST)), get(memory, at(cache, class, LENGTH)) + 1);
        link(memory, object, first);
        set(memory, at(cache, class, FIRST), object);
        set(memory, at(cache, class, LENGTH), length);
        let bytes = self.add_bytes(memory, cache, self.classes.bytes(class));
        if length > get(memory, at(cache, class, LENGTH_MAX)).max(1) {
            self.flush(memory, cache, class, length.min(self.classes.batch(class)), shared);
        }
        if bytes > self.bytes_max {
            for class in 0..self.classes.count() {
                let length = get(memory, at(cache, class, LENGTH));
                self.flush(memory, cache, class, length.div_ceil(2), shared);
            }
        }
    }

    /// Gives up the cache of a thread that ends.
    pub(super) fn exit(&mut self, memory: &mut impl AddressSpace, thread: u32, shared: &mut Shared<'_>) {
        let cache = get(memory, self.tables.thread(thread));
        if cache == 0 {
            return;
        }
        for class in 0..self.classes.count() {
            let length = get(memory, at(cache, class, LENGTH));
            self.flush(memory, cache, class, length, shared);
            set(memory, at(cache, class, LENGTH_MAX), 0);
        }
        set(memory, word(cache, BYTES), self.idle);
        self.idle = cache;
        set(memory, self.tables.thread(thread), 0);
    }

    /// Gives the first objects of a list back, batch by batch.
    fn flush(&self, memory: &mut impl AddressSpace, cache: u64, class: u64, objects: u64, shared: &mut Shared<'_>) {
        let mut left = objects;
        while left > 0 {
            let objects = left.min(self.classes.batch(class));
            let (first, length) = (get(memory, at(cache, class, FIRST)), get(memory, at(cache, class, LENGTH)));
            let last = (1..objects).fold(first, |object, _| next(memory, object));
            let rest = next(memory, last);
            link(memory, last, 0);
            set(memory, at(cache, class, FIRST), rest);
            set(memory, at(cache, class, LENGTH), length - objects);
            self.add_bytes(memory, cache, (objects * self.classes.bytes(class)).wrapping_neg());
            shared.store(memory, class, Chain { first, objects });
            left -= objects;
        }
    }

    /// Adds to the bytes of a cache. Returns the sum.
    fn add_bytes(&self, memory: &mut impl AddressSpace, cache: u64, bytes: u64) -> u64 {
        let sum = get(memory, word(cache, BYTES)).wrapping_add(bytes);
        set(memory, word(cache, BYTES), sum);
        sum
    }

    /// The cache of a thread. `None` without memory.
    fn cache(&mut self, memory: &mut impl AddressSpace, thread: u32, shared: &mut Shared<'_>) -> Option<u64> {
        let known_at = self.tables.thread(thread);
        let known = get(memory, known_at);
        if known != 0 {
            return Some(known);
        }
        let cache = match self.idle {
            0 => shared.metadata.take(memory, CACHE_WORDS)?,
            idle => {
                self.idle = get(memory, word(idle, BYTES));
                set(memory, word(idle, BYTES), 0);
                idle
            }
        };
        set(memory, known_at, cache);
        Some(cache)
    }
}
