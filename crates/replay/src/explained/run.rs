//! The child's part of an explained run: `malloc`, driven in trace order, with a recorder.

use std::path::Path;
use std::ptr::NonNull;

use hksim_engine::{Driver, Heaps, Live, TouchRule};
use hksim_linux_probe::trap_samples::TrapSamples;
use hksim_linux_probe::traps::Mode;
use hksim_policy::PAGE_BYTES;
use hksim_trace::event::{AllocCall, Event, ReallocCall, ThreadId};
use serde::{Deserialize, Serialize};

use super::record::Moment;
use super::recorder::{self, Recorder, thread_faults};
use crate::error::ChildError;
use crate::malloc_heap::Malloc;
use crate::ordered::{step, tables};
use crate::prefault::{MeasuredHeap, prefault};
use crate::process::ProcessMemory;
use crate::protocol::{Channel, Report};
use crate::result::{Skipped, StartMemory};
use crate::spec::HugePages;
use crate::usage::Usage;
use crate::window::{PreparedTrace, WindowDriver, WindowObserver, drive};

/// The totals of an explained run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedTotals {
    /// Faults that the kernel charged to the thread that performs the trace (`ru_minflt`).
    pub faults: u64,
    /// Faults of threads that the library started itself.
    pub faults_of_other_threads: u64,
    /// Traps of the thread that performs the trace.
    pub traps: u64,
    /// Traps that were not recorded, because the kernel's buffer was full.
    pub traps_lost: u64,
    /// Events performed.
    pub events: u64,
    /// Requests that the allocator refused.
    pub requests_failed: u64,
    /// Peak of the requested bytes of live objects.
    pub live_bytes_peak: u64,
    /// Peak of those of their bytes that were touched.
    pub live_touched_bytes_peak: u64,
    /// What the allocator took before the first event.
    pub startup: StartMemory,
    /// Peak RSS: the growth since the first event, and `startup`.
    pub rss_bytes_peak: u64,
    /// RSS at the end, likewise.
    pub rss_bytes_end: u64,
    /// What could not be recorded.
    pub skipped: Vec<Skipped>,
}

impl ExplainedTotals {
    /// The totals of a child, with the memory that its allocator took before the first event more than the C library's.
    pub(crate) fn with_startup_beyond(self, control: StartMemory) -> ExplainedTotals {
        let startup = self.startup.beyond(control);
        ExplainedTotals {
            startup,
            rss_bytes_peak: self.rss_bytes_peak + startup.bytes,
            rss_bytes_end: self.rss_bytes_end + startup.bytes,
            ..self
        }
    }
}

/// An explained run of the process's `malloc`.
pub(crate) struct ExplainedRun<'a> {
    /// The preloaded library.
    pub(crate) library: Option<&'a Path>,
    /// The touch rule.
    pub(crate) touch: TouchRule,
    /// The huge pages.
    pub(crate) huge: HugePages,
}

impl ExplainedRun<'_> {
    /// Does all that an explained run does before the first event.
    fn ready(&self, trace: &PreparedTrace, channel: &Channel) -> Result<Ready, ChildError> {
        if self.huge == HugePages::Disabled {
            // SAFETY: numbers only.
            let refused = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } != 0;
            if refused {
                return Err(ChildError::system("switch huge pages off")(std::io::Error::last_os_error()));
            }
        }
        let out = channel.duplicate().map_err(ChildError::system("duplicate the channel"))?;
        let samples = TrapSamples::open().map_err(ChildError::NoTraps)?;
        let failed = ChildError::system("record page faults");
        let recorder = Recorder::open(out, self.huge, samples).map_err(failed)?;
        let malloc = RecordedMalloc { recorder, pages_max: recorder.capacity().max(1) };
        let heap = Driver::with_tables(malloc, tables(trace), self.touch).counting_scattered();
        let mut memory = ProcessMemory::open(None).map_err(ChildError::system("read /proc/self"))?;
        ProcessMemory::reset_peak();
        prefault(MeasuredHeap::Process { library: self.library });
        memory.begin();
        Ok(Ready { recorder, heap, memory })
    }

    /// The start of the run.
    pub(crate) fn start(&self, trace: &PreparedTrace, channel: &Channel) -> Result<Report, ChildError> {
        let memory = self.ready(trace, channel)?.memory;
        Ok(Report::ExplainedStart(memory.start().unwrap_or_default()))
    }

    /// The run.
    pub(crate) fn perform(&self, trace: &mut PreparedTrace, channel: &Channel) -> Result<Report, ChildError> {
        let Ready { recorder, heap, mut memory } = self.ready(trace, channel)?;
        recorder.begin().map_err(ChildError::system("intercept the system calls of the allocator"))?;
        let (before, thread_before) = (Usage::now().faults, thread_faults());
        let mut driver = Explained { heap };
        let driven = drive(trace, &mut driver)?;
        let (faults, all) = (thread_faults() - thread_before, Usage::now().faults - before);
        let ended = recorder.end().map_err(ChildError::system("send the record of page faults"))?;
        memory.end();
        let Live { bytes_peak, touched_bytes_peak, .. } = driver.heap.live();
        let (rss_bytes_peak, rss_bytes_end) = memory.rss_bytes();
        let mut skipped: Vec<Skipped> = trace.left_out_of_malloc().into_iter().collect();
        if ended.mode == Mode::User {
            let reason = "page faults inside system calls are not seen (kernel.perf_event_paranoid must be 1 or less)";
            skipped.push(Skipped::new("faults in system calls", reason));
        }
        if !ended.knows_sizes {
            skipped.push(Skipped::new("by.page_size", "page tables cannot be scanned (PAGEMAP_SCAN needs Linux 6.7)"));
        }
        Ok(Report::Explained(Box::new(ExplainedTotals {
            faults,
            faults_of_other_threads: all.saturating_sub(faults),
            traps: ended.traps,
            traps_lost: ended.traps_lost,
            events: driven.events,
            requests_failed: driver.heap.failed(),
            live_bytes_peak: bytes_peak,
            live_touched_bytes_peak: touched_bytes_peak,
            startup: memory.start().unwrap_or_default(),
            rss_bytes_peak,
            rss_bytes_end,
            skipped,
        })))
    }
}

