//! Cuts a part out of a trace: a range of times or events, or some of the threads.

use super::Edit;
use super::touched::Touched;
use crate::error::TraceError;
use crate::event::{Access, Event, InitialTouch, ObjectId, Op, SiteId, ThreadId};
use crate::header::{Footer, Header, HistoryStep};
use crate::memory_policy::MemoryPolicy;
use crate::source::EventSource;
use serde::Serialize;
use serde_json::json;
use std::ops::Range;

/// Which events to keep: those of the given threads that are in both ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Event numbers, from 0.
    pub events: Range<u64>,
    /// Times in nanoseconds.
    pub time_ns: Range<u64>,
    /// Threads; `None` for all.
    pub threads: Option<Vec<u32>>,
}

impl Part {
    /// The whole trace.
    pub const WHOLE: Part = Part { events: 0..u64::MAX, time_ns: 0..u64::MAX, threads: None };
}

/// What to do with objects that are live at the start of the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveAtStart {
    /// Allocate them at time 0, in order of their allocation and with their sizes at that point, and repeat their
    /// touches. So the part starts with the heap that the program had there.
    Allocate,
    /// Leave them out. Calls on them in the part become calls on unknown pointers.
    LeaveOut,
}

/// What a cut changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CutCounts {
    /// Objects allocated at the start because they were live there.
    pub live_at_start: u64,
    /// Frees and resizes of objects that are not in the part. They become calls on unknown pointers.
    pub unknown_pointer_calls: u64,
    /// Frees and resizes by threads that are left out. They are assigned to the thread that allocated the object.
    pub reassigned_calls: u64,
    /// Touches, failed resizes and usable-size calls that are left out because their object or thread is.
    pub dropped_events: u64,
}

/// The edit.
#[derive(Clone, Debug)]
pub struct Cut {
    part: Part,
    live_at_start: LiveAtStart,
    parameters: HistoryStep,
    number: u64,
    begun: bool,
    base_ns: u64,
    allocations: u64,
    objects: Vec<Option<Live>>,
    /// The last change of each memory policy.
    policies: [Option<Event>; MemoryPolicy::KINDS],
    /// Children forked in the part that have not ended yet.
    forked: Vec<u32>,
    /// Time of the last event emitted.
    last_ns: u64,
    /// The changes so far.
    pub counts: CutCounts,
}

/// A live object of the source.
#[derive(Clone, Copy, Debug)]
struct Live {
    /// The call that allocated it, with its current size.
    allocation: Event,
    order: u64,
    /// Touches that `allocation` does not include.
    touched: Touched,
    in_part: bool,
}

impl Live {
    /// Changes the size of the allocation. Its initial touch is moved to `touched`, as it may not apply to the bytes
    /// that the resize added.
    fn resize(&mut self, new: u64, tail: InitialTouch) {
        let old = match &mut self.allocation.op {
            Op::Alloc { size, initial_touch, .. } => {
                if *initial_touch != InitialTouch::None || tail == InitialTouch::Watched {
                    self.touched.allocated(*size, *initial_touch);
                    *initial_touch = InitialTouch::Watched;
                }
                std::mem::replace(size, new)
            }
            Op::ReallocUnknown { size, .. } => std::mem::replace(size, new),
            _ => return,
        };
        self.touched.resized(old, new, tail);
    }
}

impl Cut {
    /// An edit that keeps only `part`.
    pub fn new(part: Part, live_at_start: LiveAtStart) -> Self {
        let bound = |end: u64| if end == u64::MAX { serde_json::Value::Null } else { json!(end) };
        let parameters = HistoryStep::new(
            "cut",
            [
                ("events_from", json!(part.events.start)),
                ("events_to", bound(part.events.end)),
                ("time_from_ns", json!(part.time_ns.start)),
                ("time_to_ns", bound(part.time_ns.end)),
                ("threads", json!(part.threads)),
                ("live_at_start", json!(live_at_start == LiveAtStart::Allocate)),
            ],
        );
        let counts = CutCounts::default();
        let (number, begun, base_ns, allocations, objects) = (0, false, 0, 0, Vec::new());
        let policies = [None; MemoryPolicy::KINDS];
        Cut {
            part,
            live_at_start,
            parameters,
            number,
            begun,
            base_ns,
            allocations,
            objects,
            policies,
            forked: Vec::new(),
            last_ns: 0,
            counts,
        }
    }

    fn has_thread(&self, thread: ThreadId) -> bool {
        self.part.threads.as_ref().is_none_or(|threads| threads.contains(&thread.0))
    }

