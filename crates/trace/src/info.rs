//! Statistics of a trace in one pass, in O(peak live objects) memory.

mod sizes;

use crate::error::TraceError;
use crate::event::{AllocCall, Event, ObjectId, Op, ThreadId};
use crate::header::{Origin, Quality, Touch};
use crate::source::EventSource;
use serde::Serialize;
use sizes::Sizes;

pub use sizes::SizeQuantiles;

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
    /// Calls that returned no memory.
    pub failed: u64,
    /// `malloc_usable_size`.
    pub usable_size_calls: u64,
    /// Recorded accesses.
    pub touches: u64,
    /// Marks.
    pub marks: u64,
    /// Time of the last event in nanoseconds.
    pub duration_ns: u64,
    /// Whether the trace ends where its producer ended it.
    pub complete: bool,
    /// Where the trace comes from.
    pub origin: Origin,
    /// What is known about accesses.
    pub touch: Touch,
    /// What the producer had to leave out or repair.
    pub quality: Quality,
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

/// A live object's size and the thread whose call made it.
#[derive(Clone, Copy, Default)]
struct Live {
    size: u64,
    thread: ThreadId,
}

struct Tally {
    info: Info,
    sizes: Sizes,
    live: Vec<Live>,
    live_bytes: u64,
    live_objects: u64,
}

impl Tally {
    fn new(source: &dyn EventSource) -> Self {
        let summary = source.summary();
        let info = Info {
            schema: INFO_SCHEMA,
            events: 0,
            mallocs: 0,
            callocs: 0,
            reallocs: 0,
            aligned: 0,
            frees: 0,
            free_null: 0,
            threads: summary.threads,
            cross_thread_frees: 0,
            live_bytes_peak: 0,
            live_objects_peak: 0,
            live_objects_end: 0,
            unknown_frees: 0,
            sizes: SizeQuantiles::default(),
            failed: 0,
            usable_size_calls: 0,
            touches: 0,
            marks: 0,
            duration_ns: summary.duration_ns,
            complete: summary.complete,
            origin: source.header().origin.clone(),
            touch: source.header().touch,
            quality: source.footer().quality,
        };
        let live = vec![Live::default(); summary.objects_peak as usize];
        Tally { info, sizes: Sizes::default(), live, live_bytes: 0, live_objects: 0 }
    }

    fn add(&mut self, event: &Event) {
        self.info.events += 1;
        match event.op {
            Op::Alloc { object, size, call, .. } => {
                self.count_alloc(call);
                self.bear(object, size, event.thread);
            }
            Op::Free { object } => {
                self.info.frees += 1;
                self.bury(object, event.thread);
            }
            Op::Realloc { object, size, .. } => {
                self.info.reallocs += 1;
                self.resize(object, size);
            }
            Op::ReallocFree { object, .. } => {
                self.info.reallocs += 1;
                self.bury(object, event.thread);
            }
            Op::ReallocUnknown { object, size, .. } => {
                self.info.reallocs += 1;
                self.info.unknown_frees += 1;
                self.bear(object, size, event.thread);
            }
            Op::FreeNull => self.info.free_null += 1,
            Op::FreeUnknown => {
                self.info.frees += 1;
                self.info.unknown_frees += 1;
            }
            Op::AllocFailed { call, .. } => {
                self.count_alloc(call);
                self.info.failed += 1;
            }
            Op::ReallocFailed { .. } => {
                self.info.reallocs += 1;
                self.info.failed += 1;
            }
            Op::UsableSize { .. } => self.info.usable_size_calls += 1,
            Op::Touch { .. } => self.info.touches += 1,
            Op::Mark { .. } => self.info.marks += 1,
            Op::ThreadStart | Op::ThreadExit | Op::Fork { .. } | Op::Exec => (),
        }
    }

    fn count_alloc(&mut self, call: AllocCall) {
        let count = match call {
            AllocCall::Malloc => &mut self.info.mallocs,
            AllocCall::Calloc => &mut self.info.callocs,
            AllocCall::Realloc | AllocCall::Reallocarray => &mut self.info.reallocs,
            AllocCall::PosixMemalign
            | AllocCall::AlignedAlloc
            | AllocCall::Memalign
            | AllocCall::Valloc
            | AllocCall::Pvalloc => &mut self.info.aligned,
        };
        *count += 1;
    }

    // A source's ids are below its `objects_peak` and its blocks below 2^47 bytes each, so a sum over
    // fewer than 2^17 of the largest fits; saturation only keeps absurd sources from ending the program.

    fn bear(&mut self, object: ObjectId, size: u64, thread: ThreadId) {
        self.sizes.add(size);
        if let Some(live) = self.live.get_mut(object.0 as usize) {
            *live = Live { size, thread };
        }
        self.live_objects += 1;
        self.live_bytes = self.live_bytes.saturating_add(size);
        self.note_peaks();
    }

    fn resize(&mut self, object: ObjectId, size: u64) {
        self.sizes.add(size);
        if let Some(live) = self.live.get_mut(object.0 as usize) {
            self.live_bytes = self.live_bytes.saturating_sub(live.size).saturating_add(size);
            live.size = size;
        }
        self.note_peaks();
    }

    fn bury(&mut self, object: ObjectId, thread: ThreadId) {
        if let Some(live) = self.live.get(object.0 as usize) {
            self.live_bytes = self.live_bytes.saturating_sub(live.size);
            self.info.cross_thread_frees += (live.thread != thread) as u64;
        }
        self.live_objects -= 1;
    }

    fn note_peaks(&mut self) {
        self.info.live_bytes_peak = self.info.live_bytes_peak.max(self.live_bytes);
        self.info.live_objects_peak = self.info.live_objects_peak.max(self.live_objects);
    }

    fn finish(mut self) -> Info {
        self.info.live_objects_end = self.live_objects;
        self.info.sizes = self.sizes.quantiles();
        self.info
    }
}
