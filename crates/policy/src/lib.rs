//! The SuperSlab allocator of hksim, written once and generic over the memory it lives in.
//!
//! `no_std`, no I/O, no clock, no thread-local storage, no allocation of its own. The same code runs on a
//! simulated kernel (`hksim-sim`) and on mmap (`hksim-native`); what differs is the [`Memory`] it is given.
//!
//! Start at [`memory`] (the seam), then [`meta`] (every struct that lives in allocator memory), then
//! [`alloc`](Allocator::allocate) and [`free`](Allocator::free).
#![no_std]

mod adopt;
mod alloc;
mod big;
mod bits;
pub mod classes;
mod free;
pub mod geometry;
mod heap;
pub mod layout;
pub mod memory;
pub mod meta;
pub mod options;
mod os;
mod own;
mod pool;
mod realloc;
mod remote;
mod slab;
mod span;
mod validate;

pub use alloc::{Allocator, Request};
pub use geometry::{ConstGeometry, Geometry, RunGeometry};
pub use heap::ThreadHeap;
pub use memory::{Block, Errno, Memory, World};
pub use options::Options;
pub use remote::Word;
pub use validate::Violation;

/// Bytes of an OS page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a huge page.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;
