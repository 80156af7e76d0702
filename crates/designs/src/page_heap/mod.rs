//! A page heap with size classes and caches for threads, like that of gperftools' TCMalloc.
//!
//! - Memory is a heap of *pages* (`--span-page`), of which *spans* are taken by best fit. A free span is joined with free
//!   neighbours (`spans`).
//! - Requests up to `--small-max` have a size class (`classes`). A span of a class is cut into objects. Free objects are
//!   in their span, in batches of the class's *transfer cache* (`central`), or in a list of a *thread cache*
//!   (`threads`).
//! - Larger requests have a span of their own.
//! - Requests from `--large-threshold` on have a mapping of their own, which is unmapped when it is freed, or kept in a cache
//!   (`mapped`). `realloc` resizes it by `mremap`.
//! - Free spans are kept up to `--keep-free` bytes; then the longest are released to the kernel (`--release`).
//!
//! Objects have no headers: a page map leads from an address to its span (`tables`). All tables are in memory, so their
//! pages are counted with the cause [`Cause::Metadata`]; links of free objects have the
//! cause [`Cause::FreeList`].

mod central;
mod classes;
mod mapped;
mod spans;
mod tables;
mod threads;

use hksim_engine::{AddressSpace, Cause, Design, Errno, INVALID, Request, Touch};
use serde::{Deserialize, Serialize};

use crate::listed::Listed;
use crate::settings::{Setting, Values};
use central::Central;
use classes::Classes;
use mapped::{Block, Mapped};
use spans::{Kind, Spans};
use tables::{Metadata, Tables};
use threads::Threads;

/// How free spans are released to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// They never are.
    None,
    /// By `MADV_DONTNEED`.
    Dontneed,
    /// By `MADV_FREE`.
    Free,
}

/// When the objects of a new span are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// All at once, which touches every page of the span.
    Eager,
    /// Each when it is first taken.
    Lazy,
}

/// The settings of [`PageHeap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageHeapSettings {
    /// Bytes of the heap's pages, a power of two from 4 KiB to 256 KiB.
    pub span_page_bytes: u64,
    /// Bytes of the largest size class, a power of two from 1 KiB to 256 KiB.
    pub small_bytes_max: u64,
    /// Objects of a batch, at most: 2 to 1024. Classes above 64 KiB divided by this have smaller batches.
    pub batch_objects_max: u64,
    /// Bytes that a thread's cache may hold: 0 to 2^40.
    pub thread_cache_bytes_max: u64,
    /// Batches in the transfer cache of a class: 0 to 64.
    pub transfer_batches_max: u64,
    /// When the objects of a new span are linked.
    pub link: Link,
    /// How free spans are released to the kernel.
    pub release: Release,
    /// Bytes of free spans that are not released: 0 to 2^40.
    pub keep_free_bytes: u64,
    /// Bytes by which the heap grows at least: 4 KiB to 1 GiB, and at least a page of the heap.
    pub grow_bytes_min: u64,
    /// Whether new memory is advised with `MADV_HUGEPAGE`.
    pub advises_huge: bool,
    /// Bytes from which on a request has a mapping of its own: 4 KiB to 2^40.
    pub large_threshold_bytes: u64,
    /// Bytes of freed mappings of blocks that are kept mapped: 0 to 2^40.
    pub large_cache_bytes_max: u64,
    /// Whether a freed mapping of up to 32 MiB raises the threshold to its size, as in glibc.
    pub raises_threshold: bool,
}

impl Default for PageHeapSettings {
    fn default() -> PageHeapSettings {
        PageHeapSettings {
            span_page_bytes: 8 << 10,
            small_bytes_max: 256 << 10,
            batch_objects_max: 32,
            thread_cache_bytes_max: 4 << 20,
            transfer_batches_max: 16,
            link: Link::Eager,
            release: Release::Dontneed,
            keep_free_bytes: 64 << 20,
            grow_bytes_min: 1 << 20,
            advises_huge: false,
            large_threshold_bytes: 1 << 40,
            large_cache_bytes_max: 0,
            raises_threshold: false,
        }
    }
}

/// The allocator. Its tables are in memory; these fields would be static variables.
pub struct PageHeap {
    settings: PageHeapSettings,
    classes: Classes,
    metadata: Metadata,
    spans: Spans,
    mapped: Mapped,
    central: Central,
    threads: Threads,
}

