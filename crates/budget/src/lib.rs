//! Limits on the memory that designs, allocators and recorded programs need, for continuous integration: which are
//! broken, what changed since a stored result, and which functions request more.
//!
//! - [`budget`]: the file; [`limit`], [`metric`]: what it limits; [`setting`]: settings of the kernel as words.
//! - [`run`]: finds the figures: policies and other designs are simulated, traces are replayed on real allocators, and
//!   memory recordings are simulated under settings of the kernel.
//! - [`row`]: the figures, and the stored result; [`checked`]: what came of the limits; [`consumers`], [`growth`]: which
//!   functions use the memory, and which of them grew; [`library`]: the same of functions of an allocator's library.
//! - [`sentences`]: as text; [`annotations`]: as annotations of changed lines.
//!
//! ```
//! use hksim_budget::budget::Budget;
//!
//! let text = "result = \"budget.json\"\ntraces = [\"app.hkt\"]\n[design.shipped]\non = \"glibc\"\nrss_bytes_end = \"+64K\"\n";
//! let budget = Budget::parse(text)?;
//! let limits = budget.design["shipped"].limits("shipped")?;
//! assert_eq!(limits[0].most(Some(4096.0)), Some(69632.0));
//! # Ok::<(), hksim_budget::error::BudgetError>(())
//! ```

pub mod annotations;
pub mod budget;
pub mod checked;
mod checksum;
pub mod consumers;
pub mod error;
pub mod growth;
pub mod library;
pub mod limit;
pub mod metric;
mod recorded;
mod replayed;
pub mod row;
pub mod run;
pub mod sentences;
pub mod setting;
mod simulated;
mod timed;
