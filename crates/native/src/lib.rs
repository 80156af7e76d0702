//! The SuperSlab allocator on mmap.
//!
//! Programs use [`SuperSlabs`] as Rust's global allocator:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: hksim_native::SuperSlabs = hksim_native::SuperSlabs;
//!
//! let words: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
//! assert_eq!(words[999], "999");
//! ```
//!
//! The policy is hksim's `preset default`, unless `HKSIM_NATIVE_POLICY` sets another policy. Its value is for example
//! `superslab=1M huge=never` (see [`config`]). If `HKSIM_NATIVE_STATS` is set, statistics are written at exit. The C
//! library's malloc is not replaced.
//!
//! The crate supports Linux on x86-64 only, needs Rust 1.88 or newer, and has no features. The first allocation
//! reserves 64 GiB of address space, or less if the address space is limited. Alignments above 32 MiB fail.
//!
//! [`MmapMemory`] implements [`Memory`](hksim_policy::Memory) on one [`Reservation`]. Its system calls go through
//! [`Os`], so that a replay can observe them; [`Syscalls`] makes the real calls. [`process`] is the allocator of a
//! whole process. [`SuperSlabs`] makes it Rust's global allocator. [`config`] reads the policy.

// Miri does not run load, exit and fork handlers.
#![cfg_attr(miri, allow(dead_code))]

mod addresses;
mod call_counts;
pub mod config;
mod errno;
mod global;
mod lock;
mod mapped_parts;
mod memory;
mod os;
pub mod process;
mod reservation;
#[doc(hidden)]
pub mod slots;
mod tls;
mod word;

pub use addresses::Addresses;
pub use global::SuperSlabs;
pub use memory::MmapMemory;
pub use os::{Os, Syscalls};
pub use reservation::{Reservation, ReserveError};
pub use word::AtomicWord;
