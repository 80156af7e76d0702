//! One placement, and the designs that share it.
//!
//! The first design leads: its allocator places the blocks. The others follow it (`memory/followers.rs`), and cost only
//! their own page operations. Only the SuperSlab allocator has followers.

use std::cell::RefMut;
use std::ops::Range;
use std::time::Instant;

use hksim_engine::{Driver, ForkSchedule, ForkStep, PageRun, PageSet, PageState as SetState, TouchRule};
use hksim_linux_mm::{Kernel, PageState};
use hksim_policy::vocabulary::Purge;
use hksim_policy::{PAGE_BYTES, Policy};
use hksim_trace::event::Op;
use hksim_trace::header::{Summary, TouchSource};
use hksim_trace::hkt::{Batch, BatchReader};

use crate::accounting::Accounting;
use crate::lines::Lines;
use crate::memory::{Followers, SimMemory};
use crate::observer::AccountingObserver;
use crate::paths::OnlyPaths;
use crate::pump::Consumer;
use crate::reach::TlbModels;
use crate::report::{SimReport, TraceLabel};
use crate::simulate::{Counted, MarkedPages, SimConfig, SimError};
use crate::subject::Subject;
use crate::superslabs::{SuperSlabs, superslabs};
use crate::track::{Described, Moment, Track};
use crate::translations::{MetadataWrites, TranslationObserver, Translations};

/// Number of points at which a timeline may take a sample; it takes those that its interval of time wants.
const TIMELINE_POINTS: u64 = 1024;

/// The points of a run at which timeline samples and page sets are taken.
pub(crate) struct Points {
    timeline: Vec<u64>,
    marks: Vec<u64>,
    collects_pages: bool,
}

impl Points {
    /// Points of a timeline, evenly spaced over a trace with `events` events. Marks are for TLB samples and, if `collects_pages`, page
    /// sets.
    pub(crate) fn new(events: u64, marks: Vec<u64>, collects_pages: bool) -> Points {
        let spaced = |k: u64| (u128::from(k) * u128::from(events) / u128::from(TIMELINE_POINTS)) as u64;
        let mut timeline: Vec<u64> = (0..=TIMELINE_POINTS).map(spaced).collect();
        timeline.dedup();
        Points { timeline, marks, collects_pages }
    }
}

/// A placement in progress.
pub(crate) trait Placed<P = Policy>: Consumer {
    /// The report of each design, in their order, and the leader's page sets. `None` for a design that parted from the
    /// leader: it has to be simulated again.
    fn finish(self: Box<Self>) -> (Vec<Option<SimReport<P>>>, Vec<MarkedPages>);
}

impl<P> Consumer for Box<dyn Placed<P>> {
    fn consume(&mut self, batch: &Batch) -> Result<(), SimError> {
        self.as_mut().consume(batch)
    }
}

/// Whether a run of this design under a full stream of accesses counts TLB hits and misses.
pub(crate) fn counts_tlb_misses<P>(config: &SimConfig<P>, touch: TouchSource) -> bool {
    // Misses are meaningful only if the trace records every access and the run performs exactly these accesses.
    config.tlb.is_some() && touch == TouchSource::FullStream && config.touch == TouchRule::Recorded
}

/// Whether another design may share this design's placement, as far as its settings tell. Which designs really do shows
/// only while the trace is simulated.
pub(crate) fn may_share(config: &SimConfig, touch: TouchSource) -> bool {
    let policy = &config.policy;
    SimMemory::<Accounting>::can_have_followers(policy.align, policy.header)
        && policy.purge != Purge::Free
        && config.forks.is_empty()
        && !counts_tlb_misses(config, touch)
        && config.counted != Counted::Time
}

/// Whether writes to metadata have to be told from reads: where the kernel's state depends on them.
pub(crate) fn needs_metadata_writes(config: &SimConfig) -> bool {
    !config.forks.is_empty() || config.policy.purge == Purge::Free
}

