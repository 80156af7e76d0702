//! Queries Linux about a process's memory. This crate knows nothing of allocators, traces and models.
//!
//! - [`scan`]: the request of `PAGEMAP_SCAN`, for callers that make their own system calls; [`pagemap`]: scans of this
//!   process; [`page_states`]: all states of another process's pages; [`page_flags`]: which page frames form a folio.
//! - [`perf`]: kernel events; [`ring`]: their records; [`tracefs`]: tracepoints; [`traps`]: page-fault exceptions, counted and with addresses;
//!   [`trap_samples`]: the same with instructions and stacks; [`uprobe`]: breakpoints of the kernel in program files.
//! - [`cpu_modes`]: the kernel's share of a thread's time; [`core_sharing`]: whether other work shares its core; [`processor`]: pinning; [`area`]: memory for measurements; [`chase`]: accesses to
//!   its cache lines.
//! - [`procfs`]: figures of `/proc`; [`maps`]: this process's mappings; [`smaps`]: a process's mappings with their
//!   figures; [`sysfs`]: modes and limits of the machine; [`modes`]: whether they change;
//!   [`pressure`]: whether memory is short; [`damon`]: the kernel's access monitor; [`file_size`]: this process's
//!   file-size limit; [`lifetime`]: processes that end with their parent; [`status`]: what the kernel says about a process;
//!   [`khugepaged`]: keeps khugepaged from waking up; [`scans`]: waits for its scans; [`stale_entries`]: whether a
//!   virtual machine's TLB entries cause additional faults.
//! - [`attach_obstacle`]: why a running process cannot be attached to; [`process_memory`]: its memory;
//!   [`process_words`]: its command line and environment;
//!   [`dynamic_section`]: what a loaded module defines and calls; [`stopped_thread`]: a thread of it, stopped to make system
//!   calls.
//! - [`memory_group`]: a memory control group with a limit; [`shared_word`]: a number that two processes share;
//!   [`signal_handlers`]: handlers that are removed again.
//! - [`resident`]: memory for code that counts faults and must cause none itself.
//!
//! ```
//! # #[cfg(feature = "std")] {
//! use hksim_linux_probe::{maps::Maps, sysfs};
//!
//! let mode = sysfs::choice(&format!("{}/enabled", sysfs::THP));
//! println!("THP: {}", mode.as_deref().unwrap_or("not supported"));
//! println!("{} mappings", Maps::read().map_or(0, |maps| maps.iter().count()));
//! # }
//! ```

#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
pub mod area;
#[cfg(feature = "std")]
pub mod attach_obstacle;
#[cfg(feature = "std")]
pub mod chase;
#[cfg(feature = "std")]
pub mod core_sharing;
#[cfg(feature = "std")]
pub mod cpu_modes;
#[cfg(feature = "std")]
pub mod damon;
pub mod dynamic_section;
#[cfg(feature = "std")]
pub mod file_size;
#[cfg(feature = "std")]
pub mod khugepaged;
#[cfg(feature = "std")]
pub mod lifetime;
#[cfg(feature = "std")]
pub mod maps;
#[cfg(feature = "std")]
pub mod memory_group;
#[cfg(feature = "std")]
pub mod modes;
#[cfg(feature = "std")]
pub mod page_flags;
#[cfg(feature = "std")]
pub mod page_states;
#[cfg(feature = "std")]
pub mod pagemap;
#[cfg(feature = "std")]
pub mod perf;
#[cfg(feature = "std")]
pub mod pressure;
#[cfg(feature = "std")]
pub mod process_memory;
#[cfg(feature = "std")]
pub mod process_words;
#[cfg(feature = "std")]
pub mod processor;
#[cfg(feature = "std")]
pub mod procfs;
#[cfg(feature = "std")]
pub mod resident;
#[cfg(feature = "std")]
pub mod ring;
pub mod scan;
#[cfg(feature = "std")]
pub mod scans;
#[cfg(feature = "std")]
pub mod shared_word;
#[cfg(feature = "std")]
pub mod signal_handlers;
#[cfg(feature = "std")]
pub mod smaps;
#[cfg(feature = "std")]
pub mod stale_entries;
#[cfg(feature = "std")]
pub mod status;
#[cfg(feature = "std")]
pub mod stopped_thread;
#[cfg(feature = "std")]
pub mod sysfs;
#[cfg(feature = "std")]
pub mod tlb_counters;
#[cfg(feature = "std")]
pub mod tracefs;
#[cfg(feature = "std")]
pub mod trap_samples;
#[cfg(feature = "std")]
pub mod traps;
#[cfg(feature = "std")]
pub mod uprobe;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