    /// The thread if it is in the part, else the part's first thread. For events that concern the whole process.
    fn thread_in_part(&self, thread: ThreadId) -> ThreadId {
        match &self.part.threads {
            Some(threads) if !threads.contains(&thread.0) => threads.first().map_or(thread, |&first| ThreadId(first)),
            _ => thread,
        }
    }

    fn live(&mut self, object: ObjectId) -> &mut Option<Live> {
        let at = object.0 as usize;
        if self.objects.len() <= at {
            self.objects.resize(at + 1, None);
        }
        &mut self.objects[at]
    }

    /// Updates the table of live objects, whether or not the event is in the part.
    fn follow(&mut self, event: &Event, in_part: bool) {
        if let Op::MemoryPolicy { policy, .. } = event.op
            && let Some(last) = self.policies.get_mut(usize::from(policy.numbers().0))
        {
            *last = Some(*event);
        }
        let Some(object) = event.op.object() else { return };
        if event.op.creates_object() {
            let order = self.allocations;
            self.allocations += 1;
            *self.live(object) = Some(Live { allocation: *event, order, touched: Touched::default(), in_part });
            return;
        }
        if event.op.frees_object() {
            *self.live(object) = None;
            return;
        }
        let Some(live) = self.live(object) else { return };
        match event.op {
            Op::Realloc { size, initial_touch, .. } => live.resize(size, initial_touch),
            Op::Touch { offset, bytes, access, .. } => {
                live.touched.access(offset..offset.saturating_add(u64::from(bytes)), access);
            }
            _ => (),
        }
    }

    /// The end of a child that was forked in the part; `None` for other children. A child that ends after the part
    /// outlives it.
    fn end_of_child(&mut self, event: &Event, in_time: bool) -> Option<Event> {
        let Op::ForkEnd { child_pid, outlives } = event.op else { return None };
        let at = self.forked.iter().rposition(|&forked| forked == child_pid)?;
        self.forked.remove(at);
        let time_ns = if in_time { event.time_ns - self.base_ns } else { self.last_ns };
        let op = Op::ForkEnd { child_pid, outlives: outlives || !in_time };
        Some(Event { time_ns, thread: self.thread_in_part(event.thread), op, ..*event })
    }

    /// Emits the memory policies in force at the start of the part, and allocates the objects that are live there.
    fn begin(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        self.begun = true;
        self.base_ns = event.time_ns;
        for (event, policy) in self.policies.into_iter().flatten().filter_map(|event| Some((event, policy_of(&event)?)))
        {
            let op = Op::MemoryPolicy { policy, inherited: true };
            emit(Event { time_ns: 0, thread: self.thread_in_part(event.thread), op, ..event });
        }
        if self.live_at_start == LiveAtStart::LeaveOut {
            return;
        }
        let mut live: Vec<(u64, usize)> =
            self.objects.iter().enumerate().filter_map(|(at, live)| Some((live.as_ref()?.order, at))).collect();
        live.sort_unstable();
        for (_, at) in live {
            let Some(Live { allocation, touched, .. }) = self.objects[at] else { continue };
            if !self.has_thread(allocation.thread) {
                continue;
            }
            if let Some(live) = &mut self.objects[at] {
                live.in_part = true;
            }
            self.counts.live_at_start += 1;
            emit(Event { time_ns: 0, op: allocating(allocation.op), ..allocation });
            touched.accesses().for_each(|(bytes, access)| touch_at_once(&allocation, bytes, access, emit));
        }
    }

    /// Handles an event of the part whose object is not in the part.
    fn event_of_other_object(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        let (op, is_now_in_part) = match event.op {
            Op::Free { .. } | Op::ReallocFree { .. } => (Op::FreeUnknown, false),
            Op::Realloc { object, size, call, .. } => (Op::ReallocUnknown { object, size, call }, true),
            _ => {
                self.counts.dropped_events += 1;
                return;
            }
        };
        self.counts.unknown_pointer_calls += 1;
        if let (true, Some(object)) = (is_now_in_part, event.op.object())
            && let Some(live) = self.live(object)
        {
            live.in_part = true;
            live.allocation.thread = event.thread;
        }
        let site = if op.asks_for_memory() { event.site } else { SiteId::UNKNOWN };
        emit(Event { time_ns: event.time_ns - self.base_ns, op, site, ..*event });
    }
}

fn policy_of(event: &Event) -> Option<MemoryPolicy> {
    if let Op::MemoryPolicy { policy, .. } = event.op { Some(policy) } else { None }
}

