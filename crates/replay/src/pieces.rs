//! Short pieces of a replay, each timed between two looks at the processor's core.
//!
//! A piece is a batch of events, some 6 us. Other work on the core comes and goes within milliseconds, with pauses of 30 to 100
//! us, so there are undisturbed pieces where no run is undisturbed. A piece waits for a pause of that work.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hksim_engine::{Driver, Heaps};
use hksim_linux_probe::core_sharing::CoreWatch;
use hksim_timing::{Sample, Subject};
use hksim_trace::event::Event;
use hksim_trace::source::{BATCH_EVENTS_MAX, EventSource};
use serde::{Deserialize, Serialize};

use crate::error::{ChildError, ReplayError};
use crate::ordered::step;
use crate::parent::{checked, perform, unexpected};
use crate::protocol::Report;
use crate::spec::{Job, ReplaySpec, Run};
use crate::window::{PreparedTrace, WindowDriver};

/// For how long a piece waits for a pause, and all of a run together.
const WAIT_MAX: Duration = Duration::from_millis(5);
const WAIT_MAX_OF_RUN: Duration = Duration::from_millis(60);

/// A piece of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// Its events.
    pub events: usize,
    /// Their processor time.
    pub cpu_ns: u64,
    /// What the slower one of the looks right before and right after it found
    /// ([`additions_per_cycle`](hksim_linux_probe::core_sharing::additions_per_cycle)).
    pub additions_per_cycle: f32,
}

/// Drives an allocator piece by piece.
pub(crate) struct InPieces<A: Heaps> {
    heap: Driver<A>,
    core: CoreWatch,
    waited: Duration,
    /// What the look before the current piece found.
    before: f32,
    pieces: Vec<Piece>,
}

impl<A: Heaps> InPieces<A> {
    /// All memory is reserved here: a window is open afterwards.
    pub(crate) fn new(heap: Driver<A>, alone_from: f32, trace: &PreparedTrace) -> InPieces<A> {
        // A stop, a fork and the end of a chunk end a piece, too.
        let pieces = trace.reader.summary().events as usize / (BATCH_EVENTS_MAX / 2) + 2 * (trace.stops.len() + 1);
        InPieces {
            heap,
            core: CoreWatch::knowing(alone_from),
            waited: Duration::ZERO,
            before: 0.0,
            pieces: Vec::with_capacity(pieces),
        }
    }

    /// The pieces of the whole trace.
    pub(crate) fn finish(self) -> Vec<Piece> {
        self.pieces
    }
}

impl<A: Heaps> WindowDriver for InPieces<A> {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        step(&mut self.heap, event, number)
    }

    fn piece_begins(&mut self) {
        let begun = Instant::now();
        self.before = self.core.wait(WAIT_MAX.min(WAIT_MAX_OF_RUN.saturating_sub(self.waited)));
        self.waited += begun.elapsed();
    }

    fn piece_done(&mut self, events: usize, cpu_ns: u64) {
        let additions_per_cycle = self.before.min(self.core.look_again());
        self.pieces.push(Piece { events, cpu_ns, additions_per_cycle });
    }

    fn stop(&mut self, _events: u64) -> Result<(), ChildError> {
        Ok(())
    }
}

/// A replay whose pieces are kept. Each run is a fresh process.
#[derive(Debug)]
pub struct PieceReplay<'a> {
    spec: ReplaySpec,
    run: Run,
    /// What all replays have found of the core.
    core: &'a Mutex<CoreWatch>,
    found: Mutex<Vec<Vec<Piece>>>,
}

impl<'a> PieceReplay<'a> {
    /// A replay on the `malloc` that it names. Replays with the same `core` tell each other how fast it is alone.
    ///
    /// # Errors
    /// The specification is invalid.
    pub fn of(spec: &ReplaySpec, core: &'a Mutex<CoreWatch>) -> Result<PieceReplay<'a>, ReplayError> {
        Ok(PieceReplay { spec: checked(spec)?, run: Run::Pieces, core, found: Mutex::default() })
    }

    /// A replay without an allocator, and without touches: what the replay itself costs.
    ///
    /// # Errors
    /// The specification is invalid.
    pub fn harness(spec: &ReplaySpec, core: &'a Mutex<CoreWatch>) -> Result<PieceReplay<'a>, ReplayError> {
        Ok(PieceReplay { run: Run::HarnessPieces, ..PieceReplay::of(spec, core)? })
    }

    /// The pieces of each run since they were last taken, warm-up runs included.
    pub fn take(&self) -> Vec<Vec<Piece>> {
        std::mem::take(&mut *lock(&self.found))
    }
}

/// What is in it, whether or not a thread panicked while it had it.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subject for PieceReplay<'_> {
    type Error = ReplayError;

    fn run(&self, cpu: Option<usize>) -> Result<Sample, ReplayError> {
        let alone_from = lock(self.core).alone_from();
        let job = Job { spec: self.spec.clone(), run: self.run, cpu, alone_from, progress: None };
        match perform(&job, &mut |_| {})?.report {
            Report::Pieces(sample, pieces) => {
                let mut core = lock(self.core);
                pieces.iter().for_each(|piece| core.note(piece.additions_per_cycle));
                lock(&self.found).push(pieces);
                Ok(sample)
            }
            other => Err(unexpected(self.run, &other)),
        }
    }
}
