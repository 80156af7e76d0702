//! What all threads share of a class: its transfer cache of full batches, and its spans with free objects.

use hksim_engine::{AddressSpace, Cause};

use super::classes::Classes;
use super::spans::{CARVED, FREE, USED, push, remove};
use super::tables::{Tables, get, set, word};
use super::{Link, PageHeapSettings, Shared};

/// The part of the heap that all threads share.
pub(super) struct Central {
    tables: Tables,
    classes: Classes,
    link: Link,
    batches_max: u64,
}

/// Reads the link of a free object: the next one, or 0.
pub(super) fn next(memory: &mut impl AddressSpace, object: u64) -> u64 {
    memory.read(object, Cause::FreeList)
}

/// Writes the link of a free object.
pub(super) fn link(memory: &mut impl AddressSpace, object: u64, next: u64) {
    memory.write(object, next, Cause::FreeList);
}

/// Objects that are linked, the last to 0.
pub(super) struct Chain {
    pub(super) first: u64,
    pub(super) objects: u64,
}

impl Central {
    pub(super) fn new(settings: &PageHeapSettings, tables: Tables, classes: Classes) -> Central {
        Central { tables, classes, link: settings.link, batches_max: settings.transfer_batches_max }
    }
}

impl Shared<'_> {
    /// Takes up to `wanted` objects, at least one: a batch of the transfer cache, or objects of spans. A new span is taken
    /// for the first object only. `None` without memory.
    pub(super) fn fetch(&mut self, memory: &mut impl AddressSpace, class: u64, wanted: u64) -> Option<Chain> {
        let tables = self.central.tables;
        let batches = get(memory, tables.batches(class));
        if wanted == self.central.classes.batch(class) && batches > 0 {
            set(memory, tables.batches(class), batches - 1);
            let first = get(memory, tables.batch(class, batches - 1));
            return Some(Chain { first, objects: wanted });
        }
        let mut chain = Chain { first: 0, objects: 0 };
        while chain.objects < wanted {
            let span = match get(memory, tables.class_spans(class)) {
                0 if chain.objects > 0 => break,
                0 => self.new_span(memory, class)?,
                span => span,
            };
            let object = self.take(memory, class, span);
            link(memory, object, chain.first);
            chain = Chain { first: object, objects: chain.objects + 1 };
        }
        Some(chain)
    }

    /// Gives objects back: a full batch to the transfer cache if that has room, others to their spans.
    pub(super) fn store(&mut self, memory: &mut impl AddressSpace, class: u64, chain: Chain) {
        let tables = self.central.tables;
        let batches = get(memory, tables.batches(class));
        if chain.objects == self.central.classes.batch(class) && batches < self.central.batches_max {
            set(memory, tables.batch(class, batches), chain.first);
            return set(memory, tables.batches(class), batches + 1);
        }
        let mut object = chain.first;
        while object != 0 {
            let after = next(memory, object);
            self.put(memory, class, object);
            object = after;
        }
    }

    /// A new span of a class.
    fn new_span(&mut self, memory: &mut impl AddressSpace, class: u64) -> Option<u64> {
        let classes = self.central.classes;
        let span = self.spans.allocate(memory, self.metadata, classes.pages(class), 1)?;
        self.spans.divide(memory, span, class);
        push(memory, self.central.tables.class_spans(class), span);
        if self.central.link == Link::Eager {
            let (start, bytes, objects) =
                (self.spans.start(memory, span), classes.bytes(class), classes.objects(class));
            for number in 0..objects {
                let object = start + number * bytes;
                link(memory, object, if number + 1 < objects { object + bytes } else { 0 });
            }
            set(memory, word(span, FREE), start);
            set(memory, word(span, CARVED), objects * bytes);
        }
        Some(span)
    }

    /// Whether a span has no object to take.
    fn is_exhausted(&self, memory: &mut impl AddressSpace, class: u64, span: u64) -> bool {
        let classes = self.central.classes;
        get(memory, word(span, FREE)) == 0
            && get(memory, word(span, CARVED)) == classes.objects(class) * classes.bytes(class)
    }

    /// Takes an object of a span that has one.
    fn take(&mut self, memory: &mut impl AddressSpace, class: u64, span: u64) -> u64 {
        let object = match get(memory, word(span, FREE)) {
            0 => {
                let carved = get(memory, word(span, CARVED));
                set(memory, word(span, CARVED), carved + self.central.classes.bytes(class));
                self.spans.start(memory, span) + carved
            }
            object => {
                let after = next(memory, object);
                set(memory, word(span, FREE), after);
                object
            }
        };
        let used = get(memory, word(span, USED));
        set(memory, word(span, USED), used + 1);
        if self.is_exhausted(memory, class, span) {
            remove(memory, self.central.tables.class_spans(class), span);
        }
        object
    }

    /// Gives an object back to its span, which is freed if it was the last one in use.
    fn put(&mut self, memory: &mut impl AddressSpace, class: u64, object: u64) {
        let span = self.spans.of(memory, object);
        let list = self.central.tables.class_spans(class);
        if self.is_exhausted(memory, class, span) {
            push(memory, list, span);
        }
        let used = get(memory, word(span, USED));
        if used == 1 {
            remove(memory, list, span);
            return self.spans.free(memory, span);
        }
        set(memory, word(span, USED), used - 1);
        let first = get(memory, word(span, FREE));
        link(memory, object, first);
        set(memory, word(span, FREE), object);
    }
}
