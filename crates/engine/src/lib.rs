//! The trace executor: maps trace events to calls of an allocator. Simulation and replay use the same one.
//!
//! One OS thread drives one thread heap per trace thread, in trace order. A simulation and an ordered replay therefore
//! differ only in the allocator's memory. Placements are bit-identical, and every difference in page state comes from the
//! kernel or its model.
//!
//! There are two ways to an allocator. The SuperSlab allocator (`hksim-policy`) is generic over its own fast memory
//! interface, [`World`](hksim_policy::World). Every other allocator implements [`Design`] over [`AddressSpace`], an
//! interface of ten methods. [`Heaps`] is what the executor needs of both, and of any `malloc`.
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
mod design;
mod driver;
mod figures;
mod fork;
mod heaps;
mod initial_touch;
mod live;
mod memory_policy;
mod object;
mod objects;
mod pages;
mod points;
mod prefetch;
mod region;
mod scattered;
mod space;
mod tables;
mod touch;

pub use counts::{Fallbacks, OsCalls};
pub use design::{Design, DesignLabel, OnSpace, SetClock};
pub use driver::{DriveError, Driver};
pub use figures::{Comparison, Difference, Figures, PagesAt};
pub use fork::{ForkSchedule, ForkStep, ForkWindow};
pub use heaps::Heaps;
pub use hksim_linux_mm::{ByKind, Installs};
pub use hksim_policy::{Errno, PAGE_BYTES, Request};
pub use initial_touch::{BlockAccess, touch_new_bytes};
pub use live::Live;
pub use memory_policy::MemoryPolicyRule;
pub use object::{Counts, Object, Refused, perform};
pub use pages::{PageRun, PageSet, PageState};
pub use points::{PointFinder, even_points};
pub use prefetch::prefetch;
pub use region::{INVALID, NO_MEMORY, Region};
pub use space::{AddressSpace, Advice, Cause, Growth, Mapping, Touch};
pub use tables::Tables;
pub use touch::TouchRule;
