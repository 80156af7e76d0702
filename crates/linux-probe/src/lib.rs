//! What Linux tells of a process's memory, and how it is asked. Knows nothing of allocators, traces or models.
//!
//! - [`scan`]: the form of `PAGEMAP_SCAN`, for callers that bring their own system calls; [`pagemap`]: scans of this process;
//!   [`page_flags`]: which frames are one folio.
//! - [`perf`]: events of the kernel; [`ring`]: their records; [`traps`]: page-fault exceptions, counted and with addresses.
//! - [`cpu_modes`]: how much of a thread's time the kernel takes; [`area`]: memory to try things on.
//! - [`procfs`]: figures of `/proc`; [`sysfs`]: modes and limits of the machine; [`modes`]: whether they change; [`pressure`]:
//!   whether memory is short; [`damon`]: who looks at pages from outside; [`file_size`]: a limit of this process; [`lifetime`]: processes that end with their parent.
//! - [`resident`]: memory for those who watch faults and must take none themselves.

#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
pub mod area;
#[cfg(feature = "std")]
pub mod cpu_modes;
#[cfg(feature = "std")]
pub mod damon;
#[cfg(feature = "std")]
pub mod file_size;
#[cfg(feature = "std")]
pub mod lifetime;
#[cfg(feature = "std")]
pub mod modes;
#[cfg(feature = "std")]
pub mod page_flags;
#[cfg(feature = "std")]
pub mod pagemap;
#[cfg(feature = "std")]
pub mod perf;
#[cfg(feature = "std")]
pub mod pressure;
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
pub mod sysfs;
#[cfg(feature = "std")]
pub mod traps;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
