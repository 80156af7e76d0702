//! Simulates one trace under one design.

use hksim_policy::vocabulary::Purge;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use hksim_engine::{
    DriveError, Driver, Fallbacks, ForkSchedule, ForkStep, ForkWindow, MemoryPolicyRule, PageRun, PageSet,
    PageState as SetState, PointFinder, TouchRule, even_points,
};
use hksim_policy::{Allocator, PAGE_BYTES, Policy, PolicyError, RunGeometry};
use hksim_trace::error::TraceError;
use hksim_trace::event::{Event, Op};
use hksim_trace::header::TouchKnowledge;
use hksim_trace::source::EventSource;
use thiserror::Error;

use crate::accounting::Accounting;
use crate::addresses::Addresses;
use crate::forks::MetadataObserver;
use crate::memory::SimMemory;
use crate::observer::AccountingObserver;
use crate::reach::{self, ReachSample, TlbObserver, TlbReport};
use crate::report::{Installs, SCHEMA, Sample, SimReport, TouchLabel, TraceLabel, VERSION};
use crate::tlb::Geometry;
use hksim_linux_mm::{Kernel, KernelConfig, PageState};

/// Number of samples in a timeline.
const TIMELINE_SAMPLES: u64 = 64;

/// Configuration of a simulation.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The allocator's policy.
    pub policy: Policy,
    /// How the application touches its blocks.
    pub touch: TouchRule,
    /// The modelled kernel.
    pub kernel: KernelConfig,
    /// The core whose TLB is modelled, if any.
    pub tlb: Option<&'static Geometry>,
    /// Whether the program's memory policies are applied.
    pub memory_policy: MemoryPolicyRule,
    /// Addresses of mmaps without a hint.
    pub addresses: Addresses,
    /// Children that the program forks.
    pub forks: Vec<ForkWindow>,
    /// The trace file's name, for the report.
    pub file: Option<String>,
}

/// Errors of a simulation.
#[derive(Debug, Error)]
pub enum SimError {
    /// The trace is damaged.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The policy is invalid.
    #[error("invalid policy: {0}")]
    Policy(#[from] PolicyError),
    /// The allocator cannot serve an event.
    #[error("event {event}: {source}")]
    Drive {
        /// Number of the event, from 1.
        event: u64,
        /// What went wrong.
        source: DriveError,
    },
    /// An access raised SIGBUS, because the hugetlb pool had no free page.
    #[error(
        "event {event}: the hugetlb pool has no page for a write (SIGBUS: a copy after a fork needs another page); \
         enlarge the pool (vm.nr_hugepages, --hugetlb-pool) or choose another --huge"
    )]
    Killed {
        /// Number of the event, from 1; 0 if no event was performed yet.
        event: u64,
    },
}

/// The present pages after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedPages {
    /// Number of events performed.
    pub event: u64,
    /// Present pages.
    pub pages: PageSet,
    /// Bytes that the kernel may drop: marked by `MADV_FREE` and not written since (smaps `LazyFree`).
    pub lazy_free_bytes: u64,
}

/// The result of a simulation.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// All figures.
    pub report: SimReport,
    /// Page sets at every mark and at the end, if requested.
    pub marks: Vec<MarkedPages>,
}

/// Which page sets to collect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// None.
    Skip,
    /// At the trace's marks and the end; without marks at 16 evenly spaced points and the end ([`PointFinder`]).
    Collect,
    /// After this event, and at the end.
    At(u64),
}

/// The points of a run at which timeline samples and page sets are taken.
struct Points {
    timeline: Vec<u64>,
    marks: Vec<u64>,
}

impl Points {
    fn new(events: u64, marks: Vec<u64>) -> Points {
        let spaced = |k: u64| (u128::from(k) * u128::from(events) / u128::from(TIMELINE_SAMPLES)) as u64;
        let mut timeline: Vec<u64> = (1..=TIMELINE_SAMPLES).map(spaced).collect();
        timeline.dedup();
        Points { timeline, marks }
    }
}

