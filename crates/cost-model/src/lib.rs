//! The cost of page operations: measured on this machine, stored as a profile, and turned into ranges of system time.
//!
//! - [`kernel_work`]: what the kernel did in a run, as operations that have a price.
//! - [`measure`]: times each operation in many rounds; [`profile`]: the table of costs, as a TOML file.
//! - [`price`]: turns counts into a range of seconds; [`system_time`]: that range beside a measurement.

pub mod kernel_work;
pub mod measure;
pub mod price;
pub mod profile;
pub mod system_time;

pub use kernel_work::{Calls, KernelWork};
pub use price::{FirstTouch, Locality, Price, Work};
pub use profile::{Cost, CostError, Operation, Profile};
pub use system_time::{Measured, SystemTime};
