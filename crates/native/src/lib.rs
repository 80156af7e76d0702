//! The native world: the SuperSlab allocator on mmap.
//!
//! Programs want [`SuperSlabs`], which makes it Rust's global allocator:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: hksim_native::SuperSlabs = hksim_native::SuperSlabs;
//!
//! let words: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
//! assert_eq!(words[999], "999");
//! ```
//!
//! It serves `preset default` of hksim unless `HKSIM_NATIVE_POLICY` says otherwise (`superslab=1M huge=never`; see
//! [`config`]), tells statistics at exit where `HKSIM_NATIVE_STATS` asks for them, and leaves the C library's malloc alone.
//! Linux on x86-64 only; Rust 1.88 or newer; no features. The address space is reserved at the first allocation: 64 GiB,
//! or less where that cannot be had. Alignment above 32 MiB is refused.
//!
//! [`MmapMemory`] is the [`Memory`](hksim_policy::Memory) of this world, over one [`Reservation`]. Its system
//! calls go through [`Os`], so that a replay can watch them; allocators that serve a program use [`Syscalls`].
//! [`process`] is one allocator for a whole process, [`SuperSlabs`] the same as Rust's global allocator; [`config`] reads
//! its policy.

// Miri runs nothing at load, exit and fork.
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