/// Simulates a source, which must be at its start. Calls `progress` with the number of events performed so far.
///
/// # Errors
/// The trace is damaged, the policy is invalid, or the allocator cannot serve an event.
pub fn simulate(
    source: &mut dyn EventSource,
    config: &SimConfig,
    marks: Marks,
    progress: &dyn Fn(u64),
) -> Result<Simulated, SimError> {
    let accounting = Accounting::new(Kernel::new(config.kernel.clone())).with_addresses(config.addresses.clone());
    // TLB misses are meaningful only if the trace records every access and the run performs exactly these accesses.
    let is_full = source.header().touch == TouchKnowledge::FullStream && config.touch == TouchRule::Recorded;
    match config.tlb.filter(|_| is_full) {
        Some(core) => simulate_on(TlbObserver::new(accounting, core), source, config, marks, progress),
        None if !config.forks.is_empty() || config.policy.purge == Purge::Free => {
            simulate_on(MetadataObserver(accounting), source, config, marks, progress)
        }
        None => simulate_on(accounting, source, config, marks, progress),
    }
}

fn simulate_on<H: AccountingObserver>(
    observer: H,
    source: &mut dyn EventSource,
    config: &SimConfig,
    marks: Marks,
    progress: &dyn Fn(u64),
) -> Result<Simulated, SimError> {
    let started = Instant::now();
    let trace = TraceLabel::of(config.file.clone(), source);
    let summary = *source.summary();
    let points = Points::new(summary.events, wanted_points(source, marks)?);
    let mut run = Run::new(observer, config, summary.threads, summary.objects_peak, points)?;
    run.collects_pages = marks != Marks::Skip;
    while let Some(batch) = source.next_batch()? {
        run.batch(batch)?;
        progress(run.done);
    }
    run.finish();
    let report = run.report(config, trace, started.elapsed().as_secs_f64());
    Ok(Simulated { report, marks: run.marked })
}

/// The points at which page sets are taken. Leaves the source at its start.
fn wanted_points(source: &mut dyn EventSource, marks: Marks) -> Result<Vec<u64>, TraceError> {
    match marks {
        Marks::Skip => Ok(even_points(source.summary().events)),
        Marks::At(event) => Ok(vec![event]),
        Marks::Collect => {
            let mut finder = PointFinder::default();
            while let Some(batch) = source.next_batch()? {
                batch.iter().for_each(|event| finder.see(event));
            }
            source.rewind()?;
            Ok(finder.finish())
        }
    }
}

struct Run<H: AccountingObserver> {
    driver: Driver<SimMemory<H>, RunGeometry>,
    points: Points,
    next_sample: usize,
    next_mark: usize,
    done: u64,
    time_ns: u64,
    timeline: Vec<Sample>,
    marked: Vec<MarkedPages>,
    collects_pages: bool,
    forks: ForkSchedule,
    memory_policy: MemoryPolicyRule,
    core: Option<&'static Geometry>,
    reach: Vec<ReachSample>,
}

impl<H: AccountingObserver> Run<H> {
    fn new(
        observer: H,
        config: &SimConfig,
        threads: u32,
        objects_peak: u32,
        points: Points,
    ) -> Result<Run<H>, SimError> {
        let plan = config.policy.prepare()?;
        let mut memory = SimMemory::new(plan.layout, &plan.geometry, observer);
        if config.policy.purge == Purge::Free {
            memory.keep_contents();
        }
        let allocator = Allocator::new(memory, plan.geometry, plan.policy, &plan.layout);
        Ok(Run {
            driver: Driver::new(allocator, threads, objects_peak, config.touch).counting_scattered(),
            points,
            next_sample: 0,
            next_mark: 0,
            done: 0,
            time_ns: 0,
            timeline: Vec::new(),
            marked: Vec::new(),
            collects_pages: false,
            forks: ForkSchedule::new(&config.forks),
            memory_policy: config.memory_policy,
            core: config.tlb,
            reach: Vec::new(),
        })
    }

