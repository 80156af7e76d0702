//! Statistics of a trace in one pass, in O(peak live objects) memory.

mod lifetimes;
mod log_histogram;
mod over_time;
mod sites;
mod sizes;
mod tally;
mod threads;

use crate::error::TraceError;
use crate::header::{Clock, Origin, Quality, TouchKnowledge};
use crate::memory_policy::MemoryPolicy;
use crate::source::EventSource;
use serde::Serialize;
use std::collections::BTreeMap;
use tally::Tally;

pub use lifetimes::Lifetimes;
pub use log_histogram::LogQuantiles;
pub use sites::{SiteOrder, SiteUse};
pub use sizes::{SizeBin, SizeCount, SizeQuantiles};
pub use threads::{Crossing, ThreadUse};

/// Version of [`Info`]'s JSON; raised when a field changes its meaning or goes.
pub const INFO_SCHEMA: u32 = 1;

/// What a trace holds. Calls are counted as they were made: a realloc that frees or allocates is a realloc,
/// a call that failed is a call. Bytes are requested bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// [`INFO_SCHEMA`].
    pub schema: u32,
    /// All events.
    pub events: u64,
    /// `malloc` and `operator new`.
    pub mallocs: u64,
    /// `calloc`.
    pub callocs: u64,
    /// `realloc` and `reallocarray`, also of NULL, to 0, and of unknown pointers.
    pub reallocs: u64,
    /// `posix_memalign`, `aligned_alloc`, `memalign`, `valloc`, `pvalloc`.
    pub aligned: u64,
    /// `free`, also of unknown pointers, but not of NULL.
    pub frees: u64,
    /// `free(NULL)`.
    pub free_null: u64,
    /// Threads.
    pub threads: u32,
    /// Frees and freeing reallocs by another thread than the one whose call made the block.
    pub cross_thread_frees: u64,
    /// Most bytes live at once.
    pub live_bytes_peak: u64,
    /// Most objects live at once.
    pub live_objects_peak: u64,
    /// Objects never freed.
    pub live_objects_end: u64,
    /// Frees and reallocs of pointers never seen allocated.
    pub unknown_frees: u64,
    /// Requested bytes of the calls that returned memory.
    pub sizes: SizeQuantiles,
    /// The same calls by powers of two.
    pub size_histogram: Vec<SizeBin>,
    /// The sizes asked for most often, at most 10.
    pub sizes_top: Vec<SizeCount>,
    /// How long objects lived.
    pub lifetimes: Lifetimes,
    /// Resizes of live objects.
    pub resizes: Resizes,
    /// Calls by requested alignment in bytes, where one was asked for.
    pub alignments: BTreeMap<u64, u64>,
    /// Bytes asked for as zeros (`calloc`).
    pub zeroed_bytes: u64,
    /// Bytes asked for by all calls that returned memory; of a resize, what it added.
    pub allocated_bytes: u64,
    /// The 16 threads with most allocations.
    pub by_thread: Vec<ThreadUse>,
    /// The 16 pairs of threads with most blocks allocated by one and freed by the other.
    pub crossings: Vec<Crossing>,
    /// Live bytes and objects at evenly spaced events, the last at the end.
    pub timeline: Vec<LivePoint>,
    /// The same over time: of 256 equal spans the first, lowest, highest and last values. For pictures; not part of the JSON.
    #[serde(skip)]
    pub over_time: Vec<LivePoint>,
    /// Calls that returned no memory.
    pub failed: u64,
    /// `malloc_usable_size`.
    pub usable_size_calls: u64,
    /// Recorded accesses.
    pub touches: u64,
    /// Marks.
    pub marks: u64,
    /// Children that the program forked.
    pub forks: u64,
    /// Those of which the trace says when they stopped sharing the program's memory.
    pub forks_ended: u64,
    /// Those that share it where the trace ends. Of the others the end is not known.
    pub forks_outliving: u64,
    /// What the program asked of the kernel for all of its memory, in order: the first [`PolicyChange::KEPT_MAX`] of
    /// these events.
    pub memory_policies: Vec<PolicyChange>,
    /// All of them.
    pub memory_policy_changes: u64,
    /// Time of the last event in nanoseconds.
    pub duration_ns: u64,
    /// Whether the trace ends where its producer ended it.
    pub complete: bool,
    /// Where the trace comes from.
    pub origin: Origin,
    /// What is known about accesses.
    pub touch: TouchKnowledge,
    /// Whether times were measured.
    pub clock: Clock,
    /// What the producer had to leave out or repair.
    pub quality: Quality,
}

/// Resizes of live objects that succeeded. Whether a block moved is the allocator's doing and not in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resizes {
    /// To more bytes.
    pub grown: u64,
    /// To fewer bytes.
    pub shrunk: u64,
    /// To the same size.
    pub unchanged: u64,
    /// Bytes that would be copied if every block moved: the smaller of both sizes.
    pub copied_bytes_max: u64,
    /// Most resizes of one object.
    pub of_one_object_max: u32,
}

/// One change of a memory policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyChange {
    /// Running number of the event, from 0.
    pub event: u64,
    /// Its time in nanoseconds.
    pub time_ns: u64,
    /// What was changed.
    pub policy: MemoryPolicy,
    /// It was in force from the start.
    pub inherited: bool,
}

impl PolicyChange {
    /// Changes that [`Info`] keeps.
    pub const KEPT_MAX: usize = 64;
}

/// The heap at one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LivePoint {
    /// Events done.
    pub event: u64,
    /// Time of the last of them, in nanoseconds.
    pub time_ns: u64,
    /// Requested bytes live.
    pub live_bytes: u64,
    /// Objects live.
    pub live_objects: u64,
}

impl Info {
    /// Reads all events of `source`, which is rewound before.
    ///
    /// # Errors
    /// Those of the source.
    pub fn of(source: &mut dyn EventSource) -> Result<Self, TraceError> {
        source.rewind()?;
        let mut tally = Tally::new(source);
        while let Some(batch) = source.next_batch()? {
            for event in batch {
                tally.add(event);
            }
        }
        Ok(tally.finish())
    }
}
