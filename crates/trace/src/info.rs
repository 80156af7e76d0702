//! Statistics of a trace, computed in one pass and O(peak live objects) memory.

mod builder;
mod lifetimes;
mod log_histogram;
mod over_time;
mod sites;
mod sizes;
mod threads;

use crate::error::TraceError;
use crate::header::{Clock, Origin, Quality, TouchSource};
use crate::memory_policy::MemoryPolicy;
use crate::result_names::QualityNames;
use crate::source::EventSource;
use builder::InfoBuilder;
use serde::Serialize;
use std::collections::BTreeMap;

pub use lifetimes::Lifetimes;
pub use log_histogram::LogQuantiles;
pub use sites::{SiteOrder, SiteUse};
pub use sizes::{SizeBin, SizeCount, SizeQuantiles};
pub use threads::{CrossThreadPair, ThreadUse};

/// Statistics of a trace. Calls are counted by function: a realloc that frees or allocates is a realloc,
/// and failed calls count. Bytes are requested bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// All events.
    pub events: u64,
    /// `malloc` and `operator new`.
    pub mallocs: u64,
    /// `calloc`.
    pub callocs: u64,
    /// `realloc` and `reallocarray`, including those of NULL, to size 0, and of unknown pointers.
    pub reallocs: u64,
    /// `posix_memalign`, `aligned_alloc`, `memalign`, `valloc`, `pvalloc`.
    pub aligned_allocs: u64,
    /// `free`, including unknown pointers, excluding NULL.
    pub frees: u64,
    /// `free(NULL)`.
    pub frees_null: u64,
    /// Threads.
    pub threads: u32,
    /// Frees, including those by realloc, by a thread that did not allocate the block.
    pub cross_thread_frees: u64,
    /// Peak live bytes.
    pub live_bytes_peak: u64,
    /// Peak number of live objects.
    pub live_objects_peak: u64,
    /// Objects never freed.
    pub live_objects_end: u64,
    /// Frees and reallocs of pointers whose allocation is not in the trace.
    pub unknown_frees: u64,
    /// Requested bytes of the calls that returned memory.
    pub size_bytes: SizeQuantiles,
    /// The sizes of the same calls, by powers of two.
    pub size_histogram: Vec<SizeBin>,
    /// The most frequent sizes, at most 10.
    pub top_sizes: Vec<SizeCount>,
    /// Lifetimes of objects.
    pub lifetimes: Lifetimes,
    /// Resizes of live objects.
    pub realloc_outcomes: ReallocOutcomes,
    /// Calls by requested alignment in bytes, if they request one.
    pub alignments: BTreeMap<u64, u64>,
    /// Bytes requested from `calloc`.
    pub calloc_bytes: u64,
    /// Bytes requested by all calls that returned memory; for a resize, the bytes added.
    pub allocated_bytes: u64,
    /// The 16 threads with the most allocations.
    pub by_thread: Vec<ThreadUse>,
    /// The 16 pairs of threads with the most blocks allocated by one and freed by the other.
    pub cross_thread_pairs: Vec<CrossThreadPair>,
    /// Live bytes and objects at evenly spaced events, the last at the end.
    pub timeline: Vec<LivePoint>,
    /// Live bytes over time: the first, lowest, highest and last points of 256 equal time spans. For plots; not part of
    /// the JSON.
    #[serde(skip)]
    pub over_time: Vec<LivePoint>,
    /// Calls that returned no memory.
    pub requests_failed: u64,
    /// `malloc_usable_size`.
    pub usable_size_calls: u64,
    /// Recorded accesses.
    pub touch_events: u64,
    /// Marks.
    pub marks: u64,
    /// Children that the program forked.
    pub forks: u64,
    /// Children whose end of memory sharing is in the trace.
    pub forks_ended: u64,
    /// Children that still share the program's memory at the end of the trace. Children counted neither here nor in
    /// `forks_ended` have an unknown end.
    pub forks_outliving: u64,
    /// The first [`PolicyChange::KEPT_MAX`] changes of kernel settings for all of the program's memory, in order.
    pub memory_policies: Vec<PolicyChange>,
    /// Total number of such changes.
    pub memory_policy_changes: u64,
    /// Time of the last event in nanoseconds.
    pub duration_ns: u64,
    /// Whether the trace is not truncated, and the recorder lost no events.
    pub complete: bool,
    /// Where the trace comes from.
    pub origin: Origin,
    /// What is known about the program's accesses to its blocks.
    pub touch_source: TouchSource,
    /// Whether times were measured.
    pub clock: Clock,
    /// What the producer left out, guessed or repaired.
    #[serde(serialize_with = "QualityNames::serialize")]
    pub quality: Quality,
}

/// Successful resizes of live objects. Whether a block moved depends on the allocator and is not in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReallocOutcomes {
    /// Resizes to more bytes.
    pub grown: u64,
    /// Resizes to fewer bytes.
    pub shrunk: u64,
    /// Resizes to the same size.
    pub unchanged: u64,
    /// Bytes copied if every resize moves its block: the sum of the smaller of the old and the new size.
    pub copied_bytes_max: u64,
    /// Maximum number of resizes of one object.
    pub per_object_max: u32,
}

/// One change of a memory policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyChange {
    /// Number of the event, from 0.
    pub event: u64,
    /// Its time in nanoseconds.
    pub time_ns: u64,
    /// The new setting.
    pub policy: MemoryPolicy,
    /// Whether the setting was already in force at the start.
    pub inherited: bool,
}

impl PolicyChange {
    /// Maximum number of changes that [`Info`] keeps.
    pub const KEPT_MAX: usize = 64;
}

/// Live memory after one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LivePoint {
    /// Number of events up to this point.
    pub event: u64,
    /// Time of the last of these events, in nanoseconds.
    pub time_ns: u64,
    /// Live requested bytes.
    pub live_bytes: u64,
    /// Live objects.
    pub live_objects: u64,
}

impl Info {
    /// Rewinds `source` and reads all its events.
    ///
    /// # Errors
    /// The errors of the source.
    pub fn of(source: &mut dyn EventSource) -> Result<Self, TraceError> {
        source.rewind()?;
        let mut builder = InfoBuilder::new(source);
        while let Some(batch) = source.next_batch()? {
            for event in batch {
                builder.add(event);
            }
        }
        Ok(builder.finish())
    }
}
