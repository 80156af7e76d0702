//! What memory a running process has, which of it is in huge pages, and why the rest is not. The process is only read: it
//! is not stopped, and nothing of it or of the machine is changed.
//!
//! - [`inspect`] reads everything, [`inspect_twice`] with a time between; [`Inspection`] is what it found.
//! - [`region`]: mappings that belong together; `naming`: which do.
//! - [`range`]: what each aligned 2 MiB range holds; [`verdict`]: whether it can be a huge page, and why not.
//! - [`remedy`]: what a change of advice or of a mode would give.
//! - [`machine`]: modes, counters and khugepaged; [`cgroup`]: limits of memory.
//!
//! ```no_run
//! let inspection = hksim_inspect::inspect(1234)?;
//! for remedy in &inspection.remedies {
//!     println!("{} ({} bytes)", remedy.sentence, remedy.bytes);
//! }
//! # Ok::<(), hksim_inspect::InspectError>(())
//! ```

pub mod cgroup;
mod error;
mod inspection;
pub mod machine;
mod naming;
mod process;
pub mod range;
pub mod region;
pub mod remedy;
pub mod verdict;

pub use error::InspectError;
pub use inspection::{Inspection, MapRun, Thread, TwoLooks, WayCount, inspect, inspect_twice};