    /// Performs a batch, and stops at each point where a sample, mark, fork or exit is due.
    fn batch(&mut self, mut batch: &[Event]) -> Result<(), SimError> {
        while !batch.is_empty() {
            let until = self.next_point().map_or(u64::MAX, |point| point.saturating_sub(self.done));
            let (now, later) = batch.split_at(batch.len().min(usize::try_from(until).unwrap_or(usize::MAX)));
            for (index, event) in now.iter().enumerate() {
                let numbered = |source| SimError::Drive { event: self.done + index as u64 + 1, source };
                if let Op::MemoryPolicy { policy, .. } = event.op {
                    let observer = &self.driver.allocator().mem;
                    observer.observer().accounting_mut().change_policy(policy, self.memory_policy);
                }
                if let Some(lock) = self.memory_policy.lock(&event.op) {
                    // An error is ignored. The model does not limit locked memory, so an error only means that locking
                    // stopped at an unmapped part of the arena, as in the kernel.
                    let _ = self.driver.allocator().lock_memory(lock);
                }
                self.driver.step(event).map_err(numbered)?;
                let mem = &self.driver.allocator().mem;
                mem.flush_meta_writes();
                mem.observer().accounting_mut().event_done();
            }
            self.done += now.len() as u64;
            let killed = self.driver.allocator().mem.observer().accounting().events_since_killed();
            if let Some(events_since) = killed {
                return Err(SimError::Killed { event: self.done + 1 - events_since });
            }
            self.time_ns = now.last().map_or(self.time_ns, |event| event.time_ns);
            batch = later;
            self.take_due();
        }
        Ok(())
    }

    fn next_point(&self) -> Option<u64> {
        let sample = self.points.timeline.get(self.next_sample).copied();
        let mark = self.points.marks.get(self.next_mark).copied();
        sample.into_iter().chain(mark).chain(self.forks.next_event()).min()
    }

    /// Performs every sample, mark, fork and exit that is due.
    fn take_due(&mut self) {
        while self.points.timeline.get(self.next_sample).is_some_and(|&point| point <= self.done) {
            self.next_sample += 1;
            self.timeline.push(self.sample());
        }
        while self.points.marks.get(self.next_mark).is_some_and(|&point| point <= self.done) {
            self.next_mark += 1;
            self.mark();
        }
        while let Some(step) = self.forks.due(self.done) {
            self.fork_or_exit(step);
        }
    }

    fn fork_or_exit(&mut self, step: ForkStep) {
        let mem = &self.driver.allocator().mem;
        if let ForkStep::Exit(child) = step {
            return mem.observer().accounting_mut().child_exits(child, self.done);
        }
        let mapped_ranges: Vec<(u64, Range<u64>)> = mem.mapped_ranges().collect();
        let pages: Vec<Range<u64>> = mapped_ranges.iter().map(|(_, pages)| pages.clone()).collect();
        mem.observer().accounting_mut().fork(self.done, &pages);
        let observer = mem.observer();
        for (name, pages) in mapped_ranges {
            let states = observer.accounting().kernel().page_states(pages.clone());
            for run in states.into_iter().filter(|run| run.state != PageState::None) {
                let first = name + (run.first_page - pages.start);
                mem.forked(first..first + run.pages);
            }
        }
    }

    /// Takes the last sample and mark if they are missing: a truncated trace can end before its last points.
    fn finish(&mut self) {
        let at_end = self.timeline.last().is_some_and(|sample| sample.event == self.done);
        if !at_end {
            self.timeline.push(self.sample());
        }
        let marked = self.points.marks.get(..self.next_mark).and_then(<[u64]>::last);
        if marked != Some(&self.done) {
            self.mark();
        }
    }

    /// Takes a page set and a TLB sample at a mark, if requested.
    fn mark(&mut self) {
        let mem = &self.driver.allocator().mem;
        if self.collects_pages {
            let observer = mem.observer();
            let pages = page_set(observer.accounting().kernel(), mem.mapped_ranges());
            let lazy_free_bytes = observer.accounting().kernel().lazy_free_pages() * PAGE_BYTES;
            self.marked.push(MarkedPages { event: self.done, pages, lazy_free_bytes });
        }
        if let Some(core) = self.core {
            let live = self.driver.live_objects().map(|(block, bytes)| mem.pages_of(block, bytes)).collect();
            self.reach.push(reach::sample(self.done, core, mem.observer().accounting().kernel(), live));
        }
    }

