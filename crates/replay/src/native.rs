//! Ordered runs on the SuperSlab allocator.

use std::io;
use std::mem::ManuallyDrop;

use hksim_engine::{Driver, Fallbacks, ForkStep, Tables, TouchRule};
use hksim_native::{Addresses, MmapMemory, Os};
use hksim_policy::memory::MemoryLock;
use hksim_policy::vocabulary::Align;
use hksim_policy::{Allocator, Memory, PreparedPolicy, RunGeometry};
use hksim_trace::event::Event;
use hksim_trace::source::EventSource;

use crate::calls::Counted;
use crate::coarse;
use crate::error::ChildError;
use crate::fork::{Children, keep_apart};
use crate::null::Null;
use crate::observed_os::ObservedOs;
use crate::observer::Observer;
use crate::prefault::{MeasuredHeap, prefault};
use crate::protocol::{Channel, MeasuredReport, Report, Timing};
use crate::result::{Control, Mark, Replayed, Skipped};
use crate::tlb::TlbWatch;
use crate::usage::Usage;
use crate::window::{Driven, PreparedTrace, WindowDriver, WindowObserver, drive};
use hksim_engine::Installs;
use hksim_linux_probe::resident::make_resident;
use hksim_linux_probe::traps::TrapStream;

/// The allocator on real mappings, with its driver.
pub(crate) type Native<O> = Driver<MmapMemory<O>, RunGeometry>;

/// The trap stream of this thread, or the reason why there is none.
fn open_traps() -> (Option<TrapStream>, Option<Skipped>) {
    match TrapStream::open() {
        Ok(traps) => (Some(traps), None),
        Err(why) => {
            let reason = format!("{why} (perf_event_open: kernel.perf_event_paranoid must be 2 or less)");
            (None, Some(Skipped::new("traps", reason)))
        }
    }
}

/// The memory that a run needs besides its heap, prepared before the window opens.
pub(crate) struct Ready<O: Os> {
    tables: Tables<MmapMemory<O>>,
    addresses: Option<Addresses>,
}

/// Allocates this memory and makes it present.
pub(crate) fn ready<O: Os>(plan: &PreparedPolicy, trace: &PreparedTrace) -> Ready<O> {
    let addresses = (plan.layout.align != Align::Arena).then(|| Addresses::new(&plan.layout));
    Ready { tables: tables(trace), addresses }
}

/// Tables for a trace, present before the window opens.
pub(crate) fn tables<O: Os>(trace: &PreparedTrace) -> Tables<MmapMemory<O>> {
    let summary = trace.reader.summary();
    let tables = Tables::new(summary.threads, summary.objects_peak);
    tables.extents().into_iter().for_each(|(start, bytes)| make_resident(start, bytes));
    tables
}

/// Creates the memory and the allocator, as the first step in the window. Calls `located` with the memory.
pub(crate) fn open<O: Os>(
    plan: PreparedPolicy,
    os: O,
    ready: Ready<O>,
    touch: TouchRule,
    located: impl FnOnce(&MmapMemory<O>),
) -> Result<Native<O>, ChildError> {
    let memory = MmapMemory::with_addresses(plan.layout, os, ready.addresses)?;
    located(&memory);
    let allocator = Allocator::new(memory, plan.geometry, plan.policy, &plan.layout);
    Ok(Driver::with_tables(allocator, ready.tables, touch))
}

pub(crate) fn step<O: Os>(heap: &mut Native<O>, event: &Event, number: u64) -> Result<(), ChildError> {
    heap.step(event).map_err(|why| ChildError::Drive { event: number, why })
}

/// Locks or unlocks a heap as the program did with its memory. Fails if `RLIMIT_MEMLOCK` does not permit it.
pub(crate) fn lock_heap<O: Os>(heap: &Native<O>, lock: MemoryLock) -> Result<(), io::Error> {
    heap.allocator().lock_memory(lock).map_err(|errno| io::Error::from_raw_os_error(errno.0))
}

