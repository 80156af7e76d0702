//! Blocks with mappings of their own: those from a threshold on, as in glibc and most small allocators. A freed one is
//! unmapped, or kept in a cache.

use hksim_engine::{AddressSpace, Advice, Growth, Mapping, PAGE_BYTES};

use super::PageHeapSettings;
use super::spans::{KIND, MAPPED, NEXT, START, Spans, push, remove};
use super::tables::{Metadata, Tables, get, set, word};

/// The word of a mapping's record with its bytes, in place of a span's pages.
const BYTES: u64 = 1;

/// The threshold rises up to this, as that of glibc.
const THRESHOLD_BYTES_MAX: u64 = 32 << 20;

/// The mappings.
pub(super) struct Mapped {
    settings: PageHeapSettings,
    tables: Tables,
    /// Bytes from which on a request has a mapping.
    threshold_bytes: u64,
    /// Bytes of the mappings in the cache, whose list begins with the one that was freed last.
    cached_bytes: u64,
}

/// A block in a mapping.
pub(super) struct Block {
    pub(super) address: u64,
    /// Whether the mapping is new, and so zero.
    pub(super) is_new: bool,
}

impl Mapped {
    pub(super) fn new(settings: &PageHeapSettings, tables: Tables) -> Mapped {
        Mapped { settings: *settings, tables, threshold_bytes: settings.large_threshold_bytes, cached_bytes: 0 }
    }

    /// Whether a request of some bytes has a mapping.
    pub(super) fn serves(&self, bytes: u64) -> bool {
        bytes >= self.threshold_bytes
    }

    pub(super) fn bytes(&self, memory: &mut impl AddressSpace, mapping: u64) -> u64 {
        get(memory, word(mapping, BYTES))
    }

    /// A mapping for a block: the smallest of the cache of which at most a quarter remains unused, or a new one. `None`
    /// without memory.
    pub(super) fn allocate(
        &mut self,
        memory: &mut impl AddressSpace,
        (spans, metadata): (&mut Spans, &mut Metadata),
        bytes: u64,
        align: u64,
    ) -> Option<Block> {
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        if let Some(mapping) = self.best(memory, bytes, align) {
            self.leave_cache(memory, mapping);
            return Some(Block { address: get(memory, word(mapping, START)), is_new: false });
        }
        let record = spans.record(memory, metadata)?;
        let address = self.map(memory, metadata, record, bytes, align);
        match address {
            Some(address) => Some(Block { address, is_new: true }),
            None => {
                spans.drop_record(memory, record);
                None
            }
        }
    }

    /// Frees a mapping: it goes to the cache. While that has too much, the mapping that was freed first is unmapped.
    pub(super) fn free(&mut self, memory: &mut impl AddressSpace, spans: &mut Spans, mapping: u64) {
        let bytes = self.bytes(memory, mapping);
        if self.settings.raises_threshold && bytes <= THRESHOLD_BYTES_MAX {
            self.threshold_bytes = self.threshold_bytes.max(bytes);
        }
        push(memory, self.tables.cached_mappings(), mapping);
        self.cached_bytes += bytes;
        while self.cached_bytes > self.settings.large_cache_bytes_max {
            let oldest = self.oldest(memory);
            let (start, bytes) = (get(memory, word(oldest, START)), self.bytes(memory, oldest));
            // What the kernel's limits keep mapped stays in the cache.
            if memory.unmap(start, bytes).is_err() {
                return;
            }
            self.leave_cache(memory, oldest);
            self.tables.set_span(memory, self.page(start), 0);
            spans.drop_record(memory, oldest);
        }
    }

    /// Changes the size of a mapping by `mremap`, which may move it. Returns its address. `None` if that fails; the mapping
    /// is then unchanged.
    pub(super) fn resize(
        &mut self,
        memory: &mut impl AddressSpace,
        metadata: &mut Metadata,
        mapping: u64,
        bytes: u64,
    ) -> Option<u64> {
        let (start, old_bytes) = (get(memory, word(mapping, START)), self.bytes(memory, mapping));
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        if bytes == old_bytes {
            return Some(start);
        }
        // So that the new place can be described.
        self.tables.reserve(memory, metadata)?;
        let growth = Growth::Move { align: self.settings.span_page_bytes };
        let new = memory.remap(start, old_bytes, bytes, growth).ok()?;
        self.tables.set_span(memory, self.page(start), 0);
        self.describe(memory, metadata, mapping, (new, bytes))?;
        Some(new)
    }

    /// A new mapping. Returns its address.
    fn map(
        &self,
        memory: &mut impl AddressSpace,
        metadata: &mut Metadata,
        record: u64,
        bytes: u64,
        align: u64,
    ) -> Option<u64> {
        let start = memory.map(bytes, align.max(self.settings.span_page_bytes), Mapping::Plain).ok()?;
        if self.describe(memory, metadata, record, (start, bytes)).is_none() {
            // The mapping is new, so nothing is lost if the kernel's limits prevent this.
            let _ = memory.unmap(start, bytes);
            return None;
        }
        if self.settings.advises_huge {
            // A kernel without huge pages refuses the advice.
            let _ = memory.advise(start, bytes, Advice::HugePage);
        }
        Some(start)
    }

    /// Writes the record of a mapping, and leads its first page to it. `None` without memory for the page map.
    fn describe(
        &self,
        memory: &mut impl AddressSpace,
        metadata: &mut Metadata,
        record: u64,
        (start, bytes): (u64, u64),
    ) -> Option<()> {
        let page = self.page(start);
        self.tables.ensure(memory, metadata, page..page + 1)?;
        for (field, value) in [(START, start), (BYTES, bytes), (KIND, MAPPED)] {
            set(memory, word(record, field), value);
        }
        self.tables.set_span(memory, page, record);
        Some(())
    }

    fn page(&self, address: u64) -> u64 {
        super::spans::page(address, self.settings.span_page_bytes)
    }

    /// The mapping of the cache that fits a block best.
    fn best(&self, memory: &mut impl AddressSpace, bytes: u64, align: u64) -> Option<u64> {
        let mut best = None;
        let mut mapping = get(memory, self.tables.cached_mappings());
        while mapping != 0 {
            let (start, has) = (get(memory, word(mapping, START)), self.bytes(memory, mapping));
            let fits = has >= bytes && has - bytes <= has / 4 && start.is_multiple_of(align);
            if fits && best.is_none_or(|(least, _)| has < least) {
                best = Some((has, mapping));
            }
            mapping = get(memory, word(mapping, NEXT));
        }
        best.map(|(_, mapping)| mapping)
    }

    /// The mapping that was freed first, of a cache that has some.
    fn oldest(&self, memory: &mut impl AddressSpace) -> u64 {
        let mut oldest = get(memory, self.tables.cached_mappings());
        loop {
            match get(memory, word(oldest, NEXT)) {
                0 => return oldest,
                next => oldest = next,
            }
        }
    }

    fn leave_cache(&mut self, memory: &mut impl AddressSpace, mapping: u64) {
        remove(memory, self.tables.cached_mappings(), mapping);
        self.cached_bytes -= self.bytes(memory, mapping);
    }
}
