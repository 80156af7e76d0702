//! Which part of a replay takes the processor time: allocations, frees, touches, or the replay itself.
//!
//! Reading a clock at each call would take as long as the call. Instead, the replay notes in a variable what it does, and a
//! handler of regular signals reads the variable.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hksim_engine::Heaps;
use hksim_trace::event::{AllocCall, ReallocCall, ThreadId};
use serde::{Deserialize, Serialize};

use crate::cpu_time_signals::CpuTimeSignals;
use crate::error::ChildError;
use crate::malloc_heap::Malloc;
use crate::probe::Meter;

/// What the process does.
#[derive(Clone, Copy)]
enum Phase {
    /// It reads the trace.
    Outside,
    /// It dispatches events.
    Replay,
    /// It allocates or resizes.
    Allocate,
    /// It frees.
    Free,
    /// It touches blocks.
    Touch,
}

const PHASES: usize = Phase::Touch as usize + 1;

/// The current [`Phase`].
static PHASE: AtomicUsize = AtomicUsize::new(Phase::Outside as usize);
/// Signals during each phase.
static SIGNALS: [AtomicU64; PHASES] = [const { AtomicU64::new(0) }; PHASES];

impl Phase {
    #[inline]
    fn begin(self) {
        PHASE.store(self as usize, Ordering::Relaxed);
    }

    fn signals(self) -> u64 {
        SIGNALS[self as usize].load(Ordering::Relaxed)
    }
}

extern "C" fn count(_signal: libc::c_int) {
    SIGNALS[PHASE.load(Ordering::Relaxed)].fetch_add(1, Ordering::Relaxed);
}

/// Samples of a run, by what the process did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSamples {
    /// Samples in allocations and resizes.
    pub allocate: u64,
    /// Samples in frees.
    pub free: u64,
    /// Samples in touches of blocks.
    pub touch: u64,
    /// Samples in the replay itself.
    pub replay: u64,
    /// Allocations and resizes.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// All calls of the allocator, others included.
    pub calls: u64,
}

impl PhaseSamples {
    /// All samples.
    pub fn total(&self) -> u64 {
        self.allocate + self.free + self.touch + self.replay
    }

    /// Adds the samples of another run of the same trace.
    pub fn add(&mut self, other: PhaseSamples) {
        self.allocate += other.allocate;
        self.free += other.free;
        self.touch += other.touch;
        self.replay += other.replay;
        (self.allocations, self.frees, self.calls) = (other.allocations, other.frees, other.calls);
    }
}

/// Samples the phases while events are performed.
pub(crate) struct PhaseProbe(CpuTimeSignals);

impl PhaseProbe {
    pub(crate) fn open() -> Result<PhaseProbe, ChildError> {
        let why = ChildError::system("sample processor time (kernel.perf_event_paranoid)");
        Ok(PhaseProbe(CpuTimeSignals::open(count).map_err(why)?))
    }

    /// The samples of a run with this allocator and so many calls.
    pub(crate) fn finish(self, malloc: &PhasedMalloc, calls: u64) -> PhaseSamples {
        PhaseSamples {
            allocate: Phase::Allocate.signals(),
            free: Phase::Free.signals(),
            touch: Phase::Touch.signals(),
            replay: Phase::Replay.signals(),
            allocations: malloc.allocations.get(),
            frees: malloc.frees.get(),
            calls,
        }
    }
}

impl Meter for PhaseProbe {
    fn start(&mut self) {
        self.0.enable();
    }

    fn resume(&mut self) {
        Phase::Replay.begin();
    }

    fn pause(&mut self) {
        Phase::Outside.begin();
    }
}

/// The process's `malloc`, which notes the phase of each call.
#[derive(Debug, Default)]
pub(crate) struct PhasedMalloc {
    allocations: Cell<u64>,
    frees: Cell<u64>,
}

/// Performs a part of an event.
#[inline]
fn during<T>(phase: Phase, part: impl FnOnce() -> T) -> T {
    phase.begin();
    let result = part();
    Phase::Replay.begin();
    result
}

impl Heaps for PhasedMalloc {
    type Place = NonNull<u8>;
    type Heap = ();

    fn open_heap(&self, thread: ThreadId) -> Option<()> {
        Malloc.open_heap(thread)
    }

    fn close_heap(&self, (): ()) {}

    #[inline]
    fn allocate(&self, heap: &mut (), call: AllocCall, bytes: u64, align_log2: u8) -> Option<NonNull<u8>> {
        self.allocations.set(self.allocations.get() + 1);
        during(Phase::Allocate, || Malloc.allocate(heap, call, bytes, align_log2))
    }

    fn resize(&self, heap: &mut (), place: NonNull<u8>, bytes: u64, call: ReallocCall) -> Option<NonNull<u8>> {
        self.allocations.set(self.allocations.get() + 1);
        during(Phase::Allocate, || Malloc.resize(heap, place, bytes, call))
    }

    #[inline]
    fn free(&self, heap: &mut (), place: NonNull<u8>) {
        self.frees.set(self.frees.get() + 1);
        during(Phase::Free, || Malloc.free(heap, place));
    }

    fn free_by_resize(&self, heap: &mut (), place: NonNull<u8>, call: ReallocCall) {
        self.frees.set(self.frees.get() + 1);
        during(Phase::Free, || Malloc.free_by_resize(heap, place, call));
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
        Malloc.usable_bytes(place)
    }

    fn read(&self, place: NonNull<u8>, offset: u64, bytes: u64) {
        during(Phase::Touch, || Malloc.read(place, offset, bytes));
    }

    #[inline]
    fn write(&self, place: NonNull<u8>, offset: u64, bytes: u64) {
        during(Phase::Touch, || Malloc.write(place, offset, bytes));
    }
}
