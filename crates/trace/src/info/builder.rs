//! The pass over all events that computes an [`Info`].

use super::lifetimes::LifetimeTally;
use super::over_time::OverTime;
use super::sizes::Sizes;
use super::threads::ThreadTally;
use super::{Info, Lifetimes, LivePoint, PolicyChange, ReallocOutcomes, SizeQuantiles};
use crate::event::{AllocCall, Event, ObjectId, Op, ThreadId};
use crate::source::EventSource;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Number of points in a timeline.
const TIMELINE_POINTS: u64 = 64;

/// A live object: its size, the thread that allocated it, and the totals at its allocation.
#[derive(Clone, Copy, Default)]
pub(super) struct Live {
    size: u64,
    thread: ThreadId,
    resizes: u32,
    pub(super) allocated_ns: u64,
    /// Objects allocated until then, including this one.
    pub(super) allocations: u64,
    /// Bytes allocated until then, including those of this object.
    pub(super) bytes_before: u64,
}

pub(super) struct InfoBuilder {
    info: Info,
    sizes: Sizes,
    lifetimes: LifetimeTally,
    threads: ThreadTally,
    /// Event numbers of the remaining timeline points, the next one last.
    points: Vec<u64>,
    live: Vec<Live>,
    live_bytes: u64,
    live_objects: u64,
    over_time: OverTime,
}

impl InfoBuilder {
    pub(super) fn new(source: &dyn EventSource) -> Self {
        let summary = source.summary();
        let info = Info {
            events: 0,
            mallocs: 0,
            callocs: 0,
            reallocs: 0,
            aligned_allocs: 0,
            frees: 0,
            frees_null: 0,
            threads: summary.threads,
            cross_thread_frees: 0,
            live_bytes_peak: 0,
            live_objects_peak: 0,
            live_objects_end: 0,
            unknown_frees: 0,
            size_bytes: SizeQuantiles::default(),
            size_histogram: Vec::new(),
            top_sizes: Vec::new(),
            lifetimes: Lifetimes::default(),
            realloc_outcomes: ReallocOutcomes::default(),
            alignments: BTreeMap::new(),
            calloc_bytes: 0,
            allocated_bytes: 0,
            by_thread: Vec::new(),
            cross_thread_pairs: Vec::new(),
            timeline: Vec::new(),
            over_time: Vec::new(),
            requests_failed: 0,
            usable_size_calls: 0,
            touch_events: 0,
            marks: 0,
            forks: 0,
            forks_ended: 0,
            forks_outliving: 0,
            memory_policies: Vec::new(),
            memory_policy_changes: 0,
            duration_ns: summary.duration_ns,
            complete: summary.complete,
            origin: source.header().origin.clone(),
            touch_source: source.header().touch,
            clock: source.header().clock,
            quality: source.footer().quality,
        };
        let point = |k: u64| (u128::from(k) * u128::from(summary.events) / u128::from(TIMELINE_POINTS)) as u64;
        let mut points: Vec<u64> = (1..=TIMELINE_POINTS).rev().map(point).collect();
        points.dedup();
        InfoBuilder {
            info,
            sizes: Sizes::default(),
            lifetimes: LifetimeTally::default(),
            threads: ThreadTally::default(),
            points,
            live: vec![Live::default(); summary.objects_peak as usize],
            live_bytes: 0,
            live_objects: 0,
            over_time: OverTime::new(summary.duration_ns),
        }
    }

    pub(super) fn add(&mut self, event: &Event) {
        self.info.events += 1;
        self.threads.seen(event.thread, event.time_ns);
        match event.op {
            Op::Alloc { object, size, align_log2, call, .. } => {
                self.count_alloc(call);
                self.count_kind(size, align_log2, call);
                self.allocate(object, size, event);
            }
            Op::Free { object } => {
                self.info.frees += 1;
                self.free(object, event);
            }
            Op::Realloc { object, size, .. } => {
                self.info.reallocs += 1;
                self.resize(object, size, event.thread);
            }
            Op::ReallocFree { object, .. } => {
                self.info.reallocs += 1;
                self.free(object, event);
            }
            Op::ReallocUnknown { object, size, .. } => {
                self.info.reallocs += 1;
                self.info.unknown_frees += 1;
                self.allocate(object, size, event);
            }
            Op::FreeNull => self.info.frees_null += 1,
            Op::FreeUnknown => {
                self.info.frees += 1;
                self.info.unknown_frees += 1;
            }
            Op::AllocFailed { call, .. } => {
                self.count_alloc(call);
                self.info.requests_failed += 1;
            }
            Op::ReallocFailed { .. } => {
                self.info.reallocs += 1;
                self.info.requests_failed += 1;
            }
            Op::UsableSize { .. } => self.info.usable_size_calls += 1,
            Op::Touch { .. } => self.info.touch_events += 1,
            Op::Mark { .. } => self.info.marks += 1,
            Op::MemoryPolicy { policy, inherited } => {
                self.info.memory_policy_changes += 1;
                if self.info.memory_policies.len() < PolicyChange::KEPT_MAX {
                    let (event, time_ns) = (self.info.events - 1, event.time_ns);
                    self.info.memory_policies.push(PolicyChange { event, time_ns, policy, inherited });
                }
            }
            Op::Fork { .. } => self.info.forks += 1,
            Op::ForkEnd { outlives: false, .. } => self.info.forks_ended += 1,
            Op::ForkEnd { outlives: true, .. } => self.info.forks_outliving += 1,
            Op::ThreadStart | Op::ThreadExit | Op::Exec => (),
        }
        let point = LivePoint {
            event: self.info.events,
            time_ns: event.time_ns,
            live_bytes: self.live_bytes,
            live_objects: self.live_objects,
        };
        self.over_time.add(point);
        if self.points.last() == Some(&point.event) {
            self.points.pop();
            self.info.timeline.push(point);
        }
    }