/// A run before its first event.
struct Ready {
    recorder: Recorder,
    heap: Driver<RecordedMalloc>,
    memory: ProcessMemory,
}

struct Explained {
    heap: Driver<RecordedMalloc>,
}

impl WindowDriver for Explained {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        self.heap.allocator().recorder.drain();
        recorder::begin_event(number);
        step(&mut self.heap, event, number)
    }

    fn stop(&mut self, _events: u64) -> Result<(), ChildError> {
        Ok(())
    }
}

/// The process's `malloc`, with a record of what each part of an event causes.
struct RecordedMalloc {
    recorder: Recorder,
    /// Pages whose traps can be recorded at once.
    pages_max: u64,
}

impl RecordedMalloc {
    /// Performs a part of an event.
    #[inline]
    fn during<T>(&self, moment: Moment, part: impl FnOnce() -> T) -> T {
        recorder::begin(moment);
        let result = part();
        self.recorder.drain();
        recorder::begin(Moment::Replay);
        result
    }

    fn placing(&self, part: impl FnOnce() -> Option<NonNull<u8>>) -> Option<NonNull<u8>> {
        let place = self.during(Moment::Call, part);
        self.recorder.placed(place.map_or(0, |place| Malloc.address(place)));
        place
    }

    /// Accesses bytes of a block in pieces that fault at most as often as can be recorded.
    #[inline]
    fn in_pieces(&self, offset: u64, bytes: u64, access: impl Fn(u64, u64)) {
        let most = (self.pages_max * PAGE_BYTES / 2).max(PAGE_BYTES);
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let piece = most.min(end - at);
            self.during(Moment::Touch, || access(at, piece));
            at += piece;
        }
    }
}

impl Heaps for RecordedMalloc {
    type Place = NonNull<u8>;
    type Heap = ();

    fn open_heap(&self, thread: ThreadId) -> Option<()> {
        Malloc.open_heap(thread)
    }

    fn close_heap(&self, (): ()) {}

    #[inline]
    fn allocate(&self, heap: &mut (), call: AllocCall, bytes: u64, align_log2: u8) -> Option<NonNull<u8>> {
        self.placing(|| Malloc.allocate(heap, call, bytes, align_log2))
    }

    fn resize(&self, heap: &mut (), place: NonNull<u8>, bytes: u64, call: ReallocCall) -> Option<NonNull<u8>> {
        self.placing(|| Malloc.resize(heap, place, bytes, call))
    }

    #[inline]
    fn free(&self, heap: &mut (), place: NonNull<u8>) {
        self.during(Moment::Call, || Malloc.free(heap, place));
    }

    fn free_by_resize(&self, heap: &mut (), place: NonNull<u8>, call: ReallocCall) {
        self.during(Moment::Call, || Malloc.free_by_resize(heap, place, call));
    }

    #[inline]
    fn address(&self, place: NonNull<u8>) -> u64 {
        Malloc.address(place)
    }

    #[inline]
    fn identity(&self, place: NonNull<u8>) -> u64 {
        Malloc.identity(place)
    }

    fn usable_bytes(&self, place: NonNull<u8>) -> u64 {
        self.during(Moment::Call, || Malloc.usable_bytes(place))
    }

    fn read(&self, place: NonNull<u8>, offset: u64, bytes: u64) {
        self.in_pieces(offset, bytes, |offset, bytes| Malloc.read(place, offset, bytes));
    }

    #[inline]
    fn write(&self, place: NonNull<u8>, offset: u64, bytes: u64) {
        self.in_pieces(offset, bytes, |offset, bytes| Malloc.write(place, offset, bytes));
    }
}
