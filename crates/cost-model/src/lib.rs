//! The cost of page operations: measured on this machine, stored as a profile, and turned into ranges of system time.
//!
//! - [`measure`]: times each operation in many rounds; [`profile`]: the table of costs, as a TOML file.
//! - [`price`]: turns counts into a range of seconds.

pub mod measure;
pub mod price;
pub mod profile;

pub use price::{FirstTouch, Locality, Price, Work};
pub use profile::{Cost, CostError, Operation, Profile};
