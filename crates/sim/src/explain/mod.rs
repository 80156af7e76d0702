//! Explains a simulation: where every install came from, and what each page was over time.
//!
//! The run is that of [`simulate`](mod@crate::simulate), one event at a time: after each event its installs are taken
//! from the accounting's log and attributed to the event, its thread and object, and to the use of their pages.

mod breakdown;
mod page_map;
mod per_mark;

use std::collections::BTreeMap;

use hksim_engine::Driver;
use hksim_linux_mm::{InstallKind, PMD_PAGES};
use hksim_policy::Policy;
use hksim_trace::error::TraceError;
use hksim_trace::event::{Event, ObjectId, Op};
use hksim_trace::header::Summary;
use hksim_trace::hkt::Batch;
use hksim_trace::source::EventSource;

use crate::accounting::{Accounting, LoggedInstalls, Reason};
use crate::memory::PageUse;
use crate::observer::AccountingObserver;
use crate::placed::{Placed, Points, Run, accounting_of, needs_metadata_writes};
use crate::report::{SimReport, TraceLabel};
use crate::simulate::{SimConfig, SimError};
use crate::subject::Subject;
use crate::track::Described;
use crate::translations::{MetadataWrites, TranslationObserver};
pub use breakdown::{Breakdown, CauseKey, INTERVALS, InstallKey, InstallWork, Origin};
use page_map::PageMapBuilder;
pub use page_map::{CellState, MapRow, PageMap, SAMPLES};
pub use per_mark::PerMark;

/// A simulation, explained.
#[derive(Clone, Debug)]
pub struct Explained<P = Policy> {
    /// The result of the simulation.
    pub report: SimReport<P>,
    /// Installs by every key; each key's sum is the report's total.
    pub breakdown: Breakdown,
    /// The same, for each kind of the kernel's work.
    pub by_work: BTreeMap<InstallWork, Breakdown>,
    /// The states of pages over time.
    pub page_map: PageMap,
    /// Trace time of each sample of `page_map` and `occupancy`, in nanoseconds.
    pub sample_times_ns: Vec<u64>,
    /// Requested bytes of live objects in each SuperSlab that ever had any, at each sample. An object counts in the
    /// SuperSlab where it begins. Empty for allocators without SuperSlabs.
    pub occupancy: BTreeMap<u32, Vec<u64>>,
    /// Trace time at the end of each interval of [`Breakdown::time`], in nanoseconds.
    pub interval_ends_ns: [u64; INTERVALS],
    /// Installs after each mark of the name that was asked for.
    pub per_mark: Option<PerMark>,
}

/// Simulates a source, which must be at its start, and explains the result. `mark` is the number of a mark's name:
/// installs are then also counted after each mark of that name.
///
/// # Errors
/// Those of [`simulate`](crate::simulate()).
pub fn explain(source: &mut dyn EventSource, config: &SimConfig, mark: Option<u32>) -> Result<Explained, SimError> {
    if needs_metadata_writes(config) {
        let observer = |config: &SimConfig| TranslationObserver::new(logging(config), MetadataWrites::<false>);
        explain_run(source, config, mark, |trace, summary, points| {
            Run::new(&[config], observer, trace, summary, points)
        })
    } else {
        explain_run(source, config, mark, |trace, summary, points| Run::new(&[config], logging, trace, summary, points))
    }
}

/// The accounting of a design's run, which keeps every install.
fn logging(config: &SimConfig) -> Accounting {
    let mut accounting = accounting_of(config);
    accounting.log_installs();
    accounting
}

/// The time of the last event. Leaves the source at its start.
fn end_time(source: &mut dyn EventSource) -> Result<u64, TraceError> {
    let mut end_ns = 0;
    let mut batch = Batch::new();
    while source.next_into(&mut batch)? {
        end_ns = batch.read().time_ns_after(batch.len());
    }
    source.rewind()?;
    Ok(end_ns)
}

