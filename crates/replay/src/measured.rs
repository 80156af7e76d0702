//! Measured runs: every page of the heap is observed.

use std::io;
use std::mem::ManuallyDrop;

use hksim_engine::{Driver, ForkStep, Heaps, PageRun};
use hksim_policy::memory::MemoryLock;
use hksim_trace::event::Event;

use crate::error::ChildError;
use crate::fork::Children;
use crate::memory_policy::not_locked;
use crate::observed_os::ObservedOs;
use crate::observer::Observer;
use crate::ordered::step;
use crate::prefault::{MeasuredHeap, prefault};
use crate::protocol::{Channel, MeasuredReport, Report};
use crate::replayable::Replayable;
use crate::result::{Mark, Replayed, Skipped};
use crate::usage::Usage;
use crate::window::{Driven, PreparedTrace, WindowDriver, WindowObserver, drive};
use hksim_engine::Installs;
use hksim_linux_probe::traps::TrapStream;

/// The trap stream of this thread, or the reason why there is none.
pub(crate) fn open_traps() -> (Option<TrapStream>, Option<Skipped>) {
    match TrapStream::open() {
        Ok(traps) => (Some(traps), None),
        Err(why) => {
            let reason = format!("{why} (perf_event_open: kernel.perf_event_paranoid must be 2 or less)");
            (None, Some(Skipped::new("traps", reason)))
        }
    }
}

/// A heap whose pages are all observed.
struct Measured<'a, A: Heaps> {
    /// Never dropped: a drop would unmap the reservation, which the allocator itself never does. The process ends
    /// anyway.
    heap: ManuallyDrop<Driver<A>>,
    channel: &'a mut Channel,
    marks: Vec<Mark>,
    children: Children,
    /// Why memory that the program locked is not locked in the replay.
    lock_refused: Option<io::Error>,
}

impl<A: Replayable<ObservedOs>> Measured<'_, A> {
    fn why_unlocked(&self) -> Option<String> {
        let later = || self.heap.allocator().refused_later();
        self.lock_refused.as_ref().map(io::Error::to_string).or_else(later)
    }

    /// Passes on the observer.
    fn with_observer<T>(&self, pass: impl FnOnce(&mut Observer) -> T) -> T {
        self.heap.allocator().with_os(|os| pass(&mut os.observer().borrow_mut()))
    }

    /// The program's operations that this machine refused in the replay.
    fn left_undone(&self) -> impl Iterator<Item = String> {
        let unlocked = self.why_unlocked().map(|why| not_locked(&why));
        unlocked.into_iter().chain(self.children.why_fewer().map(str::to_string))
    }
}

impl<A: Replayable<ObservedOs>> WindowDriver for Measured<'_, A> {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        step(&mut self.heap, event, number)
    }

    fn piece_done(&mut self, _events: usize, _cpu_ns: u64) {
        self.with_observer(Observer::drain_traps_if_half_full);
    }

    fn lock(&mut self, lock: MemoryLock) {
        self.lock_refused = self.heap.allocator().lock_as(lock).err().or(self.lock_refused.take());
    }

    fn stop(&mut self, events: u64) -> Result<(), ChildError> {
        let Measured { heap, channel, marks, .. } = self;
        let at = marks.len() as u32;
        let mut sent = Ok(());
        let mut send = |run: PageRun| {
            if sent.is_ok() {
                sent = channel.page_run(at, run);
            }
        };
        let allocator = heap.allocator();
        let mark = allocator.with_os(|os| {
            let mut observer = os.observer().borrow_mut();
            let mut mark = observer.begin_mark(events);
            allocator.each_piece(|name, pages| observer.mark_piece(&mut mark, (name, pages), &mut send));
            observer.end_mark(mark)
        });
        sent.and_then(|()| channel.end_mark(at)).map_err(ChildError::system("send pages"))?;
        marks.push(mark);
        Ok(())
    }

    fn fork(&mut self, step: ForkStep) -> Result<(), ChildError> {
        match step {
            ForkStep::Exit(number) => {
                self.with_observer(Observer::look);
                self.children.exit(number);
            }
            ForkStep::Fork(number) => {
                let prepared = self.with_observer(|observer| {
                    observer.look();
                    observer.before_fork()
                });
                prepared.map_err(ChildError::system("exclude memory from a child"))?;
                self.children.fork(number);
            }
        }
        Ok(())
    }

    fn base(&self) -> Option<u64> {
        Some(self.heap.allocator().addresses().start)
    }
}

/// What a measured run needs before it begins.
pub(crate) struct Measurable {
    pub(crate) observer: Observer,
    /// Why there is no trap stream, if there is none.
    pub(crate) skipped: Option<Skipped>,
}

