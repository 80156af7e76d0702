//! The heap of pages: spans are taken by best fit, joined when they are free, and released to the kernel.

use hksim_engine::{AddressSpace, Advice, Mapping, Region};

use super::tables::{LISTS, Metadata, Tables, get, set, word};
use super::{PageHeapSettings, Release};

/// Words of a span's record: its first address, its pages, its kind; its neighbours in a list; and for a class, the
/// number of objects that are not in the span, its free objects, and the bytes from which objects were taken.
pub(super) const START: u64 = 0;
const PAGES: u64 = 1;
pub(super) const KIND: u64 = 2;
pub(super) const NEXT: u64 = 3;
const PREVIOUS: u64 = 4;
/// Objects taken from the span.
pub(super) const USED: u64 = 5;
/// The first free object.
pub(super) const FREE: u64 = 6;
/// Bytes of the span that were ever divided into objects.
pub(super) const CARVED: u64 = 7;
const RECORD_WORDS: u64 = 8;

const KEPT: u64 = 0;
const RELEASED: u64 = 1;
const LARGE: u64 = 2;
pub(super) const MAPPED: u64 = 3;
const SMALL: u64 = 4;

/// What a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Free, and not released since it was used.
    Kept,
    /// Free, and released to the kernel.
    Released,
    /// One block.
    Large,
    /// No span of the heap, but one block with a mapping of its own.
    Mapped,
    /// Objects of this class.
    Small(u64),
}

/// The heap.
pub(super) struct Spans {
    settings: PageHeapSettings,
    tables: Tables,
    /// Bytes of spans that are [`Kind::Kept`].
    kept_bytes: u64,
    /// Records that describe no span, linked by their next word.
    idle_records: u64,
}

impl Spans {
    pub(super) fn new(settings: &PageHeapSettings, tables: Tables) -> Spans {
        Spans { settings: *settings, tables, kept_bytes: 0, idle_records: 0 }
    }

    fn page_bytes(&self) -> u64 {
        self.settings.span_page_bytes
    }

    fn page(&self, address: u64) -> u64 {
        page(address, self.page_bytes())
    }

    /// The span of a block.
    pub(super) fn of(&self, memory: &mut impl AddressSpace, block: u64) -> u64 {
        self.tables.span(memory, self.page(block))
    }

    pub(super) fn kind(&self, memory: &mut impl AddressSpace, span: u64) -> Kind {
        match get(memory, word(span, KIND)) {
            KEPT => Kind::Kept,
            RELEASED => Kind::Released,
            LARGE => Kind::Large,
            MAPPED => Kind::Mapped,
            small => Kind::Small(small - SMALL),
        }
    }

    pub(super) fn start(&self, memory: &mut impl AddressSpace, span: u64) -> u64 {
        get(memory, word(span, START))
    }

    pub(super) fn bytes(&self, memory: &mut impl AddressSpace, span: u64) -> u64 {
        get(memory, word(span, PAGES)) * self.page_bytes()
    }

    /// A span of one block, at a multiple of `align`. `None` without memory.
    pub(super) fn allocate(
        &mut self,
        memory: &mut impl AddressSpace,
        metadata: &mut Metadata,
        pages: u64,
        align: u64,
    ) -> Option<u64> {
        // Pages that are cut off before and after a block at a multiple of more than a page.
        let surplus = if align > self.page_bytes() { align / self.page_bytes() } else { 0 };
        let wanted = pages.checked_add(surplus)?;
        // Records for these two, so that nothing fails once the span is taken.
        let spare =
            if surplus > 0 { Some([self.record(memory, metadata)?, self.record(memory, metadata)?]) } else { None };
        let span = self.take(memory, metadata, wanted);
        if let (Some([before, after]), Some(span)) = (spare, span) {
            self.trim(memory, span, pages, align, before, after);
        } else if let Some(spare) = spare {
            spare.into_iter().for_each(|record| self.drop_record(memory, record));
        }
        span
    }

    /// Makes a span one of a class: every page of it then leads to it.
    pub(super) fn divide(&self, memory: &mut impl AddressSpace, span: u64, class: u64) {
        let (first, pages) = (self.start(memory, span), get(memory, word(span, PAGES)));
        let first = self.page(first);
        (first..first + pages).for_each(|page| self.tables.set_span(memory, page, span));
        set(memory, word(span, KIND), SMALL + class);
        [USED, FREE, CARVED].into_iter().for_each(|field| set(memory, word(span, field), 0));
    }

