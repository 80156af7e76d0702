//! The simulator: takes a trace and a design, and predicts faults, residency, huge pages and OS calls.
//!
//! - [`memory`]: the SuperSlab allocator's memory in the simulator; it reports accesses to an [`observer`]. [`space`]: the
//!   memory of any other allocator.
//! - [`accounting`]: an observer that feeds a kernel model ([`hksim_linux_mm`]) and attributes every install.
//! - [`addresses`]: addresses of mmaps without a hint.
//! - [`mod@simulate`]: one trace under one design; [`mod@sweep`]: many designs on many traces; [`report`]: the results.
//!   [`design`]: the same for allocators of your own.
//! - [`forks`]: the cost of forked children. [`kernel_work`]: the kernel's work besides installs.
//! - [`mod@explain`]: where every install of a run came from.
//! - [`lines`]: reuse of cache lines, by the size of the cache.
//! - [`placement`]: the placement of every object, without its cost. [`mod@superslabs`]: the allocator that places them.
//! - [`paths`]: how often the allocator runs each path of its code.
//! - [`tlb`]: TLB models; [`reach`]: TLB reach and misses of a run. [`translations`]: the stream of accesses that TLB
//!   models observe; [`access_stream`]: the same stream for models outside this crate.

pub mod access_stream;
pub mod accounting;
pub mod addresses;
pub mod design;
pub mod explain;
pub mod forks;
pub mod kernel_work;
pub mod lines;
pub mod memory;
pub mod miss_curves;
mod number_hasher;
pub mod observer;
pub mod paths;
mod placed;
pub mod placement;
mod pump;
pub mod reach;
pub mod report;
pub mod simulate;
pub mod space;
mod subject;
pub mod superslabs;
pub mod sweep;
mod timeline;
pub mod tlb;
mod track;
pub mod translations;

pub use addresses::Addresses;
pub use design::{DesignConfig, explain_design, simulate_design};
pub use explain::{Explained, explain};
pub use lines::LineCounts;
pub use paths::PathCounts;
pub use report::SimReport;
pub use simulate::{Counted, Marks, SimConfig, SimError, Simulated, simulate};
pub use space::SimSpace;
pub use sweep::{Input, sweep};