/// The allocation of a live object. If a resize of an unknown pointer created the object, only the allocation is kept:
/// the free of the unknown pointer was before the part.
fn allocating(initial_touch: Op) -> Op {
    match initial_touch {
        Op::ReallocUnknown { object, size, call } => {
            Op::Alloc { object, size, align_log2: 0, call: call.of_null(), initial_touch: InitialTouch::None }
        }
        op => op,
    }
}

/// Emits touches that cover a range of the object. A touch covers at most `u32::MAX` bytes.
fn touch_at_once(allocation: &Event, range: Range<u64>, access: Access, emit: &mut dyn FnMut(Event)) {
    let Some(object) = allocation.op.object() else { return };
    let mut offset = range.start;
    while offset < range.end {
        let bytes = u32::try_from(range.end - offset).unwrap_or(u32::MAX);
        let op = Op::Touch { object, offset, bytes, access };
        emit(Event { time_ns: 0, site: SiteId::UNKNOWN, op, ..*allocation });
        offset += u64::from(bytes);
    }
}

impl Edit for Cut {
    fn edit(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        let number = self.number;
        self.number += 1;
        let in_time = self.part.events.contains(&number) && self.part.time_ns.contains(&event.time_ns);
        // A part between two events starts at the second of them, with the objects that are live there.
        let is_after_start = self.part.events.contains(&number) && event.time_ns >= self.part.time_ns.start;
        if is_after_start && !self.begun {
            self.begin(event, emit);
        }
        let has_thread = self.has_thread(event.thread);
        let object = event.op.object();
        let known = object.and_then(|object| *self.live(object)).filter(|_| !event.op.creates_object());
        let owner = known.filter(|live| live.in_part).map(|live| live.allocation.thread);
        self.follow(event, in_time && has_thread);
        if let Op::ForkEnd { .. } = event.op {
            return self.end_of_child(event, in_time).into_iter().for_each(emit);
        }
        if !in_time {
            return;
        }
        let time_ns = event.time_ns - self.base_ns;
        self.last_ns = time_ns;
        if let (true, Op::Fork { child_pid }) = (has_thread, event.op) {
            self.forked.push(child_pid);
        }
        match (has_thread, object, owner) {
            (true, Some(_), None) if !event.op.creates_object() => self.event_of_other_object(event, emit),
            (true, ..) => emit(Event { time_ns, ..*event }),
            (false, Some(_), Some(owner)) if event.op.frees_object() || matches!(event.op, Op::Realloc { .. }) => {
                self.counts.reassigned_calls += 1;
                emit(Event { time_ns, thread: owner, ..*event });
            }
            (false, Some(_), Some(_)) => self.counts.dropped_events += 1,
            (false, None, _) if policy_of(event).is_some() => {
                emit(Event { time_ns, thread: self.thread_in_part(event.thread), ..*event });
            }
            (false, ..) => (),
        }
    }

    fn header(&self, source: &Header) -> Header {
        let mut header = source.clone();
        header.history.push(self.parameters.clone());
        header
    }

    fn footer(&self, source: &Footer) -> Footer {
        let mut footer = source.clone();
        footer.quality.unknown_frees += self.counts.unknown_pointer_calls;
        footer
    }
}

/// Rewinds `source` and finds the events from the first mark named `from` to the next mark named `to` (to the end if
/// `to` is `None`), including the marks.
///
/// # Errors
/// The errors of the source; [`TraceError::NoMark`].
pub fn named_part(source: &mut dyn EventSource, from: &str, to: Option<&str>) -> Result<Range<u64>, TraceError> {
    source.rewind()?;
    let names = source.footer().mark_names.clone();
    let is = |name: u32, wanted: &str| names.get(name as usize).is_some_and(|found| found == wanted);
    let (mut number, mut first) = (0, None);
    // A recording can name marks that it never sets: those of another process.
    let mut is_set = vec![false; names.len()];
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            number += 1;
            let Op::Mark { name } = event.op else { continue };
            if let Some(is_set) = is_set.get_mut(name as usize) {
                *is_set = true;
            }
            match (first, to) {
                (None, _) if is(name, from) => first = Some(number - 1),
                (Some(first), Some(to)) if is(name, to) => return Ok(first..number),
                _ => (),
            }
        }
    }
    let missing = if first.is_some() { to } else { Some(from) };
    match (first, missing) {
        (Some(first), None) => Ok(first..u64::MAX),
        (_, missing) => {
            let known = names.iter().zip(is_set).filter(|(_, is_set)| *is_set).map(|(name, _)| name.as_str());
            let known = known.collect::<Vec<&str>>().join(", ");
            Err(TraceError::NoMark { name: missing.unwrap_or(from).to_string(), known })
        }
    }
}