/// Explains the run that `start` makes for a source; its accounting must log its installs.
pub(crate) fn explain_run<A: Subject, P: Described + Send>(
    source: &mut dyn EventSource,
    config: &SimConfig<P>,
    mark: Option<u32>,
    start: impl FnOnce(TraceLabel, Summary, Points) -> Result<Run<A, P>, SimError>,
) -> Result<Explained<P>, SimError>
where
    Driver<A>: Send,
{
    let clock = Clock { end_ns: end_time(source)? };
    let (label, summary) = (TraceLabel::of(config.file.clone(), source), *source.summary());
    let run = start(label, summary, Points::new(summary.events, Vec::new(), false))?;
    let mut explaining = Explaining::new(run, clock, &summary, mark);
    let mut batch = Batch::new();
    while source.next_into(&mut batch)? {
        explaining.consume(&batch)?;
    }
    Ok(explaining.finish())
}

/// The trace's time.
#[derive(Clone, Copy)]
struct Clock {
    end_ns: u64,
}

impl Clock {
    fn interval(self, time_ns: u64) -> usize {
        let interval = u128::from(time_ns) * INTERVALS as u128 / u128::from(self.end_ns.max(1));
        (interval as usize).min(INTERVALS - 1)
    }

    /// The time of part `k` of `parts`.
    fn part(self, k: u64, parts: u64) -> u64 {
        (u128::from(self.end_ns) * u128::from(k) / u128::from(parts)) as u64
    }
}

/// What an event's installs are attributed to.
#[derive(Clone, Copy)]
struct Context {
    site: Origin<u32>,
    thread: Origin<u32>,
    phase: Origin<Option<u32>>,
    interval: usize,
    /// The use of the object's first page before the event; `None` if the object had no block.
    use_before: Option<PageUse>,
}

impl Context {
    const START: Context =
        Context { site: Origin::Start, thread: Origin::Start, phase: Origin::Start, interval: 0, use_before: None };
}

struct Explaining<A: Subject, P> {
    run: Run<A, P>,
    clock: Clock,
    /// The site that allocated each object.
    sites: Vec<u32>,
    phase: Option<u32>,
    breakdown: Breakdown,
    by_work: BTreeMap<InstallWork, Breakdown>,
    page_map: PageMapBuilder,
    sample_times_ns: Vec<u64>,
    occupancy: BTreeMap<u32, Vec<u64>>,
    per_mark: Option<PerMark>,
}

