//! Memory recordings: the page operations of one address space, in the order in which the kernel performed them.
//!
//! A recording holds every system call that changes the mappings of a process, and every page fault. It is stored in
//! a `.hkm` file: [`Header`], chunks of [`Event`]s, [`Footer`]. Addresses are numbers of 4 KiB pages. Arguments of
//! system calls are stored as the kernel received them, so a recording does not depend on any model.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("app.hkm");
//! use hksim_memory_trace::{Event, Footer, Header, Op, Reader, SiteId, TouchKind, Writer};
//!
//! let mut writer = Writer::create(&path, &Header::example(&["app"]))?;
//! let op = Op::Touch { page: 0x7f000, kind: TouchKind::Write };
//! writer.push(Event { time_ns: 10, thread: 0, op, site: SiteId::UNKNOWN })?;
//! writer.finish(&Footer::default())?;
//!
//! let mut reader = Reader::open(&path)?;
//! let mut events = Vec::new();
//! while reader.next_chunk(&mut events)? {
//!     println!("{} events", events.len());
//! }
//! assert_eq!(reader.footer().map(|footer| footer.lost_events), Some(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod at_start;
mod codec;
mod definitions;
mod edit;
mod envelope;
mod error;
mod event;
mod header;
mod reader;
mod relocate;
mod rounded;
mod section;
mod summary;
mod trim;
mod varint;
mod verify;
mod writer;

pub use at_start::{MappingAtStart, MappingTraits, PageAtStart, PagesAtStart};
pub use definitions::FRAMES_MAX;
pub use edit::{CopiedTotals, Cut, anonymise, cut, repair};
pub use envelope::MAGIC;
pub use error::MemoryTraceError;
pub use event::{Event, MapOp, MappingKind, NameId, Op, Origin, TouchKind};
pub use header::{
    Beginning, Calls, End, ExitStatus, Faults, Footer, Header, Inherited, Limits, Machine, ProcessId, ThpDisabled,
    Visibility,
};
pub use hksim_call_sites::{BUILD_ID_BYTES_MAX, Frame, Module, SiteId, SiteTable, Sites, Stack, StackEnd};
pub use reader::Reader;
pub use relocate::{CallMismatch, Moves, Placement, Relocated, Rewritten, relocate, relocate_forked, rewrite};
pub use summary::{AtStart, SiteUse, Summary, summarise};
pub use verify::{Finding, Verified, verify};
pub use writer::Writer;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
