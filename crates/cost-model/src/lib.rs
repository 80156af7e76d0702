//! The cost of page operations: measured on this machine, stored as a profile, and turned into ranges of system time.
//!
//! - [`code_costs`]: the costs of an instruction and of a call of the allocator.
//! - [`kernel_work`]: what the kernel did in a run, as operations that have a price.
//! - [`measure`]: times each operation in many rounds; [`profile`]: the table of costs, as a TOML file.
//! - [`memory_costs`], [`line_price`]: the costs of accesses to memory, by how soon its cache lines are accessed again.
//! - [`price`]: turns counts into a range of seconds; [`system_time`]: that range beside a measurement.
//! - [`store`]: a profile for each [`machine`], kernel and build in the user's cache.
//!
//! ```no_run
//! use hksim_cost_model::price::Work;
//! use hksim_cost_model::profile::{Operation, Profile};
//!
//! // Written by `hksim calibrate -o machine.toml`.
//! let profile = Profile::read("machine.toml".as_ref())?;
//! let mut work = Work::default();
//! work.add(Operation::HugeFault, 1000);
//! let price = work.price(&profile)?;
//! println!("1000 huge pages: {:.1} to {:.1} ms", price.low_s * 1e3, price.high_s * 1e3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod code_costs;
pub mod kernel_work;
pub mod line_price;
pub mod machine;
pub mod measure;
pub mod median_range;
pub mod memory_costs;
pub mod price;
pub mod profile;
pub mod store;
pub mod system_time;

pub use code_costs::CodeCosts;
pub use kernel_work::{Caches, Calls, KernelPart, KernelWork};
pub use line_price::{LineAccesses, LinePart, LinePrice};
pub use machine::Machine;
pub use median_range::MedianRange;
pub use memory_costs::{CostCurve, MemoryCosts};
pub use price::{FirstTouch, Locality, Price, Work};
pub use profile::{Cost, CostError, Operation, Profile};
pub use store::{Store, Stored};
pub use system_time::{Measured, SystemTime};