    /// Frees a span, and releases the longest free spans while too much is kept.
    pub(super) fn free(&mut self, memory: &mut impl AddressSpace, span: u64) {
        self.join_and_list(memory, span, KEPT);
        while self.settings.release != Release::None && self.kept_bytes > self.settings.keep_free_bytes {
            let Some(longest) = self.longest_kept(memory) else { return };
            let (start, bytes) = (self.start(memory, longest), self.bytes(memory, longest));
            let advice = if self.settings.release == Release::Free { Advice::Free } else { Advice::DontNeed };
            // The kernel refuses to drop locked memory, which is then kept.
            if memory.advise(start, bytes, advice).is_err() {
                return;
            }
            self.unlist(memory, longest);
            self.join_and_list(memory, longest, RELEASED);
        }
    }

    /// Cuts off what a span has before the first multiple of `align`, and after its pages.
    fn trim(&mut self, memory: &mut impl AddressSpace, span: u64, pages: u64, align: u64, before: u64, after: u64) {
        let (start, total) = (self.start(memory, span), get(memory, word(span, PAGES)));
        let block = start.next_multiple_of(align);
        let pages_before = (block - start) / self.page_bytes();
        let end = block + pages * self.page_bytes();
        self.describe(memory, span, block, pages, LARGE);
        for (record, start, pages) in [(before, start, pages_before), (after, end, total - pages_before - pages)] {
            if pages == 0 {
                self.drop_record(memory, record);
            } else {
                self.describe(memory, record, start, pages, KEPT);
                self.free(memory, record);
            }
        }
    }

    /// Takes a span of some pages from the free ones, or from new memory.
    fn take(&mut self, memory: &mut impl AddressSpace, metadata: &mut Metadata, pages: u64) -> Option<u64> {
        let found = match self.best(memory, pages) {
            Some(found) => found,
            None => {
                self.grow(memory, metadata, pages)?;
                self.best(memory, pages)?
            }
        };
        let total = get(memory, word(found, PAGES));
        let rest = if total > pages { Some(self.record(memory, metadata)?) } else { None };
        let (start, state) = (self.start(memory, found), get(memory, word(found, KIND)));
        self.unlist(memory, found);
        self.describe(memory, found, start, pages, LARGE);
        if let Some(rest) = rest {
            self.describe(memory, rest, start + pages * self.page_bytes(), total - pages, state);
            self.list(memory, rest, state);
        }
        Some(found)
    }

    /// The free span that fits best: the shortest, kept before released; of long ones that with the lowest address.
    fn best(&self, memory: &mut impl AddressSpace, pages: u64) -> Option<u64> {
        for length in pages..LISTS {
            for state in [KEPT, RELEASED] {
                let span = get(memory, self.tables.free_list(state, length));
                if span != 0 {
                    return Some(span);
                }
            }
        }
        let mut best = None;
        for state in [KEPT, RELEASED] {
            let mut span = get(memory, self.tables.free_list(state, LISTS));
            while span != 0 {
                let key = (get(memory, word(span, PAGES)), self.start(memory, span));
                if key.0 >= pages && best.is_none_or(|(least, _)| key < least) {
                    best = Some((key, span));
                }
                span = get(memory, word(span, NEXT));
            }
        }
        best.map(|(_, span)| span)
    }

    /// The longest span that is kept.
    fn longest_kept(&self, memory: &mut impl AddressSpace) -> Option<u64> {
        let (mut longest, mut pages_max) = (0, 0);
        let mut span = get(memory, self.tables.free_list(KEPT, LISTS));
        while span != 0 {
            let pages = get(memory, word(span, PAGES));
            if pages > pages_max {
                (longest, pages_max) = (span, pages);
            }
            span = get(memory, word(span, NEXT));
        }
        let shorter = (1..LISTS).rev().map(|length| get(memory, self.tables.free_list(KEPT, length)));
        std::iter::once(longest).chain(shorter).find(|&span| span != 0)
    }