    fn tlb_report(&self, observer: &H) -> Option<TlbReport> {
        let misses = observer.misses();
        self.core.map(|core| TlbReport {
            core,
            reach: self.reach.clone(),
            lookups: misses,
            lookups_skipped: misses.is_none().then_some("the accesses of the program are not all known"),
        })
    }

    fn sample(&self) -> Sample {
        let observer = self.driver.allocator().mem.observer();
        let accounting = observer.accounting();
        Sample {
            event: self.done,
            time_ns: self.time_ns,
            live_bytes: self.driver.live().bytes,
            rss_bytes: accounting.kernel().resident_bytes(),
            huge_pages: accounting.kernel().huge_pages(),
            installs: accounting.kernel().counters().installs_total(),
            vmas: accounting.kernel().vma_count(),
        }
    }

    fn report(&self, config: &SimConfig, trace: TraceLabel, elapsed_s: f64) -> SimReport {
        let mem = &self.driver.allocator().mem;
        let pool = hksim_policy::Memory::pool(mem);
        let observer = mem.observer();
        let accounting = observer.accounting();
        let (kernel, peaks, live) = (accounting.kernel(), accounting.peaks(), self.driver.live());
        let counters = kernel.counters();
        let knowledge = if config.touch == TouchRule::Recorded { trace.touch_source } else { TouchKnowledge::Assumed };
        SimReport {
            schema: SCHEMA,
            hksim_version: VERSION,
            trace,
            policy: config.policy,
            touch: TouchLabel { rule: config.touch, source: knowledge },
            kernel: config.kernel.clone(),
            events: self.done,
            elapsed_s,
            installs: Installs {
                total: counters.installs_total(),
                by_kind: accounting.by_kind(),
                by_reason: accounting.by_reason(),
            },
            faults: counters.faults,
            traps: counters.traps,
            pmd_splits: counters.pmd_splits,
            rss_bytes_peak: peaks.rss_bytes,
            rss_bytes_end: kernel.resident_bytes(),
            hugetlb_bytes_peak: peaks.hugetlb_bytes,
            huge_pages_peak: peaks.huge_pages,
            live_bytes_peak: live.bytes_peak,
            floor_pages: live.bytes_peak.div_ceil(PAGE_BYTES),
            floor_touched_pages: live.touched_bytes_peak.div_ceil(PAGE_BYTES),
            superslabs_peak: u64::from(pool.superslabs_peak.get()),
            vmas_peak: peaks.vmas,
            page_table_bytes_peak: peaks.page_table_bytes,
            os_calls: accounting.os_calls(),
            os_calls_failed: accounting.os_calls_failed(),
            page_operations: accounting.work(),
            forks: accounting.forks().to_vec(),
            requests_failed: self.driver.failed(),
            fallbacks: Fallbacks::of(pool),
            addresses: accounting.addresses(),
            memory_policy: accounting.memory_policy(config.memory_policy),
            khugepaged_bound: kernel.khugepaged_bound(self.time_ns),
            placement_digest: format!("{:016x}", self.driver.placement()),
            timeline: self.timeline.clone(),
            tlb: self.tlb_report(&observer),
            by_touch_rule: BTreeMap::new(),
        }
    }
}

/// The present pages of mapped ranges, in the order of their names. Each range has the name of its first page, and its
/// pages in the simulated address space (see [`SimMemory::mapped_ranges`]).
fn page_set(kernel: &Kernel, mapped_ranges: impl Iterator<Item = (u64, Range<u64>)>) -> PageSet {
    let mut set = PageSet::default();
    let runs = mapped_ranges.flat_map(|(name, pages)| {
        let runs = kernel.page_states(pages.clone()).into_iter();
        runs.map(move |run| (name + run.first_page - pages.start, run))
    });
    for (first_page, run) in runs {
        let state = match run.state {
            PageState::None => continue,
            PageState::Zero => SetState::Zero,
            PageState::Base | PageState::Mthp => SetState::Base,
            PageState::Thp => SetState::Thp,
            PageState::HugeZero => SetState::HugeZero,
            PageState::Hugetlb => SetState::Hugetlb,
        };
        set.push(PageRun { first_page, pages: run.pages, state });
    }
    set
}
