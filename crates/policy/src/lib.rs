//! The SuperSlab allocator of hksim, generic over its memory backend.
//!
//! The crate is `no_std` and uses no I/O, no clock, no thread-local storage and no other allocator. The same code runs on a
//! simulated kernel (`hksim-sim`) and on mmap (`hksim-native`); only the [`Memory`] implementation differs.
//!
//! Start at [`memory`] (the backend trait), then [`meta`] (every struct that is stored in allocator memory), then
//! [`alloc`](Allocator::allocate) and [`free`](Allocator::free).
#![no_std]

mod adopt;
mod alloc;
mod allocator;
mod available;
pub mod bits;
pub mod classes;
pub mod field;
pub mod flags;
mod fork;
mod free;
pub mod geometry;
mod heap;
mod huge_heaps;
mod invalid_free;
mod large;
pub mod layout;
mod limits;
mod link;
mod locking;
mod mapping;
pub mod memory;
pub mod meta;
mod os;
mod own;
pub mod owner_tag;
pub mod policy;
mod pool;
pub mod process;
mod realloc;
mod remote;
mod run_cache;
mod slab;
mod span;
pub mod stats;
pub mod units;
mod validate;
pub mod vocabulary;
mod word;
mod words;

pub use alloc::Request;
pub use allocator::Allocator;
pub use free::FastFree;
pub use geometry::{ConstGeometry, Geometry, RunGeometry};
pub use heap::{Ready, ThreadHeap};
pub use invalid_free::InvalidFree;
pub use limits::{ALIGN_BYTES_MAX, HUGE_PAGE_BYTES, PAGE_BYTES};
pub use memory::{Block, Errno, Memory, World};
pub use policy::{Policy, PolicyError, PreparedPolicy};
pub use process::{Checks, ProcessConfig};
pub use validate::Violation;
pub use word::{Word, order};