/// The measured run on the allocator that `open` creates, as the first step in the window.
pub(crate) fn measured<A: Replayable<ObservedOs>>(
    Measurable { observer, skipped }: Measurable,
    trace: &mut PreparedTrace,
    channel: &mut Channel,
    open: impl FnOnce(ObservedOs) -> Result<Driver<A>, ChildError>,
) -> Result<Report, ChildError> {
    let marks = Vec::with_capacity(trace.stops.len());
    let children = Children::none();
    let os = ObservedOs::new(observer).map_err(ChildError::system("map a page"))?;
    prefault(MeasuredHeap::Reservation);
    let before = Usage::now();
    os.observer().borrow_mut().begin();
    let heap = ManuallyDrop::new(open(os)?);
    let mut measured = Measured { heap, channel, marks, children, lock_refused: None };
    let driven = drive(trace, &mut measured)?;
    let traps = measured.with_observer(WindowObserver::end);
    let faults = Usage::now().since(&before).faults;
    Ok(Report::Measured(Box::new(report(measured, driven, faults, traps, skipped))))
}

/// The result of a measured run, collected after the window.
fn report<A: Replayable<ObservedOs>>(
    measured: Measured<'_, A>,
    driven: Driven,
    faults: u64,
    traps: Option<u64>,
    skipped: Option<Skipped>,
) -> MeasuredReport {
    let heap = &measured.heap;
    let mut replayed = heap.allocator().with_os(|os| figures_of(os, faults, traps, skipped));
    replayed.events = driven.events;
    replayed.requests_failed = heap.failed();
    replayed.placement_digest = Some(format!("{:016x}", heap.placement()));
    heap.allocator().note_own(&mut replayed);
    if heap.allocator().has_kernel_chosen_addresses() {
        measured.with_observer(|observer| {
            replayed.addresses = observer.kernel_chosen().map(<[u64]>::to_vec);
        });
    }
    let left_out = measured.with_observer(|observer| observer.left_out()) > 0;
    if left_out || heap.allocator().has_kernel_chosen_addresses() && replayed.addresses.is_none() {
        let reason = "the allocator made more mappings than can be observed";
        replayed.skipped.push(Skipped::new("addresses, installs, marks", reason));
    }
    measured.with_observer(|observer| note_unmeasured(&mut replayed, observer));
    for reason in measured.left_undone() {
        replayed.installs = None;
        replayed.skipped.push(Skipped::new("installs, marks", reason));
    }
    MeasuredReport { replayed, marks: measured.marks, start: None }
}

/// The figures of an observed run.
fn figures_of(os: &ObservedOs, faults: u64, traps: Option<u64>, skipped: Option<Skipped>) -> Replayed {
    let observer = os.observer().borrow();
    let by_kind = observer.classifier.installs;
    let mut replayed = Replayed {
        installs: traps.map(|_| Installs::from(by_kind)),
        faults: Some(faults - observer.own.faults),
        traps,
        os_calls: Some(os.counted().calls()),
        os_calls_failed: Some(os.counted().failed()),
        unclassified_pages: traps.map(|_| observer.classifier.unclassified_pages),
        unclassified: observer.classifier.unclassified.clone(),
        traps_lost: observer.traps().map(TrapStream::lost),
        skipped: skipped.into_iter().collect(),
        ..Replayed::default()
    };
    replayed.note_observer(&observer);
    if traps.is_none() {
        replayed.skipped.push(Skipped::new("installs", "classifying them needs traps, which are not available"));
    }
    if let Some(lost @ 1..) = replayed.traps_lost {
        let reason = format!("{lost} traps were lost: one event touched more pages than fit in the kernel's buffer");
        replayed.installs = None;
        replayed.skipped.push(Skipped::new("installs", reason));
    }
    replayed
}

/// Removes the figures that this run could not measure, and adds the reasons.
fn note_unmeasured(replayed: &mut Replayed, observer: &Observer) {
    if observer.folios_unknown() > 0 {
        replayed.installs = None;
        let reason =
            "several huge-page sizes below 2M are on, and only root can see which of them a populating call used";
        replayed.skipped.push(Skipped::new("installs", reason));
    }
    if !observer.detects_copies() {
        replayed.installs = None;
        let reason = "detecting copies after a fork needs page-frame numbers, which only root can read";
        replayed.skipped.push(Skipped::new("installs", reason));
    }
    if observer.scan_failures() > 0 {
        let reason = format!("the kernel aborted {} scans", observer.scan_failures());
        replayed.skipped.push(Skipped::new("marks", reason));
    }
}
