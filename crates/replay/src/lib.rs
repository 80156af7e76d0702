//! Replaying a trace on a real allocator, and measuring it page by page.
//!
//! [`replay`] performs a [`ReplaySpec`] in fresh child processes: one without a heap (the control), one that is measured,
//! one that is only timed. What a run costs beside its heap is made resident beforehand, so the control must show no fault.
//!
//! Measured kinds of installs come from the kernel alone: from page-table scans before and after each system call, and
//! from the stream of page-fault exceptions between them. No model of the kernel is used here.

mod apply;
mod calls;
mod child;
mod classify;
mod coarse;
mod environment;
mod error;
mod extents;
mod folios;
mod fork;
mod frame_index;
mod harness_memory;
mod malloc;
mod malloc_heap;
mod native;
mod null;
mod observer;
mod parent;
mod pause;
mod policy;
mod process;
mod protocol;
mod result;
mod settle;
mod shadow;
mod shared;
mod spec;
mod system;
mod threaded;
mod torn;
mod usage;
mod watched;
mod window;

pub use child::child_main;
pub use classify::Unclassified;
pub use environment::Environment;
pub use error::ReplayError;
pub use harness_memory::HarnessMemory;
pub use parent::{CHILD_ARGUMENT, replay};
pub use result::{Control, Installs, Mark, Replayed, Skipped};
pub use spec::{Measure, Mode, ReplaySpec, SmallMemory, Target, WarmUp};
pub use system::{SystemEffort, SystemRun, SystemRuns, system_time};
