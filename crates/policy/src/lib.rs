//! The SuperSlab allocator of hksim, generic over its memory backend.
//!
//! The crate is `no_std` and uses no I/O, no clock, no thread-local storage and no other allocator. The same code runs
//! on a simulated kernel (`hksim-sim`) and on mmap (`hksim-native`); only the [`Memory`] implementation differs.
//!
//! - `policy`: the configuration: [`Policy`], its keywords, ranges, presets and flags.
//! - `heap`: a thread's heap: size classes, slabs, spans, allocation, free, remote frees, adoption.
//! - `arena`: the memory under the heaps: the pool of SuperSlabs, large and huge blocks, purging, system calls.
//! - `metadata`: every struct that is stored in the allocator's own memory.
//!
//! Start reading at [`memory`] (the backend trait), then [`meta`], then [`alloc`](Allocator::allocate) and
//! [`free`](Allocator::free).
#![no_std]

mod allocator;
mod arena;
pub mod geometry;
mod heap;
mod limits;
pub mod memory;
mod metadata;
pub mod policy;
pub mod stats;
mod validate;

pub use allocator::Allocator;
pub use arena::layout;
pub use geometry::{ConstGeometry, Geometry, RunGeometry};
pub use heap::alloc::Request;
pub use heap::free::FastFree;
pub use heap::invalid_free::InvalidFree;
pub use heap::{Ready, ThreadHeap, classes, owner_tag};
pub use limits::{ALIGN_BYTES_MAX, HUGE_PAGE_BYTES, PAGE_BYTES};
pub use memory::{Block, Errno, Memory, World};
pub use metadata::shared_word::{Word, order};
pub use metadata::{bits, field, meta};
pub use policy::process::{Checks, ProcessConfig};
pub use policy::split::{Paging, Placement};
pub use policy::{Policy, PolicyError, PreparedPolicy, flags, process, units, vocabulary};
pub use validate::Violation;
