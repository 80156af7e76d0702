//! What an event means to the allocator: the ordered driver, one for the simulated and the native world.
//!
//! One OS thread drives as many thread heaps as the trace has threads, in trace order. So a simulation and an ordered
//! replay differ in their [`World`](hksim_policy::World) only: placement is equal bit for bit, and every difference in page state has its
//! cause in the kernel or in its model.

mod counts;
mod driver;
mod fork;
mod live;
mod memory_policy;
mod pages;
mod points;
mod scattered;
mod tables;
mod touch;

pub use counts::{ByKind, Fallbacks, OsCalls};
pub use driver::{DriveError, Driver};
pub use fork::{ForkSchedule, ForkStep, ForkWindow};
pub use live::Live;
pub use memory_policy::MemoryPolicyRule;
pub use pages::{PageRun, PageSet, PageState};
pub use points::{PointFinder, even_points};
pub use tables::Tables;
pub use touch::TouchRule;
