//! The time that an allocator takes, predicted from what a simulation counts.
//!
//! This crate has the half of the model that has an exact oracle: the *instructions* of the preloadable allocator. A
//! simulation counts how often each path of the allocator's code runs ([`PathCounts`]), and [`PathCosts`] has the
//! instructions of each path in the compiled object. Their sum is what callgrind counts in the object, within 1 %.
//!
//! ```
//! use hksim_policy::{Path, Policy};
//! use hksim_sim::PathCounts;
//! use hksim_time_model::{PathCosts, instructions};
//!
//! let mut counts = PathCounts::default();
//! counts.add(Path::Malloc, 1000);
//! counts.add(Path::Ready, 1000);
//! let predicted = instructions(&counts, PathCosts::of(&Policy::DEFAULT));
//! assert!(predicted.total > 10_000.0 && predicted.total < 20_000.0, "{predicted:?}");
//! ```

mod costs;
mod instructions;
mod windows;

pub use costs::{CostsError, PathCosts, TABLE_COMPILER, Variant};
pub use hksim_sim::PathCounts;
pub use instructions::{Instructions, instructions, predict_instructions};
pub use windows::count_by_window;
