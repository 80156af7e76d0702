//! Allocation traces: a program's allocator calls as a stream of [`event::Event`]s.
//!
//! - [`event`]: the event model; [`source`]: the interface that files and generators share.
//! - [`hkt`]: the `.hkt` file format, [`hkt::TraceReader`] and [`hkt::TraceWriter`].
//! - [`sites`]: call sites; [`profile`]: touch profiles, for objects that were not watched.
//! - [`import`]: reads other programs' formats; [`export`]: writes them; [`row`]: an event as a table row.
//! - [`functions`]: allocator functions by name.
//! - [`ids`]: dense object ids, recycled last-freed-first; [`resolve`]: maps addresses to objects.
//! - [`splitmix`]: the seeded random numbers of generators and searches.

pub mod error;
pub mod event;
pub mod export;
pub mod functions;
pub mod generate;
pub mod header;
pub mod hkt;
pub mod ids;
#[cfg(feature = "import")]
pub mod import;
pub mod info;
pub mod memory_policy;
pub mod named_file;
pub mod profile;
pub mod resolve;
pub mod result_names;
pub mod row;
pub mod shrink;
pub mod source;
pub mod splitmix;
pub mod tools;

pub use hksim_call_sites as sites;
#[cfg(feature = "symbols")]
pub use hksim_call_sites::symbols;
