//! The native world: the SuperSlab allocator on mmap.
//!
//! [`MmapMemory`] is the [`Memory`](hksim_policy::Memory) of this world, over one [`Reservation`]. Its system
//! calls go through [`Os`], so that a replay can watch them; allocators that serve a program use [`Syscalls`].
//! [`process`] is one allocator for a whole process, [`SuperSlabs`] the same as Rust's global allocator; [`setup`] reads
//! its policy.

mod addresses;
mod global;
mod memory;
mod os;
pub mod process;
mod reservation;
pub mod setup;
mod tally;
mod tls;
mod word;

pub use addresses::Addresses;
pub use global::SuperSlabs;
pub use memory::MmapMemory;
pub use os::{Os, Syscalls};
pub use reservation::{Reservation, ReserveError};
pub use word::AtomicWord;