/// The accounting of a design's run.
pub(crate) fn accounting_of<P>(config: &SimConfig<P>) -> Accounting {
    Accounting::new(Kernel::new(config.kernel.clone())).with_addresses(config.addresses.clone())
}

/// Whether the observers of two designs are equal as long as they observe the same.
fn observe_alike(one: &SimConfig, other: &SimConfig) -> bool {
    (&one.kernel, &one.addresses) == (&other.kernel, &other.addresses)
}

/// Starts a run of designs with equal placements, touches and memory-policy rules, the leader first. Several designs
/// need [`may_share`] for each of them.
///
/// # Errors
/// A policy is invalid.
pub(crate) fn start(
    configs: &[&SimConfig],
    trace: TraceLabel,
    summary: Summary,
    points: Points,
) -> Result<Box<dyn Placed>, SimError> {
    let (leader, counts_paths) = (configs[0], configs.iter().any(|config| config.counted == Counted::Paths));
    let (tlb, counts_lines) = (
        leader.tlb.filter(|_| counts_tlb_misses(leader, trace.touch_source)),
        configs.iter().any(|config| config.counted == Counted::Time),
    );
    let started = Starting { configs, trace, summary, points };
    match (tlb, counts_lines) {
        (Some(core), true) => started.translated(|| (TlbModels::new(core), Lines::<true>::default())),
        (Some(core), false) => started.translated(|| TlbModels::new(core)),
        (None, true) if needs_metadata_writes(leader) => started.translated(Lines::<true>::default),
        (None, true) => started.translated(Lines::<false>::default),
        (None, false) if needs_metadata_writes(leader) && counts_paths => started.translated(|| MetadataWrites::<true>),
        (None, false) if needs_metadata_writes(leader) => started.translated(|| MetadataWrites::<false>),
        (None, false) if counts_paths => started.translated(|| OnlyPaths),
        (None, false) => started.observed(accounting_of),
    }
}

/// What a run starts with.
struct Starting<'a> {
    configs: &'a [&'a SimConfig],
    trace: TraceLabel,
    summary: Summary,
    points: Points,
}

impl Starting<'_> {
    fn observed<H>(self, observer: impl Fn(&SimConfig) -> H) -> Result<Box<dyn Placed>, SimError>
    where
        H: AccountingObserver + Send + 'static,
    {
        let Starting { configs, trace, summary, points } = self;
        Ok(Box::new(Run::new(configs, observer, trace, summary, points)?))
    }

    /// A run with a model of its accesses.
    fn translated<T>(self, model: impl Fn() -> T) -> Result<Box<dyn Placed>, SimError>
    where
        T: Translations + Send + 'static,
    {
        self.observed(|config| TranslationObserver::new(accounting_of(config), model()))
    }
}

/// A placement in progress, with observers of one kind.
pub(crate) struct Run<A: Subject, P = Policy> {
    started: Instant,
    trace: TraceLabel,
    driver: Driver<A>,
    points: Points,
    next_sample: usize,
    next_mark: usize,
    done: u64,
    /// Events among them that do not call the allocator.
    not_calls: u64,
    time_ns: u64,
    /// One for each design; the first leads.
    tracks: Vec<Track<P>>,
    /// The leader's page sets.
    marked: Vec<MarkedPages>,
    forks: ForkSchedule,
}

impl<H: AccountingObserver + Send> Run<SuperSlabs<H>> {
    /// See [`start`].
    pub(crate) fn new(
        configs: &[&SimConfig],
        observer: impl Fn(&SimConfig) -> H,
        trace: TraceLabel,
        summary: Summary,
        points: Points,
    ) -> Result<Run<SuperSlabs<H>>, SimError> {
        let leader = configs[0];
        let mut followers = Followers::default();
        for (number, config) in configs.iter().enumerate().skip(1) {
            let (_, paging) = config.policy.prepare()?.policy.split();
            let like = configs[..number].iter().position(|other| observe_alike(other, config));
            followers.add(number, paging, like, || observer(config));
        }
        let allocator = superslabs(&leader.policy, observer(leader), followers)?;
        Ok(Run::of(allocator, configs, trace, summary, points))
    }
}

