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
mod allocator;
mod big;
pub mod bits;
pub mod census;
pub mod classes;
pub mod field;
pub mod flags;
mod fork;
mod free;
pub mod geometry;
mod heap;
pub mod home;
pub mod layout;
mod limits;
mod link;
mod locking;
pub mod memory;
pub mod meta;
mod misuse;
mod os;
mod own;
mod placing;
pub mod policy;
mod pool;
pub mod process;
mod realloc;
mod remote;
mod reuse;
mod room;
mod slab;
mod span;
mod thrift;
pub mod units;
mod validate;
pub mod vocabulary;
mod word;
mod words;

pub use alloc::Request;
pub use allocator::Allocator;
pub use free::Quickly;
pub use geometry::{ConstGeometry, Geometry, RunGeometry};
pub use heap::{Ready, ThreadHeap};
pub use limits::{ALIGN_BYTES_MAX, HUGE_PAGE_BYTES, PAGE_BYTES};
pub use memory::{Block, Errno, Memory, World};
pub use misuse::Misuse;
pub use policy::{Policy, PolicyError, PreparedPolicy};
pub use process::{Checks, ProcessConfig};
pub use validate::Violation;
pub use word::{Word, order};