/// The control run: a measured run without a heap.
pub(crate) fn control(plan: &PreparedPolicy, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
    let (traps, _) = open_traps();
    let Ok(observer) = Observer::new(&plan.layout, traps) else {
        return coarse::control(trace, MeasuredHeap::Reservation);
    };
    let mut null = Null::new(trace, observer);
    prefault(MeasuredHeap::Reservation);
    let before = Usage::now();
    null.watch_mut().begin();
    drive(trace, &mut null)?;
    let traps = null.watch_mut().end();
    let usage = Usage::now().since(&before);
    std::mem::forget(null); // not dropped, as in the other runs, whose system calls are compared with this run's
    Ok(Report::Control(Control::new(&usage, traps)))
}

/// A heap whose pages are all observed.
struct Measured<'a> {
    /// Never dropped: a drop would unmap the reservation, which the allocator itself never does. The process ends
    /// anyway.
    heap: ManuallyDrop<Native<ObservedOs>>,
    channel: &'a mut Channel,
    marks: Vec<Mark>,
    children: Children,
    /// Why memory that the program locked is not locked in the replay.
    lock_refused: Option<io::Error>,
}

impl Measured<'_> {
    fn why_unlocked(&self) -> Option<String> {
        let refused_later = self.heap.allocator().mem.pool().locks_refused.get();
        let later = || (refused_later > 0).then(|| format!("{refused_later} later SuperSlabs were refused"));
        self.lock_refused.as_ref().map(io::Error::to_string).or_else(later)
    }

    /// The program's operations that this machine refused in the replay.
    fn left_undone(&self) -> impl Iterator<Item = String> {
        let unlocked = self.why_unlocked().map(|why| {
            format!(
                "the program's memory cannot be locked here: {why}; raise `ulimit -l`, or use --memory-policy ignored"
            )
        });
        unlocked.into_iter().chain(self.children.why_fewer().map(str::to_string))
    }
}

impl WindowDriver for Measured<'_> {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        step(&mut self.heap, event, number)
    }

    fn batch_done(&mut self) {
        self.heap.allocator().mem.os().observer().borrow_mut().drain_traps_if_half_full();
    }

    fn lock(&mut self, lock: MemoryLock) {
        self.lock_refused = lock_heap(&self.heap, lock).err().or(self.lock_refused.take());
    }

    fn stop(&mut self, events: u64) -> Result<(), ChildError> {
        let (channel, at) = (&mut *self.channel, self.marks.len() as u32);
        let mem = &self.heap.allocator().mem;
        let mut observer = mem.os().observer().borrow_mut();
        let mut sent = Ok(());
        let mark = observer.mark_pages(events, mem.pieces(), |run| {
            if sent.is_ok() {
                sent = channel.page_run(at, run);
            }
        });
        sent.and_then(|()| channel.end_mark(at)).map_err(ChildError::system("send pages"))?;
        self.marks.push(mark);
        Ok(())
    }

    fn fork(&mut self, step: ForkStep) -> Result<(), ChildError> {
        let mut observer = self.heap.allocator().mem.os().observer().borrow_mut();
        observer.look();
        match step {
            ForkStep::Exit(number) => self.children.exit(number),
            ForkStep::Fork(number) => {
                observer.before_fork().map_err(ChildError::system("exclude memory from a child"))?;
                self.children.fork(number);
            }
        }
        Ok(())
    }

    fn base(&self) -> Option<u64> {
        Some(self.heap.allocator().mem.base().as_ptr() as u64)
    }
}

/// The measured run.
pub(crate) fn measured(
    plan: PreparedPolicy,
    touch: TouchRule,
    trace: &mut PreparedTrace,
    channel: &mut Channel,
) -> Result<Report, ChildError> {
    let (traps, skipped) = open_traps();
    let observer = match Observer::new(&plan.layout, traps) {
        Ok(observer) => observer,
        Err(why) => return coarse::measured(plan, touch, trace, &why),
    };
    let ready = ready(&plan, trace);
    let marks = Vec::with_capacity(trace.stops.len());
    let children = Children::none();
    let os = ObservedOs::new(observer).map_err(ChildError::system("map a page"))?;
    prefault(MeasuredHeap::Reservation);
    let before = Usage::now();
    os.observer().borrow_mut().begin();
    let located = |memory: &MmapMemory<ObservedOs>| {
        memory.os().observer().borrow_mut().locate(memory.base().as_ptr() as u64);
    };
    let heap = open(plan, os, ready, touch, located)?;
    let mut measured = Measured { heap: ManuallyDrop::new(heap), channel, marks, children, lock_refused: None };
    let driven = drive(trace, &mut measured)?;
    let traps = measured.heap.allocator().mem.os().observer().borrow_mut().end();
    let faults = Usage::now().since(&before).faults;
    Ok(Report::Measured(Box::new(report(measured, driven, faults, traps, skipped))))
}

