//! The time that an allocator takes, predicted from what a simulation counts.
//!
//! [`Time`] is the sum of three parts: the allocator's *instructions*, accesses to *memory*, and the *kernel*. A
//! simulation counts all three in one pass ([`Counted::Time`](hksim_sim::Counted::Time)); a profile of a machine prices
//! them.
//!
//! The instructions have an exact oracle. A simulation counts how often each path of the allocator's code runs
//! ([`PathCounts`]), and [`PathCosts`] has the instructions of each path in the compiled object. Their sum is what
//! callgrind counts in the object, within 1 %. What an instruction takes, and a call besides, depends on the processor, and a
//! profile has both ([`CodeCosts`](hksim_cost_model::CodeCosts)); one without them gets [`CYCLES_PER_INSTRUCTION`] and
//! [`CYCLES_PER_CALL`]. Accesses to cache lines ([`line_accesses`]) and the kernel's work have measured costs.
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

mod calibrated;
mod code;
mod costs;
mod instructions;
mod memory;
mod terms;
mod time;
mod windows;

pub use calibrated::not_calibrated;
pub use code::{CYCLES_PER_CALL, CYCLES_PER_INSTRUCTION};
pub use costs::{CostsError, PathCosts, TABLE_COMPILER, Variant};
pub use hksim_sim::PathCounts;
pub use instructions::{Instructions, instructions, predict_instructions};
pub use memory::line_accesses;
pub use terms::{Term, TimePart, kernel_terms, user_terms};
pub use time::{ERROR_SHARE, NoTime, ORDER_ERROR_SHARE, Parts, Time};
pub use windows::count_by_window;