    /// Maps memory for some pages, and adds it to the free spans.
    fn grow(&mut self, memory: &mut impl AddressSpace, metadata: &mut Metadata, pages: u64) -> Option<()> {
        let page_bytes = self.page_bytes();
        let needed = pages.checked_mul(page_bytes)?;
        let wanted = needed.max(self.settings.grow_bytes_min);
        let record = self.record(memory, metadata)?;
        let grown = [wanted, needed]
            .into_iter()
            .find_map(|bytes| memory.map(bytes, page_bytes, Mapping::Plain).ok().map(|start| (start, bytes)));
        let Some((start, bytes)) = grown else {
            self.drop_record(memory, record);
            return None;
        };
        let (first, pages) = (self.page(start), bytes / page_bytes);
        if self.tables.ensure(memory, metadata, first..first + pages).is_none() {
            self.drop_record(memory, record);
            // The mapping is new, so nothing is lost if the kernel's limits prevent this.
            let _ = memory.unmap(start, bytes);
            return None;
        }
        if self.settings.advises_huge {
            // A kernel without huge pages refuses the advice.
            let _ = memory.advise(start, bytes, Advice::HugePage);
        }
        self.describe(memory, record, start, pages, KEPT);
        self.join_and_list(memory, record, KEPT);
        Some(())
    }

    /// Writes a span's record, and leads its first and last page to it.
    fn describe(&self, memory: &mut impl AddressSpace, span: u64, start: u64, pages: u64, kind: u64) {
        for (field, value) in [(START, start), (PAGES, pages), (KIND, kind)] {
            set(memory, word(span, field), value);
        }
        let first = self.page(start);
        self.tables.set_span(memory, first, span);
        self.tables.set_span(memory, first + pages - 1, span);
    }

    /// Joins a span with its neighbours of the same state, and lists it.
    fn join_and_list(&mut self, memory: &mut impl AddressSpace, span: u64, state: u64) {
        let (mut start, mut pages) = (self.start(memory, span), get(memory, word(span, PAGES)));
        let first = self.page(start);
        // What is adjacent has an entry for the page next to this span, or is no memory of the heap and has none, or leads
        // to a block's mapping.
        let before = if first == 0 { 0 } else { self.tables.span(memory, first - 1) };
        let after = if start + pages * self.page_bytes() >= Region::START + Region::BYTES {
            0
        } else {
            self.tables.span(memory, first + pages)
        };
        for (neighbour, is_before) in [(before, true), (after, false)] {
            if neighbour == 0 || get(memory, word(neighbour, KIND)) != state {
                continue;
            }
            self.unlist(memory, neighbour);
            pages += get(memory, word(neighbour, PAGES));
            if is_before {
                start = self.start(memory, neighbour);
            }
            self.drop_record(memory, neighbour);
        }
        self.describe(memory, span, start, pages, state);
        self.list(memory, span, state);
    }

    /// Adds a free span to the list of its length.
    fn list(&mut self, memory: &mut impl AddressSpace, span: u64, state: u64) {
        let pages = get(memory, word(span, PAGES));
        if state == KEPT {
            self.kept_bytes += pages * self.page_bytes();
        }
        push(memory, self.tables.free_list(state, pages), span);
    }

    /// Removes a free span from its list.
    fn unlist(&mut self, memory: &mut impl AddressSpace, span: u64) {
        let (state, pages) = (get(memory, word(span, KIND)), get(memory, word(span, PAGES)));
        if state == KEPT {
            self.kept_bytes -= pages * self.page_bytes();
        }
        remove(memory, self.tables.free_list(state, pages), span);
    }

    /// A record that describes no span.
    pub(super) fn record(&mut self, memory: &mut impl AddressSpace, metadata: &mut Metadata) -> Option<u64> {
        match self.idle_records {
            0 => metadata.take(memory, RECORD_WORDS),
            record => {
                self.idle_records = get(memory, word(record, NEXT));
                Some(record)
            }
        }
    }

    pub(super) fn drop_record(&mut self, memory: &mut impl AddressSpace, record: u64) {
        set(memory, word(record, NEXT), self.idle_records);
        self.idle_records = record;
    }
}

/// The number of an address's page, of pages of some bytes.
pub(super) fn page(address: u64, page_bytes: u64) -> u64 {
    (address - Region::START) / page_bytes
}

/// Adds a span to the front of a list.
pub(super) fn push(memory: &mut impl AddressSpace, head_at: u64, span: u64) {
    let head = get(memory, head_at);
    set(memory, word(span, NEXT), head);
    set(memory, word(span, PREVIOUS), 0);
    if head != 0 {
        set(memory, word(head, PREVIOUS), span);
    }
    set(memory, head_at, span);
}

/// Removes a span from a list.
pub(super) fn remove(memory: &mut impl AddressSpace, head_at: u64, span: u64) {
    let (next, previous) = (get(memory, word(span, NEXT)), get(memory, word(span, PREVIOUS)));
    if next != 0 {
        set(memory, word(next, PREVIOUS), previous);
    }
    let link = if previous == 0 { head_at } else { word(previous, NEXT) };
    set(memory, link, next);
}
