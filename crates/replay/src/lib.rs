//! Replays a trace on a real allocator, and measures it page by page.
//!
//! [`replay`] performs a [`ReplaySpec`] in fresh child processes: one without a heap (the control run), one that is
//! measured, and one that is only timed. [`TimedReplay`] times replays again and again. All memory other than the heap is made resident beforehand, so the control run
//! must show no faults.
//!
//! The kinds of installs are derived only from what the kernel reports: page-table scans before and after each system
//! call, and the page-fault exceptions between the scans. This crate contains no model of the kernel.

mod calls;
mod child;
mod classify;
mod coarse;
pub mod compare;
mod cpu_time_signals;
mod design;
mod environment;
mod error;
pub mod explained;
mod extents;
mod folios;
mod fork;
mod fork_frames;
mod frame_index;
mod harness_memory;
pub mod library;
mod limited;
mod malloc;
mod malloc_heap;
mod measured;
mod memory_policy;
mod mmap_space;
mod native;
mod null;
mod observed_child;
mod observed_os;
mod observer;
mod ordered;
mod page_snapshot;
mod parent;
mod pause;
mod phases;
mod pieces;
mod prefault;
mod probe;
mod process;
mod protocol;
mod replayable;
mod result;
mod spec;
mod split_folios;
mod system;
mod threaded;
mod timed_replay;
mod tlb;
mod unobserved;
mod usage;
mod window;

pub use child::{child_main, child_main_with};
pub use classify::Unclassified;
pub use design::KnownDesign;
pub use environment::Environment;
pub use error::ReplayError;
pub use harness_memory::HarnessMemory;
pub use hksim_engine::Installs;
pub use limited::{LimitedReplay, replay_limited};
pub use observed_child::ObservedChild;
pub use parent::{CHILD_ARGUMENT, replay};
pub use phases::PhaseSamples;
pub use pieces::{Piece, PieceReplay};
pub use result::{Control, Mark, Replayed, Skipped, StartMemory};
pub use spec::{HugePages, Measure, Mode, ReplaySpec, SmallMemory, Target, WarmUp};
pub use system::{SystemEffort, SystemRun, SystemRuns, system_time};
pub use timed_replay::{Apart, TimedReplay, Times, TimesAlone, mode_samples, phase_samples, times_alone};
pub use tlb::DtlbEvents;
pub use window::{Moment, Moments};
