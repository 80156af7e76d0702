//! The simulated world: a trace and a design in; faults, residency, huge pages, OS calls out.
//!
//! - [`memory`]: the policy's memory in the simulator; it emits [`hooks`].
//! - [`accounts`]: feeds a kernel model ([`hksim_linux_mm`]) with hooks.
//! - [`addresses`]: which addresses maps get that ask for none.
//! - [`mod@simulate`]: one trace under one design; [`mod@sweep`]: many; [`report`]: what comes out.
//! - [`forks`]: what a forked child costs. [`work`]: what the kernel had to do beside installs.
//! - [`placement`]: just where every object lies.
//! - [`tlb`]: models of TLBs; [`reach`]: what they could cover, and what they miss.

pub mod accounting;
pub mod addresses;
pub mod forks;
pub mod memory;
pub mod observer;
pub mod placement;
mod range_set;
pub mod reach;
pub mod report;
pub mod simulate;
pub mod sweep;
pub mod tlb;
pub mod work;

pub use addresses::Addresses;
pub use report::SimReport;
pub use simulate::{SimConfig, SimError, Simulated, simulate};
pub use sweep::{Input, Sweep, sweep};
