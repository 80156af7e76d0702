//! What is noted of one design while its placement is run.

use std::collections::BTreeMap;
use std::ops::Range;

use hksim_engine::{DesignLabel, Driver, Live};
use hksim_linux_mm::ThpConfig;
use hksim_policy::{PAGE_BYTES, Policy};

use crate::accounting::Accounting;
use crate::observer::AccountingObserver;
use crate::reach::{self, ReachSample, TlbReport};
use crate::report::{Installs, SCHEMA, SimReport, TouchLabel, TraceLabel, huge_bytes_unasked, version};
use crate::simulate::{Counted, SimConfig};
use crate::subject::{OwnFigures, Subject};

/// A point of a run. Equal for all designs of a placement.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    /// Events performed.
    pub(crate) event: u64,
    /// Calls of the allocator among them.
    pub(crate) calls: u64,
    /// Trace time.
    pub(crate) time_ns: u64,
    /// Live bytes.
    pub(crate) live: Live,
}

/// What describes a design in its report.
pub(crate) trait Described: Clone {
    /// As [`SimReport::huge_bytes_unasked`].
    fn huge_bytes_unasked(&self, thp: &ThpConfig) -> Option<u64>;
}

impl Described for Policy {
    fn huge_bytes_unasked(&self, thp: &ThpConfig) -> Option<u64> {
        huge_bytes_unasked(self, thp)
    }
}

/// Whether such a design wants huge pages is not known: it gives advice itself, or none.
impl<S: Clone> Described for DesignLabel<S> {
    fn huge_bytes_unasked(&self, _thp: &ThpConfig) -> Option<u64> {
        None
    }
}

/// A design, with its samples so far.
pub(crate) struct Track<P = Policy> {
    config: SimConfig<P>,
    reach: Vec<ReachSample>,
}

impl<P: Described> Track<P> {
    pub(crate) fn new(config: SimConfig<P>) -> Track<P> {
        Track { config, reach: Vec::new() }
    }

    pub(crate) fn config(&self) -> &SimConfig<P> {
        &self.config
    }

    /// Whether the design has a TLB.
    pub(crate) fn samples_reach(&self) -> bool {
        self.config.tlb.is_some()
    }

    /// Samples the TLB reach over live objects: `live` has their pages, by their first page.
    pub(crate) fn sample_reach(&mut self, event: u64, accounting: &Accounting, live: &[Range<u64>]) {
        if let Some(core) = self.config.tlb {
            self.reach.push(reach::sample(event, core, accounting.kernel(), live));
        }
    }

    fn tlb_report<H: AccountingObserver>(&self, observer: &H) -> Option<TlbReport> {
        let misses = observer.misses();
        self.config.tlb.map(|core| TlbReport {
            core,
            reach: self.reach.clone(),
            lookups: misses,
            miss_curves: observer.miss_curves(),
            lookups_skipped: misses.is_none().then_some(reach::LOOKUPS_SKIPPED),
        })
    }

    /// The report at the end of a run.
    pub(crate) fn report<A: Subject>(
        &self,
        driver: &Driver<A>,
        observer: &A::Observer,
        Moment { event, calls, time_ns, live }: Moment,
        trace: TraceLabel,
        elapsed_s: f64,
    ) -> SimReport<P> {
        let config = &self.config;
        let OwnFigures { superslabs_peak, fallbacks } = driver.allocator().own_figures();
        let accounting = observer.accounting();
        let (kernel, peaks) = (accounting.kernel(), accounting.peaks());
        let counters = kernel.counters();
        let source = config.touch.source(trace.touch_source);
        SimReport {
            schema: SCHEMA,
            hksim_version: version(),
            trace: TraceLabel { file: config.file.clone(), ..trace },
            policy: config.policy.clone(),
            touch: TouchLabel { rule: config.touch, source },
            kernel: config.kernel.clone(),
            huge_bytes_unasked: config.policy.huge_bytes_unasked(&config.kernel.thp),
            events: event,
            calls,
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
            superslabs_peak,
            vmas_peak: peaks.vmas,
            page_table_bytes_peak: peaks.page_table_bytes,
            os_calls: accounting.os_calls(),
            os_calls_failed: accounting.os_calls_failed(),
            page_operations: accounting.work(),
            forks: accounting.forks().to_vec(),
            requests_failed: driver.failed(),
            fallbacks,
            addresses: accounting.addresses(),
            memory_policy: accounting.memory_policy(config.memory_policy),
            khugepaged_bound: kernel.khugepaged_bound(time_ns),
            khugepaged_settled: kernel.khugepaged_settled(),
            khugepaged_at_end: kernel.khugepaged_at_end(time_ns),
            memory_limit: accounting.memory_limit(),
            placement_digest: format!("{:016x}", driver.placement()),
            timeline: accounting.samples().to_vec(),
            tlb: self.tlb_report(observer),
            paths: driver
                .allocator()
                .placement_paths()
                .filter(|_| config.counted != Counted::Pages)
                .map(|paths| paths.plus(&observer.page_paths())),
            lines: observer.lines(),
            by_touch_rule: BTreeMap::new(),
        }
    }
}