impl<A: Subject, P: Described> Run<A, P> {
    /// A run on an allocator that was started.
    pub(crate) fn of(
        allocator: A,
        configs: &[&SimConfig<P>],
        trace: TraceLabel,
        summary: Summary,
        points: Points,
    ) -> Run<A, P> {
        let leader = configs[0];
        Run {
            started: Instant::now(),
            trace,
            driver: Driver::new(allocator, summary.threads, summary.objects_peak, leader.touch).counting_scattered(),
            points,
            next_sample: 0,
            next_mark: 0,
            done: 0,
            not_calls: 0,
            time_ns: 0,
            tracks: configs.iter().map(|&config| Track::new(config.clone())).collect(),
            marked: Vec::new(),
            forks: ForkSchedule::new(&leader.forks),
        }
    }

    /// The leader's observer.
    pub(crate) fn observer(&self) -> RefMut<'_, A::Observer> {
        self.driver.allocator().observer()
    }

    /// The driver of the leader's allocator.
    pub(crate) fn driver(&self) -> &Driver<A> {
        &self.driver
    }

    /// Number of events performed.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Performs the events before event `end` of a batch. `before` is the number of events before the batch.
    pub(crate) fn perform(&mut self, reader: &mut BatchReader<'_>, end: usize, before: u64) -> Result<(), SimError> {
        let failed =
            |reader: &BatchReader<'_>, source| SimError::Drive { event: before + reader.passed() as u64, source };
        while reader.passed() < end {
            let stepped = A::step_common(&mut self.driver, reader, end);
            stepped.map_err(|source| failed(reader, source))?;
            if reader.passed() == end {
                break;
            }
            let Some(event) = reader.uncommon() else { break };
            self.not_calls += u64::from(!event.op.calls_allocator());
            self.apply_memory_policy(&event.op);
            self.driver.step(event).map_err(|source| failed(reader, source))?;
            self.driver.allocator().event_done();
        }
        self.done = before + reader.passed() as u64;
        self.time_ns = reader.time_ns();
        match self.driver.allocator().observer().accounting().killed_in_event() {
            Some(event) => Err(SimError::Killed { event }),
            None => Ok(()),
        }
    }

    /// Applies a change of the program's memory policy, if the event is one.
    fn apply_memory_policy(&self, op: &Op) {
        let memory_policy = self.tracks[0].config().memory_policy;
        if let Op::MemoryPolicy { policy, .. } = *op {
            let allocator = self.driver.allocator();
            allocator.each_observer(|observer| observer.accounting_mut().change_policy(policy, memory_policy));
        }
        if let Some(lock) = memory_policy.lock(op) {
            self.driver.allocator().lock_memory(lock);
        }
    }

    fn next_point(&self) -> Option<u64> {
        let sample = self.points.timeline.get(self.next_sample).copied();
        let mark = self.points.marks.get(self.next_mark).copied();
        sample.into_iter().chain(mark).chain(self.forks.next_event()).min()
    }

    /// Performs every sample, mark, fork and exit that is due.
    pub(crate) fn take_due(&mut self) {
        while self.points.timeline.get(self.next_sample).is_some_and(|&point| point <= self.done) {
            self.next_sample += 1;
            self.sample();
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
        let allocator = self.driver.allocator();
        if let ForkStep::Exit(child) = step {
            return allocator.observer().accounting_mut().child_exits(child, self.done);
        }
        let mapped_ranges = allocator.mapped_ranges();
        let pages: Vec<Range<u64>> = mapped_ranges.iter().map(|(_, pages)| pages.clone()).collect();
        allocator.observer().fork(self.done, &pages);
        for (name, pages) in mapped_ranges {
            let states = allocator.observer().accounting().kernel().page_states(pages.clone());
            for run in states.into_iter().filter(|run| run.state != PageState::None) {
                let first = name + (run.first_page - pages.start);
                allocator.forked(first..first + run.pages);
            }
        }
    }

    /// Takes the last sample and mark if they are missing: a truncated trace can end before its last points.
    fn take_last(&mut self) {
        let moment = self.moment();
        self.driver.allocator().each_observer(|observer| observer.accounting_mut().sample_at_end(moment));
        let marked = self.points.marks.get(..self.next_mark).and_then(<[u64]>::last);
        if marked != Some(&self.done) {
            self.mark();
        }
    }

    /// Takes the leader's page set, if requested, and TLB samples.
    fn mark(&mut self) {
        let Run { driver, tracks, .. } = self;
        let allocator = driver.allocator();
        if self.points.collects_pages {
            let mapped_ranges = allocator.mapped_ranges();
            let observer = allocator.observer();
            let pages = page_set(observer.accounting().kernel(), mapped_ranges);
            let lazy_free_bytes = observer.accounting().kernel().lazy_free_pages() * PAGE_BYTES;
            self.marked.push(MarkedPages { event: self.done, pages, lazy_free_bytes });
        }
        if tracks.iter().any(Track::samples_reach) {
            let mut live: Vec<Range<u64>> =
                driver.live_objects().map(|(block, bytes)| allocator.pages_of(block, bytes)).collect();
            live.sort_unstable_by_key(|range| range.start);
            let done = self.done;
            allocator.each_track(|number, observer| tracks[number].sample_reach(done, observer.accounting(), &live));
        }
    }

    fn moment(&self) -> Moment {
        let calls = self.done - self.not_calls;
        Moment { event: self.done, calls, time_ns: self.time_ns, live: self.driver.live() }
    }

    fn sample(&self) {
        let moment = self.moment();
        self.driver.allocator().each_observer(|observer| observer.accounting_mut().sample_if_due(moment));
    }
}

