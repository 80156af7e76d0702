//! The simulator: takes a trace and a design, and predicts faults, residency, huge pages and OS calls.
//!
//! - [`memory`]: the allocator's memory in the simulator; it reports accesses to an [`observer`].
//! - [`accounting`]: an observer that feeds a kernel model ([`hksim_linux_mm`]) and attributes every install.
//! - [`addresses`]: addresses of mmaps without a hint.
//! - [`mod@simulate`]: one trace under one design; [`mod@sweep`]: many designs on many traces; [`report`]: the results.
//! - [`forks`]: the cost of forked children. [`kernel_work`]: the kernel's work besides installs.
//! - [`mod@explain`]: where every install of a run came from.
//! - [`placement`]: the placement of every object, without its cost.
//! - [`tlb`]: TLB models; [`reach`]: TLB reach and misses of a run. [`translations`]: the stream of accesses that TLB
//!   models observe; [`access_stream`]: the same stream for models outside this crate.

pub mod access_stream;
pub mod accounting;
pub mod addresses;
pub mod explain;
pub mod forks;
pub mod kernel_work;
pub mod memory;
pub mod miss_curves;
pub mod observer;
mod placed;
pub mod placement;
mod pump;
pub mod reach;
pub mod report;
pub mod simulate;
pub mod sweep;
mod timeline;
pub mod tlb;
mod track;
pub mod translations;

pub use addresses::Addresses;
pub use explain::{Explained, explain};
pub use report::SimReport;
pub use simulate::{SimConfig, SimError, Simulated, simulate};
pub use sweep::{Input, sweep};