impl PageHeap {
    /// The object of a class that a thread takes.
    fn allocate_small(&mut self, memory: &mut impl AddressSpace, thread: u32, class: u64) -> Option<u64> {
        let PageHeap { metadata, spans, central, threads, .. } = self;
        threads.take(memory, thread, class, &mut Shared { metadata, spans, central })
    }

    /// A span for a request that no class serves.
    fn allocate_large(&mut self, memory: &mut impl AddressSpace, bytes: u64, align: u64) -> Option<u64> {
        let pages = bytes.div_ceil(self.settings.span_page_bytes);
        let span = self.spans.allocate(memory, &mut self.metadata, pages, align)?;
        Some(self.spans.start(memory, span))
    }

    /// Resizes a block that has a mapping of its own. `None` if it has none, or the kernel refuses.
    fn resize_mapping(&mut self, memory: &mut impl AddressSpace, block: u64, bytes: u64) -> Option<u64> {
        let span = self.spans.of(memory, block);
        let is_mapping = self.spans.kind(memory, span) == Kind::Mapped;
        if is_mapping { self.mapped.resize(memory, &mut self.metadata, span, bytes) } else { None }
    }
}

/// A block for a request, zeroed if it must be and is not.
fn initialised(memory: &mut impl AddressSpace, block: u64, request: &Request, is_zero: bool) -> u64 {
    if request.zeroed && !is_zero {
        memory.touch(block, request.bytes, Touch::WriteZero, Cause::Zeroing);
    }
    block
}

/// What the caches of threads share.
struct Shared<'a> {
    metadata: &'a mut Metadata,
    spans: &'a mut Spans,
    central: &'a Central,
}

impl Design for PageHeap {
    const NAME: &'static str = "page-heap";
    type Settings = PageHeapSettings;

    fn start(settings: &PageHeapSettings, memory: &mut impl AddressSpace) -> Result<PageHeap, Errno> {
        PageHeap::check(settings).map_err(|_| INVALID)?;
        let classes = Classes::new(settings).ok_or(INVALID)?;
        let tables = Tables::map(memory)?;
        Ok(PageHeap {
            settings: *settings,
            classes,
            metadata: Metadata::default(),
            spans: Spans::new(settings, tables),
            mapped: Mapped::new(settings, tables),
            central: Central::new(settings, tables, classes),
            threads: Threads::new(settings, tables, classes),
        })
    }

    fn allocate(&mut self, memory: &mut impl AddressSpace, thread: u32, request: Request) -> Option<u64> {
        let bytes = request.bytes.max(1);
        if self.mapped.serves(bytes) {
            let PageHeap { metadata, spans, mapped, .. } = self;
            let Block { address, is_new } = mapped.allocate(memory, (spans, metadata), bytes, request.align)?;
            return Some(initialised(memory, address, &request, is_new));
        }
        let block = match self.classes.of(bytes, request.align) {
            Some(class) => self.allocate_small(memory, thread, class)?,
            None => self.allocate_large(memory, bytes, request.align)?,
        };
        Some(initialised(memory, block, &request, false))
    }

    fn free(&mut self, memory: &mut impl AddressSpace, thread: u32, block: u64) {
        let PageHeap { metadata, spans, mapped, central, threads, .. } = self;
        let span = spans.of(memory, block);
        match spans.kind(memory, span) {
            Kind::Small(class) => threads.put(memory, thread, class, block, &mut Shared { metadata, spans, central }),
            Kind::Large | Kind::Kept | Kind::Released => spans.free(memory, span),
            Kind::Mapped => mapped.free(memory, spans, span),
        }
    }

    fn usable_bytes(&mut self, memory: &mut impl AddressSpace, block: u64) -> u64 {
        let span = self.spans.of(memory, block);
        match self.spans.kind(memory, span) {
            Kind::Small(class) => self.classes.bytes(class),
            Kind::Large | Kind::Kept | Kind::Released => self.spans.bytes(memory, span),
            Kind::Mapped => self.mapped.bytes(memory, span),
        }
    }