impl<A: Subject, P: Described + Send> Explaining<A, P>
where
    Driver<A>: Send,
{
    fn new(run: Run<A, P>, clock: Clock, summary: &Summary, mark: Option<u32>) -> Explaining<A, P> {
        let mut explaining = Explaining {
            run,
            clock,
            sites: vec![0; summary.objects_peak as usize],
            phase: None,
            breakdown: Breakdown::default(),
            by_work: BTreeMap::new(),
            page_map: PageMapBuilder::new(),
            sample_times_ns: Vec::new(),
            occupancy: BTreeMap::new(),
            per_mark: mark.map(PerMark::new),
        };
        explaining.attribute(Context::START);
        explaining
    }

    fn consume(&mut self, batch: &Batch) -> Result<(), SimError> {
        let (mut reader, mut details) = (batch.read(), batch.read());
        let before = self.run.done();
        let mut events: Vec<Event> = Vec::with_capacity(1);
        // The first sample precedes the first event.
        self.run.take_due();
        while reader.passed() < batch.len() {
            events.clear();
            details.events(1, &mut events);
            let Some(event) = events.first() else { break };
            self.sample_until(event.time_ns);
            let context = self.context(event);
            self.run.perform(&mut reader, details.passed(), before)?;
            self.run.take_due();
            self.attribute(context);
            if let (Op::Mark { name }, Some(per_mark)) = (event.op, &mut self.per_mark) {
                per_mark.passed(name);
            }
        }
        Ok(())
    }

    /// Notes what is known of an event before it is performed.
    fn context(&mut self, event: &Event) -> Context {
        if let Op::Mark { name } = event.op {
            self.phase = Some(name);
        }
        let object = event.op.object();
        if event.op.creates_object()
            && let Some(site) = object.and_then(|ObjectId(object)| self.sites.get_mut(object as usize))
        {
            *site = event.site.0;
        }
        let site = object.and_then(|ObjectId(object)| self.sites.get(object as usize).copied());
        let allocator = self.run.driver().allocator();
        let block = object.and_then(|object| self.run.driver().block_of(object));
        Context {
            site: Origin::Trace(site.unwrap_or(event.site.0)),
            thread: Origin::Trace(event.thread.0),
            phase: Origin::Trace(self.phase),
            interval: self.clock.interval(event.time_ns),
            use_before: block.map(|block| allocator.place_of(allocator.pages_of(block, 1).start).page_use),
        }
    }

    /// Attributes the installs since the last call.
    fn attribute(&mut self, context: Context) {
        let installs = self.run.observer().accounting_mut().take_installs();
        for logged in installs {
            if let Some(per_mark) = &mut self.per_mark {
                per_mark.add(logged.installs);
            }
            self.attribute_logged(&logged, context);
        }
    }

    fn attribute_logged(&mut self, logged: &LoggedInstalls, context: Context) {
        let memory = self.run.driver().allocator();
        let pages_each = (logged.pages.end - logged.pages.start) / logged.installs.max(1);
        for number in 0..logged.installs {
            let first = logged.pages.start + number * pages_each;
            // A huge page that a system call installs has the use of its last page, because the first ones may be the
            // SuperSlab's metadata.
            let is_huge = matches!(logged.kind, InstallKind::Thp | InstallKind::Hugetlb) && pages_each == PMD_PAGES;
            let place = memory.place_of(logged.touched.unwrap_or(if is_huge { first + pages_each - 1 } else { first }));
            let page_use = match (place.page_use, context.use_before) {
                // The event freed the block whose page it touched.
                (PageUse::Unused, Some(before)) if logged.touched.is_some() => before,
                (now, _) => now,
            };
            let Context { site, thread, phase, interval, .. } = context;
            let reason = logged.reason;
            let key = InstallKey { reason, page_use, superslab: place.superslab, site, thread, phase, interval };
            self.breakdown.add(key, 1);
            self.by_work.entry(InstallWork::of(logged)).or_default().add(key, 1);
        }
        if logged.reason != Reason::AlignmentExcess
            && let Some(first) = memory.place_of(logged.pages.start).page
        {
            self.page_map.installed(logged, first..first + (logged.pages.end - logged.pages.start));
        }
    }

    /// Takes the samples that are due before an event at this time.
    fn sample_until(&mut self, time_ns: u64) {
        while let Some(due_ns) = self.next_sample().filter(|&due_ns| due_ns < time_ns) {
            self.sample(due_ns);
        }
    }

    /// The time of the next sample; the last is at the end.
    fn next_sample(&self) -> Option<u64> {
        let taken = self.sample_times_ns.len() as u64;
        (taken < SAMPLES).then(|| self.clock.part(taken, SAMPLES - 1))
    }

    fn sample(&mut self, time_ns: u64) {
        let driver = self.run.driver();
        let allocator = driver.allocator();
        let mapped_ranges = allocator.mapped_ranges();
        self.page_map.sample(self.run.observer().accounting().kernel(), mapped_ranges.into_iter());
        let taken = self.sample_times_ns.len();
        for (block, bytes) in driver.live_objects() {
            let Some(superslab) = allocator.superslab_of_block(block) else { continue };
            let samples = self.occupancy.entry(superslab).or_default();
            samples.resize(taken + 1, 0);
            samples[taken] += bytes;
        }
        self.sample_times_ns.push(time_ns);
    }

    fn finish(mut self) -> Explained<P> {
        while let Some(due_ns) = self.next_sample() {
            self.sample(due_ns);
        }
        for samples in self.occupancy.values_mut() {
            samples.resize(self.sample_times_ns.len(), 0);
        }
        let allocator = self.run.driver().allocator();
        let page_map = self.page_map.finish(|page| allocator.superslab_of(page));
        let (reports, _) = Box::new(self.run).finish();
        let report = reports.into_iter().next().flatten();
        Explained {
            report: report.unwrap_or_else(|| unreachable!("the leader of a placement never parts from it")),
            breakdown: self.breakdown,
            by_work: self.by_work,
            page_map,
            sample_times_ns: self.sample_times_ns,
            occupancy: self.occupancy,
            interval_ends_ns: std::array::from_fn(|k| self.clock.part(k as u64 + 1, INTERVALS as u64)),
            per_mark: self.per_mark,
        }
    }
}
