//! Call sites: where a program asked for memory, in allocation traces (`.hkt`) and memory recordings (`.hkm`).
//!
//! Each stack is stored once, and events refer to it by a [`SiteId`]. Frames are addresses in files; the names of functions
//! can be looked up later, on request (feature `symbols`).
//!
//! - [`Sites`]: the call sites of a recording; [`SiteTable`]: call sites to which others are added.
//! - [`symbols`]: names of functions and lines, from the files of this machine.
//!
//! ```
//! use hksim_call_sites::{Frame, Module, SiteId, SiteTable};
//!
//! let mut table = SiteTable::default();
//! let module = Some(table.module(&Module { path: "/bin/app".into(), build_id: None }));
//! let frame = table.frame(Frame { module, address: 0x1234, function: None, source: None });
//! let site = table.stack(vec![frame].into());
//! assert_eq!((site, table.stack(vec![frame].into())), (SiteId(1), SiteId(1)));
//! assert_eq!(table.sites().frames_of(site).next().map(|frame| frame.address), Some(0x1234));
//! ```

mod sites;
#[cfg(feature = "symbols")]
pub mod symbols;
mod table;

pub use sites::{BUILD_ID_BYTES_MAX, Frame, Module, SiteId, Sites, Stack, StackEnd, hexadecimal};
pub use table::SiteTable;