/// The result of a measured run, collected after the window.
fn report(
    measured: Measured<'_>,
    driven: Driven,
    faults: u64,
    traps: Option<u64>,
    skipped: Option<Skipped>,
) -> MeasuredReport {
    let os = measured.heap.allocator().mem.os();
    let observer = os.observer().borrow();
    let by_kind = observer.classifier.installs;
    let mut replayed = Replayed {
        base_address: Some(measured.heap.allocator().mem.base().as_ptr() as u64),
        installs: traps.map(|_| Installs::from(by_kind)),
        faults: Some(faults - observer.own.faults),
        traps,
        os_calls: Some(os.counted().calls()),
        os_calls_failed: Some(os.counted().failed()),
        fallbacks: Some(Fallbacks::of(measured.heap.allocator().mem.pool())),
        events: driven.events,
        requests_failed: measured.heap.failed(),
        placement_digest: Some(format!("{:016x}", measured.heap.placement())),
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
    if measured.heap.allocator().mem.addresses().is_some() {
        replayed.addresses = observer.kernel_chosen().map(<[u64]>::to_vec);
        if replayed.addresses.is_none() || observer.left_out() > 0 {
            let reason = "the allocator made more mappings than can be observed";
            replayed.skipped.push(Skipped::new("addresses, installs, marks", reason));
        }
    }
    note_unmeasured(&mut replayed, &measured, &observer);
    MeasuredReport { replayed, marks: measured.marks }
}

/// Removes the figures that this run could not measure, and adds the reasons.
fn note_unmeasured(replayed: &mut Replayed, measured: &Measured<'_>, observer: &Observer) {
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
    for reason in measured.left_undone() {
        replayed.installs = None;
        replayed.skipped.push(Skipped::new("installs, marks", reason));
    }
    if observer.scan_failures() > 0 {
        let reason = format!("the kernel aborted {} scans", observer.scan_failures());
        replayed.skipped.push(Skipped::new("marks", reason));
    }
}

/// A heap without an observer.
struct Timed {
    /// Never dropped, as in [`Measured`].
    heap: ManuallyDrop<Native<Counted>>,
    children: Children,
    tlb: TlbWatch,
}

impl WindowDriver for Timed {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        step(&mut self.heap, event, number)
    }

    fn batch_begins(&mut self) {
        self.tlb.begin();
    }

    fn batch_done(&mut self) {
        self.tlb.pause();
    }

    /// The kernel refuses the same lock in the measured run, which reports it.
    fn lock(&mut self, lock: MemoryLock) {
        let _ = lock_heap(&self.heap, lock);
    }

    fn stop(&mut self, _events: u64) -> Result<(), ChildError> {
        Ok(())
    }

    fn fork(&mut self, step: ForkStep) -> Result<(), ChildError> {
        match step {
            ForkStep::Exit(number) => self.children.exit(number),
            ForkStep::Fork(number) => {
                let mem = &self.heap.allocator().mem;
                keep_apart(mem.base().as_ptr() as u64, mem.bytes())
                    .map_err(ChildError::system("exclude memory from a child"))?;
                self.children.fork(number);
            }
        }
        Ok(())
    }
}

/// The timed run.
pub(crate) fn timed(plan: PreparedPolicy, touch: TouchRule, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
    let ready = ready(&plan, trace);
    let (children, tlb) = (Children::none(), TlbWatch::open());
    prefault(MeasuredHeap::Reservation);
    let before = Usage::now();
    let heap = ManuallyDrop::new(open(plan, Counted::default(), ready, touch, |_| {})?);
    let mut timed = Timed { heap, children, tlb };
    let driven = drive(trace, &mut timed)?;
    let usage = Usage::now().since(&before);
    Ok(Report::Timed(Timing::new(trace.operations, driven.time, usage, timed.tlb.finish())))
}
