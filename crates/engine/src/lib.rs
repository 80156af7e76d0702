//! The trace executor: maps trace events to calls of the allocator. The simulator and the native replay use the same
//! driver.
//!
//! One OS thread drives one thread heap per trace thread, in trace order. A simulation and an ordered replay therefore
//! differ only in their [`World`](hksim_policy::World). Placements are bit-identical, and every difference in page
//! state comes from the kernel or its model.
//!
//! Both report the present pages as a [`PageSet`], so that a prediction and a measurement can be compared page by page:
//!
//! ```
//! use hksim_engine::{PageRun, PageSet, PageState};
//!
//! let pages = |pages| PageRun { first_page: 0, pages, state: PageState::Base };
//! let (predicted, measured): (PageSet, PageSet) = ([pages(8)].into_iter().collect(), [pages(6)].into_iter().collect());
//! let (missing, additional) = predicted.symmetric_difference(&measured);
//! assert_eq!((missing.pages_total(), additional.pages_total()), (2, 0));
//! ```

mod counts;
mod driver;
mod fork;
mod initial_touch;
mod live;
mod memory_policy;
mod objects;
mod pages;
mod points;
mod prefetch;
mod scattered;
mod tables;
mod touch;

pub use counts::{Fallbacks, OsCalls};
pub use driver::{DriveError, Driver};
pub use fork::{ForkSchedule, ForkStep, ForkWindow};
pub use hksim_linux_mm::{ByKind, Installs};
pub use initial_touch::{BlockAccess, touch_new_bytes};
pub use live::Live;
pub use memory_policy::MemoryPolicyRule;
pub use pages::{PageRun, PageSet, PageState};
pub use points::{PointFinder, even_points};
pub use prefetch::prefetch;
pub use tables::Tables;
pub use touch::TouchRule;