impl<A: Subject, P: Described + Send> Consumer for Run<A, P>
where
    Driver<A>: Send,
{
    /// Performs events, and stops at each point where a sample, mark, fork or exit is due.
    fn consume(&mut self, batch: &Batch) -> Result<(), SimError> {
        let (mut reader, before) = (batch.read(), self.done);
        while reader.passed() < batch.len() {
            let until = self.next_point().map_or(u64::MAX, |point| point.saturating_sub(self.done));
            let until = usize::try_from(until).unwrap_or(usize::MAX);
            let end = batch.len().min(reader.passed().saturating_add(until));
            self.perform(&mut reader, end, before)?;
            self.take_due();
        }
        Ok(())
    }
}

impl<A: Subject, P: Described + Send> Placed<P> for Run<A, P>
where
    Driver<A>: Send,
{
    fn finish(mut self: Box<Self>) -> (Vec<Option<SimReport<P>>>, Vec<MarkedPages>) {
        self.take_last();
        let elapsed_s = self.started.elapsed().as_secs_f64();
        let mut reports: Vec<Option<SimReport<P>>> = self.tracks.iter().map(|_| None).collect();
        self.driver.allocator().each_track(|number, observer| {
            let track = &self.tracks[number];
            reports[number] = Some(track.report(&self.driver, observer, self.moment(), self.trace.clone(), elapsed_s));
        });
        (reports, self.marked)
    }
}

/// The present pages of mapped ranges, in the order of their names. Each range has the name of its first page, and its
/// pages in the simulated address space (see [`Subject::mapped_ranges`]).
fn page_set(kernel: &Kernel, mapped_ranges: Vec<(u64, Range<u64>)>) -> PageSet {
    let mut set = PageSet::default();
    let runs = mapped_ranges.into_iter().flat_map(|(name, pages)| {
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
