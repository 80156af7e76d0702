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
//! # How words become a policy
//!
//! Command lines, policy files, the native allocator's environment variable and results name settings by words:
//! `superslab 1M`, `huge never`.
//!
//! 1. `policy/settings.rs` lists the settings: each one's meaning, its default, and the half of the policy to which it
//!    belongs. [`Policy`] and its halves, [`Placement`] and [`Paging`], follow from this list.
//! 2. [`vocabulary`] has the settings that are one of a few words, as enums with a word for each value; [`units`] reads
//!    sizes, counts and times.
//! 3. [`flags`] has a row for each flag: its name, its values, its help, and how its word gets into a policy
//!    ([`Flag::set`](flags::Flag::set)) and out of it ([`Flag::show`](flags::Flag::show)). Arguments, help and the
//!    reference page are derived from it. A flag may set two fields: `huge mthp-64K` sets the mode and the size.
//! 4. Later words replace earlier ones: preset, file, flags. [`Policy::prepare`] then checks the whole policy, because
//!    some values exclude each other, and computes geometry and layout.
//!
//! Files and JSON results have the fields of [`Policy`] themselves, by the feature `serde`.
//!
//! ```
//! use hksim_policy::{Policy, flags::Flag};
//!
//! let mut policy = Policy::preset("lean").ok_or("no such preset")?;
//! for (name, word) in [("superslab", "1M"), ("huge", "never")] {
//!     Flag::find(name).ok_or("no such flag")?.set(&mut policy, word)?;
//! }
//! let prepared = policy.prepare()?;
//! assert_eq!(prepared.policy.superslab_bytes, 1 << 20);
//! assert_eq!(Flag::find("huge").map(|flag| flag.show(&policy).to_string()).as_deref(), Some("never"));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Methods of `Allocator` by topic
//!
//! - Start: [`new`](Allocator::new), [`in_process`](Allocator::in_process) (`arena/os.rs`, `allocator.rs`)
//! - Open and close a thread's heap: [`open_heap`](Allocator::open_heap), [`open_heap_at`](Allocator::open_heap_at),
//!   [`close_heap`](Allocator::close_heap), [`close_heap_at`](Allocator::close_heap_at),
//!   [`is_open`](Allocator::is_open) (`heap/adopt.rs`)
//! - Allocate: [`allocate`](Allocator::allocate), [`take`](Allocator::take),
//!   [`expect_allocation`](Allocator::expect_allocation) (`heap/alloc.rs`)
//! - Free: [`free`](Allocator::free), [`free_fast`](Allocator::free_fast), [`finish_free`](Allocator::finish_free),
//!   [`finish_emptied`](Allocator::finish_emptied), [`free_slow`](Allocator::free_slow),
//!   [`free_suspect`](Allocator::free_suspect) (`heap/free.rs`)
//! - Resize: [`resize`](Allocator::resize), [`usable_bytes`](Allocator::usable_bytes) (`heap/realloc.rs`,
//!   `arena/large.rs`)
//! - Detect invalid frees: [`check_pointer`](Allocator::check_pointer), [`check_resized`](Allocator::check_resized)
//!   (`heap/invalid_free.rs`)
//! - Return memory now: [`purge_now`](Allocator::purge_now) (`arena/purge.rs`)
//! - Recover in a forked child: [`discard_pool_after_fork`](Allocator::discard_pool_after_fork),
//!   [`recover_heap`](Allocator::recover_heap), [`close_dead_heap`](Allocator::close_dead_heap) (`heap/fork.rs`)
//! - Obey `mlockall`: [`lock_memory`](Allocator::lock_memory) (`arena/locking.rs`)
//! - Statistics: [`add_heap_stats`](Allocator::add_heap_stats),
//!   [`add_abandoned_stats`](Allocator::add_abandoned_stats), [`pool_stats`](Allocator::pool_stats) (`stats.rs`)
//! - Check all invariants: [`validate`](Allocator::validate) (`validate.rs`)
//!
//! To read the code, start with [`memory`] (the backend trait), then [`meta`] (what is stored where). Then follow
//! [`allocate`](Allocator::allocate) from an empty bin down: `heap/alloc.rs`, `heap/slab.rs`, `heap/span.rs`,
//! `arena/pool.rs`, `arena/os.rs`; and [`free`](Allocator::free) up to `arena/purge.rs`.
#![no_std]

mod allocator;
mod arena;
pub mod geometry;
mod heap;
mod limits;
pub mod memory;
mod metadata;
pub mod path;
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
pub use path::Path;
pub use policy::process::{Checks, ProcessConfig};
pub use policy::split::{Paging, Placement};
pub use policy::{Policy, PolicyError, PreparedPolicy, flags, process, units, vocabulary};
pub use validate::Violation;