    fn count_kind(&mut self, size: u64, align_log2: u8, call: AllocCall) {
        if align_log2 > 0 {
            *self.info.alignments.entry(1 << align_log2.min(63)).or_default() += 1;
        }
        if call == AllocCall::Calloc {
            self.info.calloc_bytes = self.info.calloc_bytes.saturating_add(size);
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
            | AllocCall::Pvalloc => &mut self.info.aligned_allocs,
        };
        *count += 1;
    }

    // A source's ids are below its `objects_peak`, and each of its blocks has fewer than 2^47 bytes. So sums of fewer
    // than 2^17 of the largest blocks fit into 64 bits. Saturation only prevents a panic with absurd sources.

    fn allocate(&mut self, object: ObjectId, size: u64, event: &Event) {
        self.sizes.add(size);
        self.lifetimes.allocate(size);
        self.threads.allocate(event.thread, size);
        let (thread, allocated_ns) = (event.thread, event.time_ns);
        let (allocations, bytes_before) = (self.lifetimes.allocations, self.lifetimes.bytes);
        if let Some(live) = self.live.get_mut(object.0 as usize) {
            *live = Live { size, thread, resizes: 0, allocated_ns, allocations, bytes_before };
        }
        self.live_objects += 1;
        self.live_bytes = self.live_bytes.saturating_add(size);
        self.note_peaks();
    }

    fn resize(&mut self, object: ObjectId, size: u64, thread: ThreadId) {
        self.sizes.add(size);
        if let Some(live) = self.live.get_mut(object.0 as usize) {
            let resizes = &mut self.info.realloc_outcomes;
            let count = match size.cmp(&live.size) {
                Ordering::Greater => &mut resizes.grown,
                Ordering::Less => &mut resizes.shrunk,
                Ordering::Equal => &mut resizes.unchanged,
            };
            *count += 1;
            resizes.copied_bytes_max = resizes.copied_bytes_max.saturating_add(size.min(live.size));
            live.resizes = live.resizes.saturating_add(1);
            resizes.per_object_max = resizes.per_object_max.max(live.resizes);
            let added = size.saturating_sub(live.size);
            self.lifetimes.bytes = self.lifetimes.bytes.saturating_add(added);
            self.threads.add(thread, added);
            self.live_bytes = self.live_bytes.saturating_sub(live.size).saturating_add(size);
            live.size = size;
        }
        self.note_peaks();
    }

    fn free(&mut self, object: ObjectId, event: &Event) {
        if let Some(live) = self.live.get(object.0 as usize) {
            self.live_bytes = self.live_bytes.saturating_sub(live.size);
            self.info.cross_thread_frees += u64::from(live.thread != event.thread);
            self.lifetimes.free(live, event.time_ns);
            self.threads.free(live.thread, event.thread);
        }
        self.live_objects -= 1;
    }

    fn note_peaks(&mut self) {
        self.info.live_bytes_peak = self.info.live_bytes_peak.max(self.live_bytes);
        self.info.live_objects_peak = self.info.live_objects_peak.max(self.live_objects);
    }

    pub(super) fn finish(mut self) -> Info {
        self.info.live_objects_end = self.live_objects;
        self.info.size_bytes = self.sizes.quantiles();
        self.info.size_histogram = self.sizes.histogram();
        self.info.top_sizes = self.sizes.top();
        self.info.lifetimes = self.lifetimes.finish();
        self.info.allocated_bytes = self.lifetimes.bytes;
        self.info.over_time = self.over_time.finish();
        (self.info.by_thread, self.info.cross_thread_pairs) = self.threads.finish();
        self.info
    }
}