    /// Keeps the block unless it is too small, or more than half of it would be unused. A mapping is resized, unless it would
    /// be smaller than the threshold. Another block that grows gets a quarter more than it had, if that is enough.
    fn resize(&mut self, memory: &mut impl AddressSpace, thread: u32, block: u64, bytes: u64) -> Option<u64> {
        let usable_bytes = self.usable_bytes(memory, block);
        if bytes <= usable_bytes && bytes >= usable_bytes / 2 {
            return Some(block);
        }
        if (bytes > usable_bytes || self.mapped.serves(bytes))
            && let Some(resized) = self.resize_mapping(memory, block, bytes)
        {
            return Some(resized);
        }
        let quarter_more = usable_bytes + usable_bytes / 4;
        let wanted = if bytes > usable_bytes { bytes.max(quarter_more) } else { bytes };
        let new = self.allocate(memory, thread, Request::plain(wanted))?;
        memory.copy(new, block, usable_bytes.min(bytes));
        self.free(memory, thread, block);
        Some(new)
    }

    fn thread_exit(&mut self, memory: &mut impl AddressSpace, thread: u32) {
        let PageHeap { metadata, spans, central, threads, .. } = self;
        threads.exit(memory, thread, &mut Shared { metadata, spans, central });
    }
}

impl Listed for PageHeap {
    const SUMMARY: &'static str =
        "a heap of pages with size classes, caches for threads and a transfer cache, like TCMalloc";

    const SETTINGS: &'static [Setting] = &[
        Setting {
            flag: "span-page",
            field: "span_page_bytes",
            values: Values::PowerOfTwo(4 << 10, 256 << 10),
            help: "Page of the heap, in which spans are counted",
        },
        Setting {
            flag: "small-max",
            field: "small_bytes_max",
            values: Values::PowerOfTwo(1 << 10, 256 << 10),
            help: "Largest request that has a size class; larger ones have a span of their own",
        },
        Setting {
            flag: "batch",
            field: "batch_objects_max",
            values: Values::Count(2, 1024),
            help: "Objects that move at once between a thread cache and the others, at most; 64K in bytes, at least 2",
        },
        Setting {
            flag: "thread-cache",
            field: "thread_cache_bytes_max",
            values: Values::Pages(0, 1 << 40),
            help: "Bytes of free objects in a thread cache, above which half of each list is given up",
        },
        Setting {
            flag: "transfer",
            field: "transfer_batches_max",
            values: Values::Count(0, 64),
            help: "Batches that the transfer cache of a class holds",
        },
        Setting {
            flag: "link",
            field: "link",
            values: Values::Words(&["eager", "lazy"]),
            help: "Link all objects of a new span at once (eager), or each when it is first taken (lazy)",
        },
        Setting {
            flag: "release",
            field: "release",
            values: Values::Words(&["none", "dontneed", "free"]),
            help: "How free spans are released to the kernel: never, by MADV_DONTNEED, by MADV_FREE",
        },
        Setting {
            flag: "keep-free",
            field: "keep_free_bytes",
            values: Values::Pages(0, 1 << 40),
            help: "Bytes of free spans that are kept; above it the longest are released",
        },
        Setting {
            flag: "grow",
            field: "grow_bytes_min",
            values: Values::Pages(4 << 10, 1 << 30),
            help: "Bytes that the heap maps at once, at least",
        },
        Setting {
            flag: "advise-huge",
            field: "advises_huge",
            values: Values::YesNo,
            help: "Advise new memory with MADV_HUGEPAGE",
        },
        Setting {
            flag: "large-threshold",
            field: "large_threshold_bytes",
            values: Values::Pages(4 << 10, 1 << 40),
            help: "Smallest request that has a mapping of its own, which is unmapped when it is freed",
        },
        Setting {
            flag: "large-cache",
            field: "large_cache_bytes_max",
            values: Values::Pages(0, 1 << 40),
            help: "Bytes of freed mappings of blocks that are kept for other blocks; above it the oldest are unmapped",
        },
        Setting {
            flag: "raise-threshold",
            field: "raises_threshold",
            values: Values::YesNo,
            help: "Raise --large-threshold to the size of each mapping up to 32M that is freed, as glibc does",
        },
    ];

    fn check(settings: &PageHeapSettings) -> Result<(), String> {
        let page_bytes = settings.span_page_bytes;
        if settings.grow_bytes_min < page_bytes || !settings.grow_bytes_min.is_multiple_of(page_bytes.max(1)) {
            return Err("--grow must be a multiple of --span-page, because the heap grows by whole pages".to_string());
        }
        Ok(())
    }
}
