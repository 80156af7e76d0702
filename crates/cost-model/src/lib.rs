//! What page operations cost: measured on this machine, kept as a profile, and made into ranges of system time.
//!
//! - [`measure`]: times each operation many times over; [`profile`]: the table, as a TOML file;
//! - [`price`]: counts into a range of seconds.

pub mod measure;
pub mod price;
pub mod profile;

pub use price::{FirstTouch, Locality, Price, Work};
pub use profile::{Cost, CostError, Operation, Profile};
